"""Random network distillation: what it pays for, who may have it, exact resume, and a chain that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from conformance import StopAtCheckpoint, differences, small_config, train_state, training_rows
from probing import probed
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run
from rl_training.runtime.session import Session

FAMILY = ["ppo", "a2c", "trpo", "recurrent_ppo", "ppg", "gail", "impala", "appo"]
V_TRACE = ("impala", "appo")


class Chain(gym.Env):
    """Rooms in a row; only the last one pays. Going the wrong way leads back to the first."""

    def __init__(self, length: int = 20) -> None:
        self.length = length
        self.observation_space = spaces.Discrete(length)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.room = self.steps = 0
        return self.room, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        # Which way is on differs from room to room, so that no constant action leads through.
        self.room = self.room + 1 if action == self.room % 2 else 0
        paid = self.room == self.length - 1
        return self.room, float(paid), paid, self.steps >= 2 * self.length, {}


class OwnTorso(torch.nn.Flatten):
    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.out_features = spaces.flatdim(space)


def session_of(**kwargs: Any) -> Session:
    config = small_config("ppo", Path("unused"), num_envs=2, algo_kwargs={"rnd": True, **kwargs})
    return Session(config)


def test_the_bonus_is_the_error_in_units_of_its_discounted_sum() -> None:
    session = session_of()
    rollout = session.collect()
    rnd = session.learner.rnd
    bonus = rnd.bonus(rollout)
    with torch.no_grad():
        errors = rnd.network(rollout.next_obs.flatten(0, 1)).reshape(bonus.shape)
    scale = rnd.normalizer.stats.var.add(1e-8).rsqrt().float()
    torch.testing.assert_close(bonus[rollout.valid], (errors * scale).clamp(-10, 10)[rollout.valid])
    assert not bonus[~rollout.valid].any()


def test_the_scale_of_the_bonus_follows_errors_that_fall() -> None:
    """The first errors are large, as nothing is learned yet. What is new later must not be measured by them."""
    normalizer = session_of().learner.rnd.normalizer
    errors = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    never = torch.zeros(64, 8, dtype=torch.bool)
    first = [normalizer(errors, done=never, gamma=0.9) for _ in range(40)][-1]
    last = [normalizer(errors / 100, done=never, gamma=0.9) for _ in range(160)][-1]
    torch.testing.assert_close(last, first, rtol=0.05, atol=0.0)


def test_what_was_seen_pays_less_than_what_was_not() -> None:
    session = session_of(rnd_learning_rate=1e-3)
    rnd = session.learner.rnd
    generator = torch.Generator().manual_seed(0)
    seen, new = torch.randn(256, 4, generator=generator), torch.randn(256, 4, generator=generator) + 3
    first = rnd.update({"next_obs": seen}).metrics["rnd_loss"]
    for _ in range(200):
        last = rnd.update({"next_obs": seen}).metrics["rnd_loss"]
    with torch.no_grad():
        assert last < 0.1 * first
        assert rnd.network(new).mean() > 5 * rnd.network(seen).mean()


def test_the_random_network_never_learns() -> None:
    session = session_of()
    before = {name: weight.clone() for name, weight in session.learner.rnd.network.target.state_dict().items()}
    session.learner.rnd.update({"next_obs": torch.randn(8, 4)})
    assert all(torch.equal(before[name], w) for name, w in session.learner.rnd.network.target.state_dict().items())


def valued_at(session: Session, value: float) -> Session:
    """The session with a value function of the bonus that says the same everywhere."""
    *_, last = session.learner.rnd.network.critic
    last.weight.data.zero_()
    last.bias.data.fill_(value)
    return session


def test_the_bonus_goes_on_after_the_end_of_an_episode() -> None:
    # delta_t = 1 + 0.5 * 2 - 2 = 0 at every row, the one before an end included: nothing better or worse follows.
    session = valued_at(session_of(gamma=0.5, gae_lambda=0.9, rollout_steps=64), 2.0)
    rollout = session.collect()
    assert rollout.terminated.any()
    rnd = session.learner.rnd
    torch.testing.assert_close(rnd.advantages(rollout, torch.ones_like(rollout.rewards)), torch.zeros(64, 2))
    torch.testing.assert_close(rnd.returns, torch.full((64, 2), 2.0))


def test_the_policys_value_function_does_not_learn_the_bonus() -> None:
    rollout = (session := session_of()).collect()
    _, returns = session.learner.advantages(rollout)
    session.learner.rnd = None
    advantages, without = session.learner.advantages(rollout)
    torch.testing.assert_close(returns, without)
    torch.testing.assert_close(returns, advantages + rollout.values)


def test_the_value_function_of_the_bonus_learns_its_returns() -> None:
    session = session_of(rnd_updates=100)
    rollout = session.collect()
    session.learner.advantages(rollout)
    losses = [result.metrics["rnd_value_loss"] for result in session.learner.distil(rollout)]
    assert losses[-1] < 0.5 * losses[0]


def test_its_networks_are_as_the_user_names_them_but_never_the_users_own() -> None:
    named = session_of(torso="layer_norm_mlp").learner.rnd.network
    assert any(isinstance(module, torch.nn.LayerNorm) for module in named.target.modules())
    own = session_of(torso=OwnTorso).learner.rnd.network
    assert not any(isinstance(module, OwnTorso) for module in own.modules())


def test_the_next_observation_at_an_end_is_the_final_one(tmp_path: Path) -> None:
    session = Session(small_config("ppo", tmp_path, backend="sync", algo_kwargs={"rollout_steps": 64}))
    rollout = session.collect()
    assert len(rollout.final_rows)
    following = rollout.next_obs
    for (t, b), final in zip(rollout.final_rows.tolist(), rollout.final_obs, strict=True):
        torch.testing.assert_close(following[t, b], final)
        assert following[t, b, 0].abs() > 2.4 or following[t, b, 2].abs() > 0.2  # where CartPole ends
    torch.testing.assert_close(following[-1][~rollout.done[-1]], rollout.last_obs[~rollout.done[-1]])


def test_its_options_are_refused_without_it(tmp_path: Path) -> None:
    for key, value in (("rnd_coef", 0.5), ("rnd_learning_rate_schedule", "linear"), ("rnd_batch", 8)):
        with pytest.raises(ConfigError, match=f"{key} has no effect without rnd; set rnd to true"):
            small_config("ppo", tmp_path, algo_kwargs={key: value})


@pytest.mark.parametrize("algo", FAMILY)
def test_the_whole_family_may_have_it_and_resumes_exactly(algo: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path, algo_kwargs={"rnd": True, "rnd_coef": 0.5}, checkpoint_interval=128)
    whole_dir, whole = train_state(config)
    run_dir, stopped = train_state(config, callbacks=[StopAtCheckpoint()])
    assert stopped["progress"]["global_step"] < whole["progress"]["global_step"]
    resume_run(run_dir)
    assert [d for d in differences(whole, load_checkpoint(run_dir)) if d.startswith("/learner/")] == []
    row = training_rows(whole_dir)[-1]
    assert row["rnd_loss"] > 0
    assert row["rnd_bonus"] > 0
    assert row["rnd_coef"] == 0.5
    assert ("rnd_value_loss" in row) == (algo not in V_TRACE)


def test_a_chain_that_chance_does_not_lead_through_is_solved_by_curiosity() -> None:
    options = {"learning_rate": 1e-3, "rollout_steps": 64, "ent_coef": 0.01}
    paid = {}
    for rnd in (False, True):
        bonus = {"rnd": True, "rnd_coef": 0.3} if rnd else {}
        session = probed("ppo", Chain, 16_000, **options, **bonus)
        paid[rnd] = np.mean([episode.total_reward for episode in session.progress.recent[""]])
    assert paid[False] == 0.0
    assert paid[True] > 0.8


class Grid(gym.Env):
    """A grid of codes, in which nothing happens."""

    observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return marked_grids([0])[0].numpy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return marked_grids([0])[0].numpy(), 0.0, False, True, {}


def marked_grids(columns: list[int]) -> torch.Tensor:
    """Grids of one code but for a cell of the first row."""
    grids = torch.ones(len(columns), 7, 7, 3, dtype=torch.uint8)
    grids[torch.arange(len(columns)), 0, columns, 0] = 10
    return grids


@pytest.mark.parametrize("torso", [{}, {"torso": "grid_cnn"}])
def test_a_cell_that_nobody_stood_on_is_new(torso: dict[str, str]) -> None:
    """To a torso of grids one cell of 49 is another: its error there is about seven times that of what is known."""
    rnd = probed("ppo", Grid, 64, rnd=True, rollout_steps=8, **torso).learner.rnd
    seen = marked_grids([column % 5 for column in range(250)])
    rnd.network.update_statistics(seen)
    for _ in range(200):
        rnd.update({"next_obs": seen})
    with torch.no_grad():
        known, new = rnd.network(seen).mean(), rnd.network(marked_grids([5, 6])).mean()
    assert new > 100 * known
