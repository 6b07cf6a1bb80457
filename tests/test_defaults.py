"""Runs without a preset: the defaults for the kind of environment, and what wins over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import PPO
from rl_training.cli import main
from rl_training.envs.kinds import kind_of
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig, make_config
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.defaults import settled
from rl_training.runtime.learner import Learner
from rl_training.runtime.planner_learner import OF_TORSO

FEW, MANY = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
SEEN = {
    "vectors": Spaces(VECTOR, FEW),
    "continuous": Spaces(VECTOR, MANY),
    "grids": Spaces(spaces.Dict({"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "direction": FEW}), FEW),
    "images": Spaces(spaces.Box(0, 255, (96, 96, 3), np.uint8), MANY),
}


def config_for(**algo_kwargs: Any) -> TrainConfig:
    config = {"algo": "ppo", "env_id": "CartPole-v1", "defaults": "environment", "algo_kwargs": algo_kwargs}
    return make_config(config)


@pytest.mark.parametrize(("kind", "given"), SEEN.items())
def test_spaces_have_their_kind(kind: str, given: Spaces) -> None:
    assert kind_of(given) == kind


@pytest.mark.parametrize("planes", [spaces.MultiBinary((10, 10, 4)), spaces.Box(0, 1, (10, 10, 4), np.bool_)])
def test_planes_of_truth_values_are_grids(planes: gym.Space) -> None:
    assert kind_of(Spaces(planes, FEW)) == "grids"


@pytest.mark.parametrize("algo", REGISTRY)
@pytest.mark.parametrize(("kind", "given"), SEEN.items())
def test_the_defaults_of_every_algorithm_and_kind_are_valid(algo: str, kind: str, given: Spaces) -> None:
    config = make_config({"algo": algo, "env_id": "CartPole-v1", "defaults": "environment"})
    learner: type[Learner] = config.learner_class()
    found = settled(config, given)
    of_kind: dict[str, Any] = dict(learner.defaults_by_kind.get(kind, {}))  # type: ignore[call-overload]
    assert found.algo_kwargs == {key: of_kind[key] for key in of_kind if key not in OF_TORSO}  # none for mappings
    assert settled(found, given) == found  # what is written out is not asked for again


def test_continuous_control_is_normalised_and_learns_in_ten_epochs_of_64() -> None:
    params = settled(config_for(), SEEN["continuous"]).parsed_params().params
    assert (params.normalize_obs, params.normalize_reward) == (True, True)
    assert (params.update_epochs, params.batch_size) == (10, 64)


def test_gumbel_muzero_keeps_its_noise_where_nothing_is_seen_but_numbers() -> None:
    """Acrobot's goal is never reached by noise that is new at every step."""
    config = make_config({"algo": "gumbel_muzero", "env_id": "Acrobot-v1", "defaults": "environment"})
    assert settled(config, SEEN["vectors"]).parsed_params().params.noise_persistence == 0.7
    assert settled(config, SEEN["images"]).parsed_params().params.noise_persistence == 0.0


@pytest.mark.parametrize("algo", ["muzero", "gumbel_muzero", "efficientzero", "scalezero"])
def test_planners_read_small_grids_with_an_mlp(algo: str) -> None:
    """As planes they learn too slowly; games for two, mappings and what the user says of the network are left alone."""
    grid = Spaces(spaces.Box(0, 255, (5, 5, 2), np.uint8), FEW)

    def found(given: Spaces = grid, **algo_kwargs: Any) -> dict[str, Any]:
        config = {"algo": algo, "env_id": "CartPole-v1", "defaults": "environment", "algo_kwargs": algo_kwargs}
        return settled(make_config(config), given).algo_kwargs

    assert (found()["torso"], found()["replay_ratio"]) == ("mlp", 0.5)
    assert "torso" not in found(SEEN["grids"])
    assert found(players=2) == {"players": 2}
    if algo != "scalezero":  # whose latents are vectors
        assert not found(latent="planes").keys() & OF_TORSO


def test_gumbel_muzero_trusts_its_policy_on_grids() -> None:
    """With a weight of 0.1 it ran in circles from up to a third of the starts of a 5 × 5 grid."""
    grid = Spaces(spaces.Box(0, 255, (5, 5, 2), np.uint8), FEW)
    config = make_config({"algo": "gumbel_muzero", "env_id": "CartPole-v1", "defaults": "environment"})
    assert settled(config, grid).parsed_params().params.c_scale == 0.01


def test_noise_is_not_kept_from_one_player_to_the_other() -> None:
    game = {"algo": "gumbel_muzero", "env_id": "Acrobot-v1", "defaults": "environment", "algo_kwargs": {"players": 2}}
    assert settled(make_config(game), SEEN["vectors"]).parsed_params().params.noise_persistence == 0.0
    with pytest.raises(ConfigError, match="noise_persistence has no effect with players 2"):
        make_config({**game, "algo_kwargs": {"players": 2, "noise_persistence": 0.5}}).parsed_params()


def test_what_the_user_gives_wins_by_any_spelling() -> None:
    found = settled(config_for(clip_range=0.3, num_minibatches=2, learning_rate=1e-3), SEEN["images"])
    assert found.algo_kwargs["clip_coef"] == 0.3
    assert "clip_coef_schedule" not in found.algo_kwargs  # a value that was given as fixed stays so
    assert "learning_rate_schedule" not in found.algo_kwargs
    assert settled(config_for(num_minibatches=2), SEEN["vectors"]).parsed_params().params.batch_size is None


def test_a_preset_states_all_that_it_changes() -> None:
    config = make_config({"algo": "ppo", "env_id": "CartPole-v1"})
    assert settled(config, SEEN["continuous"]) is config


def test_a_dry_run_shows_the_defaults_of_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", "--env", "Pendulum-v1", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["algo_kwargs"]["normalize_obs"] is True


def test_an_agent_takes_the_defaults_of_its_environment_and_keeps_them(tmp_path: Path) -> None:
    agent = PPO("Pendulum-v1", num_envs=2, rollout_steps=32)
    agent.train(64)
    assert agent.config.algo_kwargs["normalize_obs"] is True
    loaded = PPO.load(agent.save(tmp_path / "model"))
    assert loaded.config.algo_kwargs == agent.config.algo_kwargs
    agent.close()
    loaded.close()


def test_the_score_of_an_atari_game_is_not_clipped() -> None:
    pytest.importorskip("ale_py")
    config = make_config({"algo": "ppo", "env_id": "ALE/Pong-v5", "defaults": "environment"})
    assert settled(config, SEEN["images"]).eval_env_kwargs == {"reward_clipping": False}
