"""Drawing from the replay: n-step transitions by hand, priorities by their definition, updates for steps."""

from __future__ import annotations

import copy
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import small_config, train_state
from rl_training.data.priorities import Priorities
from rl_training.data.ratio import Ratio
from rl_training.data.replay import StreamReplay
from rl_training.data.segment_tree import SegmentTree
from rl_training.errors import ConfigError
from rl_training.runtime import off_policy_learner
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session
from support import ScriptedEnv
from test_replay import filled, rollouts


def rows(*places: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(len(places), dtype=np.int64), np.array(places)


# ---- n-step transitions


@pytest.mark.parametrize("terminates", [True, False])
def test_n_step_transitions_by_hand(terminates: bool) -> None:
    """Observations are [episode, t], rewards t, three steps to an episode; its end is row 3, the next begins at 4.

    With γ 0.5: from t = 0 two steps pay 1 + 0.5 · 2 and lead to t = 2, which counts for 0.25. From t = 1 they pay
    2 + 0.5 · 3 and lead to the end, which counts for nothing after a termination, and for 0.25 after a time limit. From
    t = 2 one step is left: 3, and the end counts for nothing or 0.5.
    """
    replay = filled(partial(ScriptedEnv, length=3, terminates=terminates), 7)
    found = replay.transitions(rows(0, 1, 2, 4), n_steps=2, gamma=0.5)
    assert found["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert found["next_obs"].tolist() == [[0, 2], [0, 3], [0, 3], [1, 2]]
    assert found["rewards"].tolist() == [2.0, 3.5, 3.0, 2.0]
    after = [0.0, 0.0] if terminates else [0.25, 0.5]
    assert found["discounts"].tolist() == [0.25, *after, 0.25]


def test_a_transition_stops_where_the_stream_does() -> None:
    """Four steps of an endless episode: from t = 2 only one successor is known yet."""
    replay = filled(partial(ScriptedEnv, length=100), 4)
    found = replay.transitions(rows(0, 2), n_steps=3, gamma=0.5)
    assert found["rewards"].tolist() == [1 + 0.5 * 2 + 0.25 * 3, 3.0]
    assert found["discounts"].tolist() == [0.125, 0.5]
    assert found["next_obs"].tolist() == [[0, 3], [0, 3]]


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_only_rows_with_a_known_outcome_are_drawn_as_transitions(alpha: float | None) -> None:
    """Rows 3 and 7 are ends, row 8 waits for its successor."""
    replay = StreamReplay(100, 1, priority_alpha=alpha)
    for rollout in rollouts(partial(ScriptedEnv, length=3, terminates=True), 7):
        replay.add(rollout)
    (_, places), shares = replay.draw_transitions(2_000, np.random.default_rng(0))
    assert sorted(set(places.tolist())) == [0, 1, 2, 4, 5, 6]
    np.testing.assert_allclose(np.bincount(places)[[0, 1, 2, 4, 5, 6]] / 2_000, 1 / 6, atol=0.04)
    assert (shares == shares[0]).all()


def test_a_restart_leaves_no_transition_across_it() -> None:
    """The environments restart after two steps of an episode: its second row has no outcome."""
    replay = StreamReplay(100, 1)
    for rollout in (rollouts(ScriptedEnv, 2)[0], rollouts(ScriptedEnv, 2)[0]):
        replay.add(copy.deepcopy(rollout))
    (_, places), _ = replay.draw_transitions(200, np.random.default_rng(0))
    assert set(places.tolist()) == {0, 2}
    found = replay.transitions(rows(0), n_steps=3, gamma=0.5)
    assert found["next_obs"].tolist() == [[0, 1]]
    assert found["discounts"].tolist() == [0.5]


# ---- priorities


def test_a_segment_tree_is_the_sum_and_finds_by_mass() -> None:
    numbers = np.array([0.5, 0.0, 2.0, 1.0, 0.0])
    tree = SegmentTree(5, np.add)
    tree[np.arange(5)] = numbers
    assert tree.total == 3.5
    # Cumulative sums 0.5, 0.5, 2.5, 3.5, 3.5: a mass belongs to the first place whose sum exceeds it.
    assert tree.find(np.array([0.0, 0.49, 0.5, 2.49, 2.5, 3.49])).tolist() == [0, 0, 2, 2, 3, 3]
    tree[np.array([2])] = 0.0
    assert tree.total == 1.5
    assert tree.find(np.array([0.5, np.nextafter(1.5, 2.0)])).tolist() == [3, 3]  # rounding leads to no empty place


@pytest.mark.parametrize("places", [1, 2, 7, 64, 100])
def test_a_segment_tree_keeps_up_with_random_changes(places: int) -> None:
    rng = np.random.default_rng(0)
    sums, maxima, numbers = SegmentTree(places, np.add), SegmentTree(places, np.maximum), np.zeros(places)
    for _ in range(30):
        chosen = rng.integers(places, size=rng.integers(1, 9))
        numbers[chosen] = rng.random(len(chosen))
        for tree in (sums, maxima):
            tree[chosen] = numbers[chosen]
        assert sums.total == pytest.approx(numbers.sum())
        assert maxima.total == numbers.max()
        mass = rng.random(20) * sums.total
        expected = np.searchsorted(numbers.cumsum(), mass, side="right")
        np.testing.assert_array_equal(sums.find(mass), np.minimum(expected, places - 1))


def test_new_rows_have_the_highest_priority_that_is_left() -> None:
    priorities = Priorities(10, alpha=1.0)
    priorities.add(np.array([0, 1]))
    assert priorities.get(np.array([0, 1])).tolist() == [1.0, 1.0]
    priorities.set(np.array([0, 1]), np.array([4.0, 2.0]))
    priorities.add(np.array([2]))
    assert priorities.get(np.array([2])).tolist() == [4.0]
    priorities.set(np.array([0, 2]), np.array([0.5, 0.5]))
    priorities.add(np.array([3]))
    assert priorities.get(np.array([3])).tolist() == [2.0]


def test_overwritten_rows_leave_no_priority_behind() -> None:
    """The ring of six rows turns: what is drawn is what is there, by its place in the stream."""
    replay = StreamReplay(6, 1, priority_alpha=1.0)
    for rollout in rollouts(partial(ScriptedEnv, length=100), 5, 5):
        replay.add(rollout)
        replay.set_priorities(rows(2), np.array([50.0]))
    (_, places), _ = replay.draw(500, np.random.default_rng(0))
    assert set(places.tolist()) == {4, 5, 6, 7, 8, 9}


# ---- updates for steps


def test_a_ratio_loses_no_fraction_of_an_update() -> None:
    ratio = Ratio()
    assert [ratio(7, 0.25) for _ in range(5)] == [1, 2, 2, 2, 1]  # 1.75, 3.5, 5.25, 7, 8.75
    twin = Ratio()
    twin.load_state_dict(ratio.state_dict())
    assert [twin(1, 0.25), ratio(1, 0.25)] == [1, 1]


@pytest.mark.parametrize(("alpha", "draws"), [(None, [20, 8]), (0.5, [4] * 7)])
def test_updates_draw_together_unless_errors_decide_what_is_replayed(
    alpha: float | None, draws: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven updates of four rows, where at most twenty rows are drawn at once."""
    monkeypatch.setattr(off_policy_learner, "ROWS_AT_ONCE", 20)
    wanted = {"priority_alpha": alpha, "batch_size": 4, "replay_ratio": 0.0, "learning_starts": 8}
    with closing(Session(small_config("dqn", tmp_path, algo_kwargs=wanted))) as session:
        session.learner.store(session.collector.collect(8))
        drawn: list[int] = []
        draw = session.learner.replay.draw_transitions
        session.learner.replay.draw_transitions = lambda count, rng: (drawn.append(count), draw(count, rng))[1]
        errors = [len(result.errors) for result in session.learner.updates(7)]
    assert errors == [4] * 7
    assert drawn == draws


def test_dreamers_old_key_is_refused_with_its_new_name(tmp_path: Path) -> None:
    for key in ("replay_ratio", "replay_ratio_schedule"):
        with pytest.raises(ConfigError, match=rf"{key}: Dreamer counts replayed observations.*train_ratio"):
            small_config("dreamer", tmp_path, algo_kwargs={key: 1.0})


@pytest.mark.parametrize("algo", ["muzero", "dreamer", "dqn"])
def test_a_replay_that_never_fills_is_refused_at_once(algo: str, tmp_path: Path) -> None:
    config = small_config(algo, tmp_path, algo_kwargs={"replay_capacity": 63, "learning_starts": 64})
    with pytest.raises(ConfigError, match=r"no update would ever happen; it holds 2 environments with 31 rows each"):
        Session(config)


@pytest.mark.parametrize("algo", ["muzero", "scalezero", "dreamer", "dqn"])
def test_a_run_without_its_replay_in_the_checkpoint_fills_it_anew(algo: str, tmp_path: Path) -> None:
    _, state = train_state(small_config(algo, tmp_path, algo_kwargs={"store_replay": False}))
    assert "stored_replay" not in state["learner"]


@pytest.mark.parametrize("algo", ["muzero", "dreamer", "scalezero", "dqn"])
def test_the_first_steps_act_at_random_if_they_are_to(algo: str, tmp_path: Path) -> None:
    """A policy that would always do one thing does either in the random steps, and only then."""
    random = {"random_steps": 64, "learning_starts": 150, "replay_capacity": 1_000}  # which keeps the first rows
    config = small_config(algo, tmp_path, algo_kwargs=random, eval_episodes=0, backend="sync")
    session = Session(config)
    acted: dict[str, int] = {"act": 0, "act_randomly": 0}
    for name in acted:
        method = getattr(session.policy, name)

        def counting(*args: Any, name: str = name, method: Any = method, **options: Any) -> Any:
            acted[name] += 1
            return method(*args, **options)

        setattr(session.policy, name, counting)
    session.collector._act = session.policy.act
    run_training(session)
    steps = session.learner.rollout_steps
    random_rollouts = -(-64 // (steps * config.num_envs))
    assert acted["act_randomly"] == steps * random_rollouts
    assert acted["act"] > 0
    actions = session.learner.replay.column("actions", (np.zeros(20, dtype=int), np.arange(20)))
    assert len(set(np.asarray(actions).tolist())) == 2
    session.close()
