"""Statistics of few runs, worked by hand, and once compared with rliable 1.2.0."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.tools.statistics import (
    bootstrap_interval,
    improvement_interval,
    interval_reach,
    iqm,
    performance_profile,
    pooled_iqm,
    probability_of_improvement,
)

# Five runs of two methods on two tasks.
OURS = [np.array([10.0, 12.0, 15.0, 11.0, 30.0]), np.array([0.2, 0.5, 0.9, 0.4, 0.6])]
THEIRS = [np.array([9.0, 12.0, 14.0, 8.0, 13.0]), np.array([0.3, 0.1, 0.4, 0.2, 0.5])]


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end() -> None:
    assert iqm(np.array([100.0, 1.0, 2.0, 3.0])) == 2.5  # 1 and 100 are left out
    assert iqm(np.array([1.0, 2.0, 9.0])) == 4.0  # a quarter of three, rounded down, is none
    assert iqm(np.array([7.0])) == 7.0


def test_the_interval_of_a_mean_by_hand() -> None:
    # 1, 2 and 6 have the deviation sqrt(7); t is 4.30 with two degrees of freedom.
    np.testing.assert_allclose(interval_reach(np.sqrt(7.0), 3), 4.30 * np.sqrt(7 / 3))
    np.testing.assert_allclose(interval_reach(1.0, 100), 0.196)


def test_a_profile_is_the_share_of_runs_above_a_score() -> None:
    # Of task 1, runs 3 and 5 are above 12; of task 2, none is.
    np.testing.assert_allclose(performance_profile(OURS, np.array([-1.0, 12.0, 99.0])), [1.0, 0.2, 0.0])


def test_improvement_counts_won_pairs_and_half_of_the_drawn_ones() -> None:
    # Pairs 3 > 1, 3 = 3, 1 = 1, 1 < 3: one win and two draws of four.
    assert probability_of_improvement([np.array([3.0, 1.0])], [np.array([1.0, 3.0])]) == 0.5
    assert probability_of_improvement([np.array([3.0, 1.0])], [np.array([1.0, 2.0])]) == (1 + 1 + 0.5 + 0) / 4
    assert probability_of_improvement(THEIRS, OURS) == pytest.approx(1 - probability_of_improvement(OURS, THEIRS))


def test_equal_runs_leave_no_doubt_and_a_seed_repeats_an_interval() -> None:
    assert bootstrap_interval(pooled_iqm, [np.full(5, 3.0)], resamples=50) == (3.0, 3.0)
    assert bootstrap_interval(pooled_iqm, OURS, resamples=50) == bootstrap_interval(pooled_iqm, OURS, resamples=50)


def test_runs_are_redrawn_within_their_task() -> None:
    """A task with one run always keeps it."""
    tasks = [np.array([5.0]), np.array([1.0, 2.0])]
    first = bootstrap_interval(lambda drawn: drawn[0].mean(), tasks, resamples=50)
    assert first == (5.0, 5.0)


def test_the_numbers_are_those_of_rliable() -> None:
    """The literals come from rliable's library.get_interval_estimates with 20,000 resamples."""
    assert pooled_iqm(OURS) == pytest.approx(5.833333)
    assert pooled_iqm(THEIRS) == pytest.approx(5.033333)
    np.testing.assert_allclose(bootstrap_interval(pooled_iqm, OURS), (5.316667, 9.466667), rtol=0.05)
    np.testing.assert_allclose(bootstrap_interval(pooled_iqm, THEIRS), (4.183333, 6.55), rtol=0.05)
    np.testing.assert_allclose(bootstrap_interval(pooled_iqm, OURS[:1]), (10.333333, 25.0), rtol=0.05)
    assert probability_of_improvement(OURS, THEIRS) == pytest.approx(0.72)
    np.testing.assert_allclose(improvement_interval(OURS, THEIRS), (0.46, 0.92), atol=0.03)
    # rliable pools all runs; with as many of each task that is the same.
    np.testing.assert_allclose(performance_profile(OURS, np.array([0.5, 11.0, 12.0])), [0.7, 0.3, 0.2])
