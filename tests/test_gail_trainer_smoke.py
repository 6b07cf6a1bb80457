"""GAIL in training: schedules, demonstrations from a run, and what happens without any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows
from rl_training.cli import main
from rl_training.data.demonstrations import FORMAT, Demonstrations, load_demonstrations
from rl_training.errors import ConfigError
from rl_training.runtime.manager import train_run
from support import DictEnv, IdentityImageEnv


@pytest.mark.parametrize(("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("gail", control, tmp_path, start=start, end=end)


def test_without_demonstrations_it_says_how_to_record_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rl-training record-demos"):
        train_run(small_config("gail", tmp_path, algo_kwargs={"demonstrations": None}))
    with pytest.raises(ConfigError, match=r"no demonstrations at 'nowhere'.*record-demos"):
        train_run(small_config("gail", tmp_path, algo_kwargs={"demonstrations": "nowhere"}))


def test_demonstrations_recorded_from_a_run_are_whole_episodes_and_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, _ = train_state(small_config("ppo", tmp_path))
    capsys.readouterr()
    output = str(tmp_path / "demos.safetensors")
    assert main(["record-demos", str(run_dir), "--episodes", "3", "--output", output, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    demos = load_demonstrations(output)
    assert answer["episodes"] == len(demos.episode_returns) == 3
    assert len(demos) == sum(demos.episode_returns)  # CartPole pays 1 a step
    assert bool((demos.terminated | demos.truncated)[-1])
    trained, _ = train_state(small_config("gail", tmp_path, algo_kwargs={"demonstrations": output}))
    assert 0 <= training_rows(trained)[-1]["expert_accuracy"] <= 1


def test_behaviour_cloning_is_a_warm_start_and_a_baseline(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("gail", tmp_path, algo_kwargs={"clone_updates": 100, "learning_rate": 0.003}))
    rows = training_rows(run_dir)
    assert rows[0]["bc_loss"] < 0.6  # two actions: ln 2 = 0.693 before
    assert "bc_loss" not in rows[1]
    assert rows[0]["expert_nll"] < 0.6


def test_demonstrations_of_mappings_survive_a_file(tmp_path: Path) -> None:
    from rl_training import PPO
    from rl_training.tools.demonstrations import record_demonstrations

    agent = PPO(DictEnv, num_envs=2, rollout_steps=16)
    demos = record_demonstrations(agent._session, episodes=3, seed=1)
    demos.save(tmp_path / "demos.safetensors")
    again = load_demonstrations(str(tmp_path / "demos.safetensors"))
    assert again.obs.keys() == demos.obs.keys()
    assert all(torch.equal(again.obs[key], demos.obs[key]) for key in demos.obs)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(ConfigError, match="not a file of demonstrations"):
        load_demonstrations(str(tmp_path / "x.safetensors"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_minari_dataset_is_read_without_its_final_observations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=episode,
            observations=np.full((length + 1, 4), episode, dtype=np.float32),
            actions=np.ones(length, dtype=np.int64),
            rewards=[1.0] * length,
            terminations=[False] * (length - 1) + [True],
            truncations=[False] * length,
        )
        for episode, length in enumerate((3, 5))
    ]
    minari.create_dataset_from_buffers("test/cartpole-v0", buffer=buffers, env=gym.make("CartPole-v1"))
    demos = load_demonstrations("minari:test/cartpole-v0")
    assert demos.episode_returns == [3.0, 5.0]
    assert demos.obs[:, 0].tolist() == [0.0] * 3 + [1.0] * 5
    assert demos.env_id == "CartPole-v1"
    with pytest.raises(ConfigError, match="no Minari dataset"):
        load_demonstrations("minari:test/none-v0")


# ---- demonstrations that do not fit


def demos_like(rows: int = 10, **changes: Any) -> Demonstrations:
    """Some rows of CartPole, but for the changes."""
    ends = torch.zeros(2, rows, dtype=torch.bool)
    columns = {
        "obs": torch.zeros(rows, 4),
        "actions": torch.ones(rows, dtype=torch.int64),
        "rewards": torch.ones(rows),
        "terminated": ends[0].clone(),
        "truncated": ends[1].clone(),
        "env_id": "CartPole-v1",
    }
    return Demonstrations(**{**columns, **changes})


@pytest.mark.parametrize(
    ("demos", "problem"),
    [
        (demos_like(env_id="Acrobot-v1"), "of 'Acrobot-v1', and the run's environment is 'CartPole-v1'; record"),
        (demos_like(obs=torch.zeros(10, 3)), r"observations have shape \(3,\), and the environment's \(4,\)"),
        (demos_like(obs={"x": torch.zeros(10, 4)}), "observations are a mapping with the keys x"),
        (demos_like(actions=torch.ones(10, 1)), r"actions have shape \(1,\), not those of Discrete\(2\)"),
        (demos_like(actions=torch.arange(10)), r"actions lie between 0 and 9, outside of Discrete\(2\)"),
        (demos_like(actions=-torch.ones(10, dtype=torch.int64)), "actions lie between -1 and -1, outside"),
        (demos_like(obs=torch.full((10, 4), float("nan"))), "not finite"),
        (demos_like(rows=0), "empty"),
        (demos_like(rewards=torch.ones(9)), "rewards has 9 rows and actions 10"),
    ],
    ids=["another env", "shape", "mapping", "action shape", "too high", "too low", "nan", "empty", "unequal"],
)
def test_demonstrations_that_do_not_fit_are_refused_by_name(
    demos: Demonstrations, problem: str, tmp_path: Path
) -> None:
    demos.save(tmp_path / "expert.safetensors")
    config = small_config("gail", tmp_path, algo_kwargs={"demonstrations": str(tmp_path / "expert.safetensors")})
    with pytest.raises(ConfigError, match=f"expert.safetensors.*{problem}"):
        train_run(config)


def test_demonstrations_of_another_version_or_of_no_named_environment_are_taken(tmp_path: Path) -> None:
    for env_id in ("CartPole-v0", "", "my.module:make_cartpole"):
        demos_like(env_id=env_id).save(tmp_path / "expert.safetensors")
        kwargs = {"demonstrations": str(tmp_path / "expert.safetensors")}
        train_run(small_config("gail", tmp_path, total_timesteps=64, eval_episodes=0, algo_kwargs=kwargs))


def test_a_file_without_a_column_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {"obs": torch.zeros(3, 4), "actions": torch.zeros(3, dtype=torch.int64)}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": FORMAT})
    with pytest.raises(ConfigError, match="has no rewards, terminated, truncated"):
        load_demonstrations(str(tmp_path / "x.safetensors"))


def test_pictures_are_imitated_without_hidden_layers(tmp_path: Path) -> None:
    from rl_training import GAIL, PPO
    from rl_training.tools.demonstrations import record_demonstrations

    path = tmp_path / "expert.safetensors"
    record_demonstrations(PPO(IdentityImageEnv, threads=1)._session, episodes=2, seed=1).save(path)
    small = {"num_envs": 2, "rollout_steps": 8, "discriminator_batch": 8, "eval_episodes": 0, "threads": 1}
    agent = GAIL(IdentityImageEnv, hidden_sizes=[], demonstrations=str(path), **small)
    assert agent.train(16).global_step == 16
