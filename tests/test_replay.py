"""The replay: what a row is, which windows there are, and that a checkpoint holds all of it and no more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.data.arrivals import arrivals
from rl_training.data.replay import StreamReplay
from rl_training.data.rollout import Rollout
from rl_training.data.trees import tree_leaves
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import ActorCritic
from rl_training.runtime.collector import LocalCollector
from support import ScriptedDictEnv, ScriptedEnv, policy_options


def rollouts(env: Callable[[], gym.Env], *lengths: int, num_envs: int = 1, backend: Any = "sync") -> list[Rollout]:
    envs = make_envs(EnvSpec(env, {}, (), backend), num_envs)
    collector = LocalCollector(envs, ActorCritic(Spaces(*envs.spaces), policy_options()), seed=0)
    # A copy, since the collector uses its buffers again.
    return [copy.deepcopy(collector.collect(length)) for length in lengths]


def filled(env: Callable[[], gym.Env], *lengths: int, capacity: int = 100, **options: Any) -> StreamReplay:
    replay = StreamReplay(capacity, options.get("num_envs", 1))
    for rollout in rollouts(env, *lengths, **options):
        replay.add(rollout)
    return replay


def whole(replay: StreamReplay) -> dict[str, Any]:
    """The only stream, as a window that has all of it."""
    return {
        name: value.squeeze(1)
        for name, value in replay.sample(1, len(replay), np.random.default_rng(0)).items()
        if isinstance(value, torch.Tensor)
    }


def terminating() -> gym.Env:
    return ScriptedEnv(length=3, terminates=True)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_the_final_observation_is_a_row_of_its_own(backend: str) -> None:
    """Observations are [episode, t], rewards t; three steps to an episode.

    `sync` hands the final observation over beside the rollout, `async` in the row in which the environment resets.
    """
    steps = 5 if backend == "sync" else 6
    rows = whole(filled(terminating, steps, backend=backend))
    assert rows["obs"].tolist()[:6] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
    assert rows["rewards"].tolist()[:6] == [1, 2, 3, 0, 1, 2]
    assert rows["terminated"].tolist()[:6] == [False, False, True, False, False, False]
    assert rows["is_first"].tolist()[:6] == [True, False, False, False, True, False]
    assert rows["is_last"].tolist()[:6] == [False, False, False, True, False, False]
    assert rows["actions"][3] == 0
    assert not rows["truncated"].any()


def test_cutting_a_stream_into_rollouts_leaves_no_trace() -> None:
    once, often = whole(filled(terminating, 12)), whole(filled(terminating, 1, 4, 2, 5))
    assert all(torch.equal(once[name], often[name]) for name in once)


@pytest.mark.parametrize("terminates", [True, False])
def test_arrivals_by_hand(terminates: bool) -> None:
    """A reward belongs to the observation it came with; only a termination is terminal, a time limit is not."""
    window = filled(lambda: ScriptedEnv(3, terminates), 5).sample(1, 6, np.random.default_rng(0))
    assert window["obs"][:, 0].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
    batch = arrivals(window)
    assert batch["obs"][:, 0].tolist() == [[0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
    assert batch["rewards"][:, 0].tolist() == [1, 2, 3, 0, 1]
    assert batch["terminal"][:, 0].tolist() == [False, False, terminates, False, False]
    assert batch["is_first"][:, 0].tolist() == [True, False, False, True, False]  # a window begins anew
    assert batch["is_last"][:, 0].tolist() == [False, False, True, False, False]
    assert torch.equal(batch["previous_actions"], window["actions"][:-1])


def test_an_episode_that_a_restart_cut_off_passes_nothing_on() -> None:
    """Two rollouts that both begin with a reset: the reward before the second start led to nobody."""
    first, second = rollouts(terminating, 2)[0], rollouts(terminating, 2)[0]
    replay = StreamReplay(100, 1)
    replay.add(first)
    replay.add(second)
    batch = arrivals(replay.sample(1, 4, np.random.default_rng(0)))
    # Rows [0, 0], [0, 1] | [0, 0], [0, 1]: the reward 2 of the second row has no observation.
    assert batch["rewards"][:, 0].tolist() == [1, 0, 1]
    assert batch["is_first"][:, 0].tolist() == [True, True, False]
    assert batch["is_last"][:, 0].tolist() == [True, False, False]


def test_windows_are_uniform_over_streams_and_never_wrap_around() -> None:
    """Two streams, twenty places each, of thirty rows: 2 × (20 − 3 + 1) = 36 windows, the oldest rows gone."""
    replay = filled(lambda: ScriptedEnv(length=1000), 15, 15, num_envs=2, capacity=40)
    assert len(replay) == 40
    assert replay.num_windows(3) == 36
    begins = replay.sample(36_000, 3, np.random.default_rng(0))["obs"][:, :, 1]
    assert torch.equal(begins[1:], begins[:-1] + 1)
    counts = begins[0].long().bincount()
    assert counts[:10].sum() == 0
    assert len(counts) == 28
    assert counts[10:].float().sub(2000).abs().max() < 5 * 2000**0.5


def test_too_short_a_stream_is_refused() -> None:
    replay = filled(terminating, 3)
    assert replay.num_windows(10) == 0
    with pytest.raises(ValueError, match="10 rows"):
        replay.sample(1, 10, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="cannot hold a rollout of 8 steps"):
        filled(terminating, 8, capacity=6)


def test_mappings_keep_their_dtypes_and_their_keys() -> None:
    window = filled(ScriptedDictEnv, 9).sample(2, 4, np.random.default_rng(0))
    assert window["obs"].keys() == {"episode", "t"}
    assert window["obs"]["episode"].dtype == torch.int64
    assert window["obs"]["t"].shape == (4, 2, 2)


def test_a_checkpoint_holds_what_is_filled_and_gives_the_same_windows() -> None:
    replay = filled(lambda: ScriptedEnv(length=4), 5, 5, num_envs=2, capacity=10**6)
    state = replay.state_dict()
    assert all(len(leaf) == len(replay) for leaf in tree_leaves(state["columns"]))
    _assert_equal_twin(replay, state, capacity=10**6)


def test_a_checkpoint_of_a_ring_that_has_turned_begins_with_the_oldest() -> None:
    replay = filled(lambda: ScriptedEnv(length=4), 9, 9, num_envs=2, capacity=24)
    assert len(replay) == 24
    _assert_equal_twin(replay, replay.state_dict(), capacity=24)


def _assert_equal_twin(replay: StreamReplay, state: dict[str, Any], *, capacity: int) -> None:
    """The same windows, also after the same rollouts more."""
    twin = StreamReplay(capacity, 2)
    twin.load_state_dict(state)
    more = rollouts(lambda: ScriptedEnv(length=4), 3, num_envs=2)[0]
    for _ in range(2):
        a, b = (r.sample(8, 3, np.random.default_rng(7)) for r in (replay, twin))
        assert all(torch.equal(a[name], b[name]) for name in a)
        replay.add(more)
        twin.add(more)


def test_an_empty_replay_has_a_state_too() -> None:
    twin = StreamReplay(10, 2)
    twin.load_state_dict(StreamReplay(10, 2).state_dict())
    assert len(twin) == 0
