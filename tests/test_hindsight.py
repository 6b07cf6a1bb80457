"""Hindsight experience replay: which goals replayed transitions get, what these pay, and that it learns and resumes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from conformance import StopAtCheckpoint, differences, small_config, train_state, training_rows
from goal_envs import BitFlip, GoalEnv, PointReach
from probing import probed
from rl_training.data.hindsight import Hindsight
from rl_training.data.replay import StreamReplay
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.goals import GoalRewards
from rl_training.errors import ConfigError, EnvironmentFault
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import resume_run
from rl_training.runtime.session import Session
from support import IdentityEnv, ScriptedEnv
from test_replay import filled

# ---- where episodes end


def ends(replay: StreamReplay, *rows: tuple[int, int]) -> list[int]:
    streams, places = np.array(rows).T
    return replay.episode_ends((streams, places)).tolist()


def test_an_episode_ends_with_its_final_observation_or_with_the_newest_row() -> None:
    """Three steps to an episode, whose end is a row of its own: rows 0–3, 4–7, and one at 8 that goes on."""
    replay = filled(partial(ScriptedEnv, length=3), 7, num_envs=2)
    assert ends(replay, (0, 0), (0, 2), (1, 3), (1, 4), (0, 7), (1, 8)) == [3, 3, 3, 7, 7, 8]


def test_the_end_is_found_after_the_ring_has_turned_and_in_a_restored_replay() -> None:
    """Ten steps in a ring of six rows: rows 7–12 are left, and episodes end at 7, 11 and after 12."""
    replay = filled(partial(ScriptedEnv, length=3), 4, 4, 2, capacity=6)
    again = StreamReplay(6, 1)
    again.load_state_dict(replay.state_dict())
    for found in (replay, again):
        assert ends(found, (0, 7), (0, 8), (0, 10), (0, 12)) == [7, 11, 11, 12]


# ---- goals and what they pay


def played(env: type[GoalEnv], steps: int = 60) -> tuple[StreamReplay, GoalRewards]:
    return filled(env, steps, num_envs=2, capacity=1_000), GoalRewards(EnvSpec(env))


def hindsight(replay: StreamReplay, goals: GoalRewards) -> Hindsight:
    return Hindsight(replay, goals.rewards, goals.terminated if goals.ends_episodes else None)


@pytest.mark.parametrize("env", [BitFlip, PointReach])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_relabelled_rewards_are_those_of_the_environment(env: type[GoalEnv], n_steps: int) -> None:
    replay, goals = played(env)
    rng = np.random.default_rng(0)
    rows, _ = replay.draw_transitions(400, rng)
    found = hindsight(replay, goals).transitions(rows, n_steps=n_steps, gamma=0.5, ratio=1.0, rng=rng)
    assert (found["obs"]["desired_goal"] == found["next_obs"]["desired_goal"]).all()
    judge = env()
    for index, (stream, place) in enumerate(zip(*rows, strict=True)):
        goal, total, discount = found["obs"]["desired_goal"][index], 0.0, 1.0
        last = int(ends(replay, (stream, place))[0])
        assert goal.tolist() in replay.column("obs", later(stream, place, last))["achieved_goal"].tolist()
        for achieved in replay.column("obs", later(stream, place, min(last, place + n_steps)))["achieved_goal"]:
            total += discount * judge.compute_reward(achieved.astype(goal.dtype), goal, {})
            discount *= 0.5
            if isinstance(judge, BitFlip) and judge.is_reached(achieved, goal):
                discount = 0.0
                break
        assert found["rewards"][index] == pytest.approx(total, abs=1e-6)
        assert found["discounts"][index] == pytest.approx(discount)


def later(stream: int, place: int, last: int) -> Any:
    places = np.arange(place + 1, last + 1)
    return np.full_like(places, stream), places


def test_later_goals_are_all_equally_likely() -> None:
    """The first row of an episode of ten steps has ten rows after it."""
    replay, goals = played(PointReach)
    rows = (np.zeros(4_000, dtype=np.int64), np.zeros(4_000, dtype=np.int64))
    _, places = hindsight(replay, goals).later(rows, np.random.default_rng(0))
    assert places.min() == 1
    np.testing.assert_allclose(np.bincount(places)[1:] / 4_000, 1 / PointReach.steps, atol=0.012)


def test_only_the_asked_share_is_relabelled_and_the_rest_is_as_it_was() -> None:
    replay, goals = played(PointReach)
    rng = np.random.default_rng(0)
    rows, _ = replay.draw_transitions(2_000, rng)
    plain = replay.transitions(rows, n_steps=1, gamma=0.9)
    found = hindsight(replay, goals).transitions(rows, n_steps=1, gamma=0.9, ratio=0.8, rng=rng)
    other = (found["obs"]["desired_goal"] != plain["obs"]["desired_goal"]).any(-1)
    assert other.mean() == pytest.approx(0.8, abs=0.03)
    for name in ("rewards", "discounts", "actions"):
        np.testing.assert_array_equal(found[name][~other], plain[name][~other])
    np.testing.assert_array_equal(found["obs"]["observation"], plain["obs"]["observation"])


# ---- training

QUICK: dict[str, Any] = {"learning_starts": 200, "her_ratio": 0.8, "batch_size": 64, "replay_ratio": 0.5}
POINT = {"hidden_sizes": [64, 64], "learning_rate": 2e-3, "gamma": 0.9, "random_steps": 200}
LEARNERS: dict[str, dict[str, Any]] = {
    "dqn": {"hidden_sizes": [256], "tau": 0.05, "target_update_interval": 1, "epsilon": 0.2},
    "sac": {**POINT, "ent_coef": 0.02},
    "td3": {**POINT, "learning_rate": 1e-3, "exploration_noise": 0.3, "target_noise": 0.1, "tau": 0.02},
}


@pytest.mark.parametrize(("algo", "env"), [("dqn", BitFlip), ("sac", PointReach), ("td3", PointReach)])
def test_goals_are_reached_that_are_hardly_ever_met_by_chance(algo: str, env: type[GoalEnv]) -> None:
    session = probed(algo, env, 2_500, **QUICK, **LEARNERS[algo])
    assert session.evaluate(50).summary()["success_rate"] >= 0.9


@pytest.mark.parametrize(("algo", "env"), [("dqn", "BitFlip"), ("sac", "PointReach"), ("td3", "PointReach")])
def test_a_resumed_run_relabels_as_the_uninterrupted_one(algo: str, env: str, tmp_path: Path) -> None:
    share = {"her_ratio": 0.5, "n_steps": 2}
    config = small_config(
        algo, tmp_path, env_id=f"goal_envs:{env}", wrappers=[], checkpoint_interval=128, algo_kwargs=share
    )
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_the_share_may_follow_a_schedule(tmp_path: Path) -> None:
    moving = {"her_ratio_schedule": {"kind": "linear", "start": 1.0, "end": 0.0}}
    run_dir, _ = train_state(small_config("dqn", tmp_path, env_id="goal_envs:BitFlip", algo_kwargs=moving))
    shares = [row["her_ratio"] for row in training_rows(run_dir)]
    assert shares[0] > 0.5 > shares[-1]


# ---- what is refused


def opened(env: Any, **changes: Any) -> Session:
    return probed("dqn", env, 64, her_ratio=0.5, **changes)


def test_observations_without_goals_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"her_ratio has no effect on observations without achieved_goal"):
        opened(IdentityEnv)


def test_a_goal_environment_that_pays_by_no_function_is_refused() -> None:
    class Silent(BitFlip):
        compute_reward = None

        def step(self, action: Any) -> Any:
            return self._obs(), 0.0, False, False, {}

        def __getattribute__(self, name: str) -> Any:
            if name == "compute_reward":
                raise AttributeError(name)
            return super().__getattribute__(name)

    with pytest.raises(ConfigError, match=r"Silent has no compute_reward\(achieved_goal, desired_goal, info\)"):
        opened(Silent)


def test_wrappers_that_change_the_reward_are_refused() -> None:
    def halved() -> gym.Env:
        return gym.wrappers.TransformReward(BitFlip(), lambda paid: 0.5 * paid)

    with pytest.raises(ConfigError, match=r"paid -0.5, and compute_reward says -1; leave out wrappers that change"):
        opened(halved)


def test_a_function_that_takes_one_goal_only_is_refused_with_the_shape_it_needs() -> None:
    class Single(BitFlip):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return float((achieved == desired).all()) - 1.0

    with pytest.raises(EnvironmentFault, match=r"answers 2 goals with shape \(\); it has to take goals \[N"):
        opened(Single)


def test_a_function_that_fails_is_named() -> None:
    class Broken(BitFlip):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return super().compute_reward(achieved, desired, info) if achieved.ndim == 1 else info["contact"]

    with pytest.raises(EnvironmentFault, match=r"compute_reward of .*Broken failed: KeyError"):
        opened(Broken)


# ---- EnvPool's Fetch


@pytest.mark.parametrize("name", ["FetchReach-v4", "FetchReachDense-v4"])
def test_fetch_through_envpool_pays_by_the_rule_that_hindsight_asks(name: str) -> None:
    pytest.importorskip("envpool")
    spec = EnvSpec(f"envpool/{name}")
    goals, envs = GoalRewards(spec), make_envs(spec, 8)
    obs, paid, said = envs.reset(0), [], []
    for _ in range(20):
        way = obs["desired_goal"] - obs["achieved_goal"]
        step = envs.step(np.pad(10.0 * way, ((0, 0), (0, 1))).clip(-1, 1).astype(np.float32))
        obs = step.obs
        paid.append(step.rewards)
        said.append(goals.rewards(obs["achieved_goal"], obs["desired_goal"]))
    assert paid[0].max() < -0.05 < paid[-1].max()  # the arm came to its goal
    np.testing.assert_allclose(said, paid, atol=1e-5)
    envs.close()


def test_fetch_through_envpool_tells_whether_it_succeeded() -> None:
    pytest.importorskip("envpool")
    session = probed("sac", "envpool/FetchReach-v4", 128, her_ratio=0.8, learning_starts=64, batch_size=16)
    assert 0.0 <= session.evaluate(4).summary()["success_rate"] <= 1.0


def test_goals_of_envpool_whose_rule_is_not_known_are_refused() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(ConfigError, match="only Fetch's can say what a goal pays, not envpool/HandManipulateEgg"):
        probed("sac", "envpool/HandManipulateEgg-v1", 64, her_ratio=0.5)
