"""DQN in training: its schedules, and every flag of Rainbow by itself and all together."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state
from probing import probed, values
from rl_training.errors import ConfigError
from support import ContextualBandit, DictEnv, DiscountEnv, IdentityEnv, IdentityImageEnv, TargetEnv, TruncationEnv

QUICK: dict[str, Any] = {"learning_starts": 200, "replay_ratio": 0.5, "target_update_interval": 20, "rollout_steps": 4}
RAINBOW = {"dueling": True, "n_steps": 3, "priority_alpha": 0.5, "noisy": True, "epsilon": 0.0}
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {"double": False},
    "double": {},
    "dueling": {"dueling": True},
    "prioritised": {"priority_alpha": 0.6},
    "n-step": {"n_steps": 3},
    "noisy": {"noisy": True, "epsilon": 0.0},
    "C51": {"distribution": "categorical", "v_min": 0.0, "v_max": 12.0},
    "QR": {"distribution": "quantile", "num_atoms": 11, "learning_rate": 3e-3},
    "rainbow": {**RAINBOW, "distribution": "categorical", "v_min": 0.0, "v_max": 12.0},
}


@pytest.mark.parametrize(("control", "start", "end"), [("epsilon", 1.0, 0.1), ("priority_beta", 0.4, 1.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("dqn", control, tmp_path, start=start, end=end)


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_the_known_answer_is_learned(flags: dict[str, Any]) -> None:
    assert probed("dqn", ContextualBandit, 2_000, **{**QUICK, **flags}).evaluate(64).return_mean == 1.0


@pytest.mark.parametrize("flag", ["double", "C51", "QR", "rainbow"])
def test_a_chain_has_the_values_it_has_by_hand(flag: str) -> None:
    """A reward of 1 after two steps: with gamma 0.5 the states are worth 0.5 and 1, whatever n is."""
    session = probed("dqn", DiscountEnv, 3_000, gamma=0.5, **{**QUICK, **FLAGS[flag]})
    assert values(session, [1.0, 0.0], [0.0, 1.0]) == pytest.approx([0.5, 1.0], abs=0.06)


@pytest.mark.parametrize("flag", ["double", "rainbow"])
def test_a_time_limit_does_not_end_the_world(flag: str) -> None:
    """1 / (1 - 0.9) = 10. Were the truncation taken for a termination, the value would be at most 6.5."""
    session = probed("dqn", TruncationEnv, 5_000, gamma=0.9, **{**QUICK, **FLAGS[flag]})
    assert values(session, [1.0])[0] == pytest.approx(10.0, abs=0.5)


@pytest.mark.parametrize(
    ("env", "steps", "target"),
    [(IdentityImageEnv, 1_500, 8.0), pytest.param(DictEnv, 3_000, 1.0, marks=pytest.mark.slow)],
)
def test_images_and_mappings_are_taken(env: type[gym.Env], steps: int, target: float) -> None:
    session = probed("dqn", env, steps, **{**QUICK, "gamma": 0.5, "learning_rate": 5e-4})
    assert session.evaluate(32).return_mean >= target


def test_actions_that_do_not_begin_at_0_are_played_as_they_are() -> None:
    class Shifted(IdentityEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(4, start=2)

        def pay(self, action: Any) -> float:
            assert self.action_space.contains(action)
            return super().pay(action - 2)

    assert probed("dqn", Shifted, 3_000, **{**QUICK, "gamma": 0.5}).evaluate(16).return_mean == 8.0


def test_a_box_of_actions_is_refused_with_who_takes_it() -> None:
    with pytest.raises(ConfigError, match=r"DQN needs a Discrete action space, got Box.*SAC"):
        probed("dqn", TargetEnv, 100)


def test_what_has_no_effect_is_refused(tmp_path: Path) -> None:
    for key, cause in {"priority_beta": "without priority_alpha", "v_min": "with distribution none"}.items():
        with pytest.raises(ConfigError, match=f"{key} has no effect {cause}"):
            small_config("dqn", tmp_path, algo_kwargs={"priority_alpha": None, key: 0.5})


def test_updates_begin_when_the_first_transition_is_there(tmp_path: Path) -> None:
    """With nothing to wait for, the first row of all has no outcome yet."""
    start = {"learning_starts": 0, "rollout_steps": 1, "replay_ratio": 1.0}
    _, state = train_state(small_config("dqn", tmp_path, algo_kwargs=start, num_envs=1, total_timesteps=20))
    assert state["progress"]["gradient_steps"] == 19
