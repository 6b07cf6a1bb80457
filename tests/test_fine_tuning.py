"""A new run may start from another's policy, and an old one may go on from any of its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance import SMALL, differences, rows_of, small_config, train_state
from rl_training import PPO
from rl_training.cli import main
from rl_training.errors import CheckpointError
from rl_training.experiment.checkpointing import CheckpointStore, load_checkpoint, save_tree
from rl_training.experiment.registry import REGISTRY
from rl_training.runtime.fine_tuning import start_from
from rl_training.runtime.session import Session
from support import ContextualBandit


@pytest.mark.parametrize("algo", [algo for algo in REGISTRY if algo in SMALL])
def test_a_session_starts_with_what_another_has_learned_and_with_nothing_else(algo: str, tmp_path: Path) -> None:
    run, source = train_state(small_config(algo, tmp_path, total_timesteps=128))
    session = Session(small_config(algo, tmp_path, seed=1))
    fresh = Session(small_config(algo, tmp_path, seed=1)).learner.state_dict()
    start_from(session, run)
    learned, now = source["learner"], session.learner.state_dict()
    assert differences(now["algorithm"]["policy"], learned["algorithm"]["policy"]) == []
    for name in ("target", "slow_critic"):
        if name in now["algorithm"]:
            assert differences(now["algorithm"][name]["network"], learned["algorithm"][name]["network"]) == []
    assert differences(now["rng"], fresh["rng"]) == []
    assert session.progress.global_step == 0
    assert _moments(session) == 0.0
    session.close()


def _moments(session: Session) -> float:
    """The sum of all numbers that the optimizer has gathered."""
    states = session.learner.algorithm.optimizer.state_dict()
    tensors = [leaf for leaf in _leaves(states) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    return float(sum(leaf.abs().sum() for leaf in tensors))


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for key, child in tree.items() if key != "params" for leaf in _leaves(child)]
    return [leaf for child in tree for leaf in _leaves(child)] if isinstance(tree, list) else [tree]


def test_normalisers_come_along(tmp_path: Path) -> None:
    keys = {"normalize_obs": True, "normalize_reward": True}
    run, source = train_state(small_config("ppo", tmp_path, algo_kwargs=keys))
    session = Session(small_config("ppo", tmp_path, algo_kwargs=keys))
    start_from(session, run)
    now = session.learner.state_dict()
    assert now["reward_normalizer"]["stats.var"] == source["learner"]["reward_normalizer"]["stats.var"] != 1.0
    assert session.learner.reward_normalizer.traces == {}  # its episodes are not ours
    session.close()


def test_another_algorithm_may_start_from_the_policy(tmp_path: Path) -> None:
    run, source = train_state(small_config("ppo", tmp_path))
    session = Session(small_config("appo", tmp_path))
    start_from(session, run)
    policy = source["learner"]["algorithm"]["policy"]
    algorithm = session.learner.algorithm.state_dict()
    assert differences(algorithm["policy"], policy) == []
    assert differences(algorithm["target"]["network"], policy) == []
    session.close()


def test_the_command_line_starts_a_run_from_the_best_checkpoint_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = train_state(small_config("ppo", tmp_path, eval_interval=64, checkpoint_interval=64))
    store = CheckpointStore(run)
    store.mark_best(store.steps()[0])
    command = ["train", "ppo", "--env", "CartPole-v0", "--init-from", str(run), "--checkpoint", "best", "--json"]
    small = ["--num-envs", "3", "--total-timesteps", "24", "--display", "none", "--output-dir", str(tmp_path)]
    frozen = ["--set", "learning_rate=1e-30", "--set", "rollout_steps=8", "--set", "num_minibatches=1"]
    assert main([*command, *small, *frozen]) == 0
    new = load_checkpoint(Path(json.loads(capsys.readouterr().out)["run_dir"]))
    best, latest = (load_checkpoint(run, which) for which in ("best", "latest"))
    policies = [state["learner"]["algorithm"]["policy"] for state in (new, best, latest)]
    weights = [torch.cat([tensor.flatten() for tensor in policy.values()]) for policy in policies]
    torch.testing.assert_close(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert new["progress"]["global_step"] < 64
    assert new["config"]["init_from"] == str(run)


def test_a_managed_agent_starts_from_a_saved_one(tmp_path: Path) -> None:
    first = PPO("CartPole-v1", num_envs=2, seed=1)
    path = first.save(tmp_path / "model")
    second = PPO("CartPole-v1", num_envs=2, seed=2, init_from=path, learning_rate=1e-4)
    assert differences(dict(first.policy.state_dict()), dict(second.policy.state_dict())) == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"env": ContextualBandit}, "has other spaces"),
        ({"env": "CartPole-v1", "hidden_sizes": [3]}, "does not fit"),
        ({"env": "CartPole-v1", "init_checkpoint": "best"}, "no checkpoint 'best'"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(keys: dict[str, Any], told: str, tmp_path: Path) -> None:
    run, _ = train_state(small_config("ppo", tmp_path, eval_episodes=0))
    with pytest.raises(CheckpointError, match=told):
        PPO(keys.pop("env"), num_envs=2, init_from=run, **keys)


def test_a_received_run_to_start_from_imports_nothing(tmp_path: Path) -> None:
    state = load_checkpoint(PPO("CartPole-v1", num_envs=2).save(tmp_path / "model"))
    state["config"] |= {"env_id": "no.such.module:make", "wrappers": ["no.such.module:wrap"]}
    save_tree(tmp_path / "received", state)
    PPO("CartPole-v1", num_envs=2, init_from=tmp_path / "received")


def test_resume_goes_on_from_the_checkpoint_that_is_chosen(tmp_path: Path) -> None:
    run, state = train_state(small_config("ppo", tmp_path, backend="sync", checkpoint_interval=64))
    first = CheckpointStore(run).steps()[0]
    assert main(["resume", str(run), "--checkpoint", str(first), "--total-timesteps", "128", "--display", "none"]) == 0
    assert load_checkpoint(run)["progress"]["global_step"] == 128 < state["progress"]["global_step"]
    assert max(row["global_step"] for row in rows_of(run)) == 128
    assert main(["resume", str(run), "--total-timesteps", "256", "--stretch-schedules", "--display", "none"]) == 0
    differing = differences(load_checkpoint(run), state)
    assert not [name for name in differing if not name.startswith("/config")]
