"""Rollouts of several collectors, side by side, are one rollout."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conformance import small_config
from rl_training.data.fragments import side_by_side, to_fragment
from rl_training.data.rollout import Rollout
from rl_training.data.trees import tree_leaves, tree_map
from rl_training.distributed.overlap import Overlap
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import ActorCritic
from rl_training.runtime.collector import LocalCollector, PolicySnapshot
from support import ScriptedDictEnv, ScriptedEnv, policy_options


def rollout_of(env: type, num_envs: int, *, source: int, version: int, backend: str = "sync") -> Rollout:
    envs = make_envs(EnvSpec(env, {}, (), backend), num_envs)  # type: ignore[arg-type]
    collector = LocalCollector(envs, ActorCritic(Spaces(*envs.spaces), policy_options()), seed=source, source=source)
    collector.publish(PolicySnapshot(version))
    return collector.collect(7)


def assert_same(first: Rollout, second: Rollout) -> None:
    for name in vars(first):
        for a, b in zip(tree_leaves(getattr(first, name)), tree_leaves(getattr(second, name)), strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, name


@pytest.mark.parametrize("env", [ScriptedEnv, ScriptedDictEnv])
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_fragment_by_itself_is_the_rollout_again(env: type, backend: str) -> None:
    rollout = rollout_of(env, 2, source=1, version=5, backend=backend)
    assert_same(side_by_side([to_fragment(rollout)]), rollout)


def of_envs(rollout: Rollout, chosen: list[int]) -> Rollout:
    """The rollout of some neighbouring environments only; finished episodes stay counted."""
    ended = torch.isin(rollout.final_rows[:, 1], torch.tensor(chosen))
    by_time = {
        f.name: tree_map(lambda leaf: leaf[:, chosen], getattr(rollout, f.name))
        for f in fields(rollout)
        if f.name not in ("last_obs", "final_rows", "final_obs", "episodes", "source")
    }
    return replace(
        rollout,
        **by_time,
        last_obs=tree_map(lambda leaf: leaf[chosen], rollout.last_obs),
        final_rows=rollout.final_rows[ended] - torch.tensor([0, chosen[0]]),
        final_obs=tree_map(lambda leaf: leaf[ended], rollout.final_obs),
    )


@pytest.mark.parametrize("env", [ScriptedEnv, ScriptedDictEnv])
def test_each_collectors_environments_are_found_again(env: type) -> None:
    left, right = rollout_of(env, 2, source=0, version=3), rollout_of(env, 3, source=1, version=4)
    joined = side_by_side([to_fragment(left), to_fragment(right)])
    assert joined.episodes == left.episodes + right.episodes
    assert joined.policy_version[0].tolist() == [3, 3, 4, 4, 4]
    for part, chosen in ((left, [0, 1]), (right, [2, 3, 4])):
        expected = replace(part, episodes=joined.episodes, source=joined.source)
        assert_same(of_envs(joined, chosen), expected)


def test_what_lies_in_read_only_memory_can_be_written_to_afterwards() -> None:
    fragment = to_fragment(rollout_of(ScriptedEnv, 2, source=0, version=0))
    fragment["rewards"] = np.array(fragment["rewards"])
    fragment["rewards"].setflags(write=False)
    side_by_side([fragment]).rewards.add_(1)


def test_overlap_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Learning lasts from 1 to 4 and from 5 to 7. One of two workers collects from 0 to 3, the other from 2 to 6:
    # they share 2 s and 2 + 1 s with the learner's 5 s. The learner waits for 1 s + 1 s.
    times = iter([0.0, 1.0, 4.0, 5.0, 7.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    overlap = Overlap(num_workers=2)
    for _ in range(2):
        overlap.stop_learning()
        overlap.start_learning()
    overlap.stop_learning()
    overlap.add_work(0.0, 3.0)
    overlap.add_work(2.0, 6.0)
    assert overlap.flush() == pytest.approx({"overlap": 5 / (2 * 5), "waiting_share": 2 / 7})
    assert overlap.flush() == {}


@pytest.mark.parametrize(
    ("algo", "options", "problem"),
    [
        ("ppo", {"workers": 3, "num_envs": 4}, "num_envs: 4 cannot be shared evenly by 3 workers"),
        ("ppo", {"ray_mode": "async"}, "ray_mode: ppo cannot learn from the data of older policies; use sync"),
        ("dreamer", {"learners": 2}, "learners: dreamer cannot share its updates; use 1"),
    ],
)
def test_what_workers_cannot_do_is_refused(tmp_path: Path, algo: str, options: dict, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        small_config(algo, tmp_path, backend="ray", **options)
