"""Numbers that environments tell in `info` reach the log: means of each episode, and the rate of success."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from conformance import differences, small_config, train_state, training_rows
from rl_training import PPO, evaluate_checkpoint, resume_run
from rl_training.data.fragments import side_by_side, to_fragment
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.infos import columns_in, numbers_in
from rl_training.envs.multitask import MultiTaskEnvs
from rl_training.envs.types import Envs
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.episodes import EpisodeTracker
from rl_training.runtime.evaluation import score_text
from rl_training.runtime.session import Session
from support import HiddenWalk, ProtocolWalk, ScriptedEnv


class TellingEnv(ScriptedEnv):
    """Tells its height, t squared, in each step, its speed in the first one only, and at the end what it has done.

    An episode of three steps has the mean height (1 + 4 + 9) / 3; whether it succeeded is known at its end only. Its
    resets tell a height as well, which is no step's.
    """

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        return super().reset(**kwargs)[0], {"height": 1000.0}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, terminated, truncated, _ = super().step(action)
        info: dict[str, Any] = {"height": np.float32(self.t**2), "name": "x", "frame": np.zeros((2, 2))}
        info["broken"] = np.nan
        if self.t == 1:
            info["speed"] = 7
        done = terminated or truncated
        info["is_success"] = bool(done and self.length == 3)
        if done:
            info["episode"] = {"r": 5.0, "l": self.t}
        return obs, reward, terminated, truncated, info


THREE_STEPS = {"height": 14 / 3, "speed": 7.0, "is_success": 1.0, "r": 5.0, "l": 3.0}
TWO_STEPS = {"height": 5 / 2, "speed": 7.0, "is_success": 0.0, "r": 5.0, "l": 2.0}


def vector_envs(mode: AutoresetMode) -> Envs:
    makers = [lambda: TellingEnv(3), lambda: TellingEnv(2)]
    return make_envs(EnvSpec(SyncVectorEnv(makers, autoreset_mode=mode)), 2)


def two_lengths() -> Any:
    lengths = iter([3, 2])
    return lambda: TellingEnv(next(lengths))


BACKENDS = {
    "sync": lambda: make_envs(EnvSpec(two_lengths()), 2),
    "next step": lambda: vector_envs(AutoresetMode.NEXT_STEP),
    "same step": lambda: vector_envs(AutoresetMode.SAME_STEP),
    "timed": lambda: make_envs(EnvSpec(two_lengths(), step_timeout_s=60), 2),
    "tasks": lambda: MultiTaskEnvs("ab", [make_envs(EnvSpec(lambda n=n: TellingEnv(n)), 1) for n in (3, 2)]),
}


def episodes_of(envs: Envs, steps: int) -> dict[int, list[dict[str, float]]]:
    """What the episodes of each environment told."""
    tracker = EpisodeTracker(envs)
    told: dict[int, list[dict[str, float]]] = {}
    envs.reset(0)
    for _ in range(steps):
        for index, episode in tracker.add(envs.step(np.zeros(envs.num_envs, dtype=np.int64))):
            told.setdefault(index, []).append(dict(episode.infos))
    envs.close()
    return told


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_are_averaged_over_the_steps_of_each_episode_that_told_them(backend: str) -> None:
    told = episodes_of(BACKENDS[backend](), steps=9)
    assert len(told[0]) >= 2
    assert all(episode == pytest.approx(THREE_STEPS) for episode in told[0])
    assert all(episode == pytest.approx(TWO_STEPS) for episode in told[1])


def test_processes_tell_the_same() -> None:
    told = episodes_of(make_envs(EnvSpec(TellingEnv, backend="async"), 2), steps=3)
    assert told[0][0] == told[1][0] == pytest.approx(THREE_STEPS)


@pytest.mark.parametrize("info", [None, {}, np.zeros(3), "text", {"a": "b", 3: None}, {"episode": 4 * [1]}], ids=str)
def test_what_has_no_numbers_tells_nothing(info: Any) -> None:
    assert numbers_in(info) == {}


def test_gymnasiums_own_statistics_of_episodes_are_taken() -> None:
    env = gym.wrappers.RecordEpisodeStatistics(ScriptedEnv())
    told = episodes_of(make_envs(EnvSpec(env), 1), steps=3)[0][0]
    assert (told["r"], told["l"]) == (6.0, 3.0)


def test_the_numbers_of_players_and_of_environments_are_no_quantities() -> None:
    told = {"to_play": 1, "env_id": 3, "height": 2.0}
    assert numbers_in(told) == {"height": 2.0}
    columns = {key: np.full(2, value) for key, value in told.items()}
    assert [list(numbers) for _, numbers in columns_in(columns, np.ones(2, dtype=bool))] == [["height"]]


def test_metrics_and_evaluations_have_the_means_and_the_rate_of_success(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, backend="auto")
    run, _ = train_state(config, env=TellingEnv)
    row = training_rows(run)[-1]
    assert row["info/height"] == pytest.approx(14 / 3)
    assert row["success_rate"] == 1.0
    evaluation = evaluate_checkpoint(run, env=TellingEnv, episodes=3)
    assert evaluation.row()["eval_success_rate"] == 1.0
    assert evaluation.row()["eval_info/height"] == pytest.approx(14 / 3)
    assert "success 100%" in score_text(evaluation.summary())


def test_rollouts_from_other_processes_bring_it_along(tmp_path: Path) -> None:
    with closing(Session(small_config("ppo", tmp_path, backend="auto"), env=TellingEnv)) as session:
        rollout = session.collect()
    assert dict(rollout.episodes[0].infos) == pytest.approx(THREE_STEPS)
    assert side_by_side([to_fragment(rollout)]).episodes == rollout.episodes


def test_an_agent_reports_the_rate_of_success() -> None:
    lengths = iter([3, 2] * 100)
    agent = PPO(lambda: TellingEnv(next(lengths)), num_envs=2, rollout_steps=8, num_minibatches=1, eval_episodes=2)
    assert agent.train(32).summary()["success_rate"] == 0.5
    assert agent.evaluate(episodes=4)["success_rate"] == 0.5


class TellingWalk(ProtocolWalk):
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return *super().step(action)[:4], {"position": self.position}


def test_resume_is_exact_in_the_middle_of_episodes_that_tell(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, backend="auto")
    whole = train_state(config.model_copy(update={"total_timesteps": 384}), env=TellingWalk)[1]
    half, state = train_state(config, env=TellingWalk)
    assert state["collector"]["infos"]["position"]["count"].any()
    resume_run(half, total_timesteps=384, stretch_schedules=True, env=TellingWalk)
    assert differences(load_checkpoint(half), whole) == []


def test_environments_that_tell_nothing_cost_nothing() -> None:
    envs = make_envs(EnvSpec(HiddenWalk), 2)
    envs.reset(0)
    assert envs.step(np.zeros(2, dtype=np.int64)).infos == ()
