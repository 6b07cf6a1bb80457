"""The managed API in a user's hands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_training import PPO, Callback
from rl_training.errors import CheckpointError, ConfigError, EnvironmentFault
from rl_training.runtime.session import Session
from support import DictEnv, IdentityEnv, TargetEnv

SMALL = {"num_envs": 2, "rollout_steps": 32, "eval_episodes": 0}


def test_an_agent_trains_evaluates_and_predicts() -> None:
    agent = PPO("CartPole-v1", **SMALL, ent_coef_schedule={"kind": "linear", "start": 0.01, "end": 0.0})
    result = agent.train(200)
    assert agent.num_timesteps == result.global_step >= 200
    assert agent.evaluate(episodes=3, seed=1) == agent.evaluate(episodes=3, seed=1)
    action, _ = agent.predict(np.zeros(4, dtype=np.float32))
    assert action in (0, 1)
    actions, _ = agent.predict(np.zeros((5, 4)))
    assert actions.shape == (5,)


def test_training_again_goes_on_and_schedules_keep_their_end() -> None:
    agent = PPO("CartPole-v1", **SMALL, learning_rate=1e-3, learning_rate_schedule="linear", log_interval=1)
    agent.train(128)
    first = agent.num_timesteps
    result = agent.train(128)
    assert agent.num_timesteps >= first + 128
    assert agent.config.schedule_horizon == 128
    assert result.metrics["learning_rate"] == 0.0


def test_training_without_a_number_always_adds_what_the_agent_was_made_for(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", num_envs=1, rollout_steps=25, eval_episodes=0, total_timesteps=100, backend="sync")
    reached = [agent.train().global_step for _ in range(4)]
    assert reached == [100, 200, 300, 400]
    agent.train(50)
    assert agent.train().global_step == 550
    twin = PPO.load(agent.save(tmp_path / "model"))
    assert twin.train().global_step == 650


@pytest.mark.parametrize("steps", [0, -5])
def test_training_for_no_step_is_refused(steps: int) -> None:
    agent = PPO("CartPole-v1", **SMALL, total_timesteps=100)
    with pytest.raises(ConfigError, match=f"total_timesteps must be at least 1, got {steps}; leave it out for 100"):
        agent.train(steps)
    assert agent.num_timesteps == 0


def test_a_greedy_prediction_is_the_same_twice_and_a_sampled_one_is_not() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    obs = np.zeros((64, 4))
    assert (agent.predict(obs)[0] == agent.predict(obs)[0]).all()
    assert len(set(agent.predict(obs, deterministic=False)[0].tolist())) == 2


def test_observations_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(3,\).*\(4,\)"):
        PPO("CartPole-v1", **SMALL).predict(np.zeros((2, 3)))


def test_a_callable_environment_and_dict_observations() -> None:
    agent = PPO(DictEnv, **SMALL)
    agent.train(64)
    sample = DictEnv().observation_space.sample()
    single, _ = agent.predict(sample)
    assert DictEnv().action_space.contains(single)
    assert agent.predict(dict(reversed(sample.items())))[0] == single
    with pytest.raises(ConfigError, match="mapping with the keys"):
        agent.predict(np.zeros(3))


def test_continuous_actions_stay_within_their_bounds() -> None:
    agent = PPO(TargetEnv, **SMALL, log_std_init=2.0)
    actions, _ = agent.predict(
        np.stack([TargetEnv().observation_space.sample() for _ in range(50)]), deterministic=False
    )
    space = TargetEnv().action_space
    assert all(space.contains(action) for action in actions)


def test_an_agent_with_a_callable_is_loaded_with_it_again(tmp_path: Path) -> None:
    path = PPO(IdentityEnv, **SMALL).save(tmp_path / "agent")
    with pytest.raises(EnvironmentFault, match=r"IdentityEnv.*env="):
        PPO.load(path)
    assert PPO.load(path, env=IdentityEnv).num_timesteps == 0


def test_loading_what_is_not_there_or_not_ours(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such"):
        PPO.load(tmp_path / "nothing")


def test_unknown_keywords_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ent_coef'"):
        PPO("CartPole-v1", ent_coeff=0.1)


def test_a_users_callback_can_stop_training() -> None:
    class Enough(Callback):
        def on_log(self, session: Session, row: object) -> None:
            session.request_stop("enough")

    agent = PPO("CartPole-v1", **SMALL, log_interval=1)
    assert agent.train(10_000, callbacks=[Enough()]).stop_reason == "enough"
    assert agent.num_timesteps < 200


def test_building_an_agent_leaves_the_global_generators_alone() -> None:
    import torch

    before = torch.get_rng_state()
    PPO("CartPole-v1", **SMALL)
    assert torch.equal(before, torch.get_rng_state())
