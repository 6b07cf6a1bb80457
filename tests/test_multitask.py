"""Several tasks as one set of environments: what each sees, does and is paid, and what a run reports of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from conformance import StopAtCheckpoint, differences, rows_of, train_state, training_rows
from rl_training import PPO
from rl_training.data.fragments import side_by_side
from rl_training.distributed.worker import CollectingWorker, TimedEnvs, to_wire
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.multitask import MultiTaskEnvs
from rl_training.envs.sync import SyncEnvs
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import make_config
from rl_training.runtime.collector import PolicySnapshot
from rl_training.runtime.manager import resume_run
from rl_training.runtime.workflows import evaluate_checkpoint
from support import ScriptedEnv, copied, env_makers

TASKS = ["CartPole-v1", "Acrobot-v1", "rl_training.envs.catch:CatchVector"]


def three_tasks(num_envs: int = 6) -> Any:
    return make_envs(EnvSpec("", tasks=TASKS), num_envs)


def small_run(tmp_path: Path, **changes: Any) -> Any:
    kwargs = {"rollout_steps": 16, "update_epochs": 1, "num_minibatches": 1}
    base = {"algo": "ppo", "tasks": TASKS, "num_envs": 6, "total_timesteps": 600, "eval_episodes": 6}
    return make_config({**base, "output_dir": str(tmp_path), "log_interval": 1, "algo_kwargs": kwargs, **changes})


def test_a_task_sees_its_own_column_and_nothing_else() -> None:
    envs = three_tasks()
    assert envs.tasks == tuple(task for task in TASKS for _ in range(2))
    obs = envs.reset(seed=3)
    alone = gym.make("Acrobot-v1").reset(seed=3 + 2)[0]
    np.testing.assert_array_equal(obs["obs_1"][2], alone)
    assert obs["task"].tolist() == [0, 0, 1, 1, 2, 2]
    assert not obs["obs_0"][2:].any()
    assert not obs["obs_1"][[0, 1, 4, 5]].any()
    assert envs.spaces.observation.contains({name: column[2] for name, column in obs.items()})


def test_tasks_of_one_space_share_a_column() -> None:
    envs = make_envs(EnvSpec("", tasks=["CartPole-v1", "CartPole-v1", "Acrobot-v1"]), 3)
    assert envs.spaces.observation.columns == ("obs_0", "obs_0", "obs_1")


def test_final_observations_and_rewards_go_to_their_environments() -> None:
    """Episodes of two and of three steps, each paying t."""
    makers = [env_makers(lambda n=n: ScriptedEnv(length=n)) for n in (2, 3)]
    envs = MultiTaskEnvs(["short", "long"], [SyncEnvs(group) for group in makers])
    envs.reset(seed=0)
    steps = [copied(envs.step(np.zeros(2, dtype=np.int64))) for _ in range(3)]
    assert [step.rewards.tolist() for step in steps] == [[1, 1], [2, 2], [1, 3]]
    assert [step.final_rows.tolist() for step in steps] == [[], [0], [1]]
    assert steps[1].final_obs["obs_0"].tolist() == [[0, 2]]
    assert steps[2].final_obs["task"].tolist() == [1]


def test_an_action_that_a_task_lacks_counts_from_its_first_again() -> None:
    envs = three_tasks(3)
    envs.reset(seed=0)
    assert envs.spaces.action.n == 3
    beyond = copied(envs.step(np.array([2, 2, 2])))
    envs.reset(seed=0)
    folded = copied(envs.step(np.array([0, 2, 2])))
    np.testing.assert_array_equal(beyond.obs["obs_0"], folded.obs["obs_0"])


def test_a_state_is_the_groups_states() -> None:
    envs, actions = three_tasks(), np.array([0, 1, 0, 1, 0, 1])
    envs.reset(seed=1)
    envs.step(actions)
    assert envs.restorable
    saved = envs.state_dict()
    expected = [copied(envs.step(actions)) for _ in range(20)]
    envs.load_state_dict(saved)
    for step in expected:
        again = envs.step(actions)
        for name in step.obs:
            np.testing.assert_array_equal(again.obs[name], step.obs[name])


def test_a_run_reports_every_task_and_resumes_exactly(tmp_path: Path) -> None:
    config = small_run(tmp_path, checkpoint_interval=300)
    run_dir, whole = train_state(config)
    names = {f"return_mean/{task}" for task in ("CartPole-v1", TASKS[2])}  # an episode of Acrobot takes longer
    assert names <= training_rows(run_dir)[-1].keys()
    assert {f"eval_return_mean/{task}" for task in TASKS} <= rows_of(run_dir)[-1].keys()
    stopped, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(stopped)
    assert differences(whole, load_checkpoint(stopped)) == []
    summary = evaluate_checkpoint(run_dir, episodes=6).summary()
    means = [summary[f"return_mean/{task}"] for task in TASKS]
    assert summary["return_mean"] == pytest.approx(np.mean(means))


def test_a_workers_environments_keep_their_tasks(tmp_path: Path) -> None:
    """The clock that a worker puts on them must not hide which episode is whose."""
    envs = three_tasks()
    assert TimedEnvs(envs).tasks == envs.tasks
    worker = CollectingWorker()
    worker.start(small_run(tmp_path, backend="ray", workers=1), None, num_envs=6, seed=0)
    assert worker.envs.tasks == envs.tasks
    snapshot = PolicySnapshot(0, weights=worker.collector.policy.state_dict())
    fragment, _ = worker.collect(40, to_wire(snapshot))
    worker.close()
    assert {episode.task for episode in side_by_side([fragment]).episodes} == {TASKS[0], TASKS[2]}


def test_a_config_of_tasks_reads_back_as_itself(tmp_path: Path) -> None:
    config = small_run(tmp_path)
    assert config.env_id == "+".join(TASKS)
    assert make_config(config.model_dump()) == config
    with pytest.raises(ConfigError, match="in place of env_id"):
        small_run(tmp_path, env_id="CartPole-v1")


def test_what_cannot_be_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Discrete actions, Pendulum-v1"):
        make_envs(EnvSpec("", tasks=["CartPole-v1", "Pendulum-v1"]), 2)
    with pytest.raises(ConfigError, match="3 tasks need at least"):
        three_tasks(2)


def test_a_managed_agent_takes_tasks_in_place_of_an_environment() -> None:
    agent = PPO(tasks=TASKS[:1] * 2, num_envs=2, rollout_steps=16, update_epochs=1, num_minibatches=1)
    assert agent.config.tasks == TASKS[:1] * 2
    assert agent.evaluate(episodes=2)["return_mean/CartPole-v1"] > 0
