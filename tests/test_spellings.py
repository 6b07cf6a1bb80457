"""Names that users of Stable-Baselines3 know, where they mean the same."""

from pathlib import Path

import pytest

from rl_training import A2C, DQN, PPO
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config


def test_an_agent_takes_the_names_and_learns(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", num_envs=2, n_steps=8, n_epochs=1, batch_size=16, eval_episodes=0)
    params = agent.config.parsed_params().params
    assert (params.rollout_steps, params.update_epochs, params.batch_size) == (8, 1, 16)
    assert agent.learn(16).global_step == 16
    agent.save(tmp_path / "model")
    agent.close()
    loaded = PPO.load(tmp_path / "model")
    assert loaded.config.parsed_params().params.rollout_steps == 8
    loaded.close()


def test_two_spellings_of_one_key_are_refused() -> None:
    with pytest.raises(ConfigError, match="'rollout_steps' and 'n_steps' are two spellings of one key"):
        PPO("CartPole-v1", rollout_steps=8, n_steps=16)


def test_a_name_that_means_something_else_keeps_its_meaning() -> None:
    """DQN's `n_steps` counts the rewards in a target, and A2C makes no epochs."""
    config = make_config({"algo": "dqn", "env_id": "CartPole-v1", "algo_kwargs": {"n_steps": 3}})
    assert config.parsed_params().params.n_steps == 3
    with pytest.raises(ConfigError, match="unknown algo_kwargs key 'n_epochs'"):
        make_config({"algo": "a2c", "env_id": "CartPole-v1", "algo_kwargs": {"n_epochs": 3}}).parsed_params()
    assert DQN.learn is DQN.train
    assert A2C.learn is A2C.train
