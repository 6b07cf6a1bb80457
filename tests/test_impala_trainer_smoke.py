"""IMPALA in training: its schedules, and rollouts of policies that are no longer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows
from rl_training.data.rollout import Rollout
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.loop import run_training
from rl_training.runtime.session import Session


@pytest.mark.parametrize(("control", "start", "end"), [("rho_bar", 2.0, 1.0), ("ent_coef", 0.02, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("impala", control, tmp_path, start=start, end=end)


def test_synchronous_collection_has_no_lag_and_only_ratios_of_one(tmp_path: Path) -> None:
    run_dir, _ = train_state(small_config("impala", tmp_path, algo_kwargs={"num_minibatches": 1, "update_epochs": 1}))
    for row in training_rows(run_dir):
        assert row["policy_lag"] == 0.0
        assert row["rho_mean"] == pytest.approx(1.0, abs=1e-6)
        assert row["approx_kl"] == pytest.approx(0.0, abs=1e-6)


class Lags(Callback):
    def __init__(self) -> None:
        self.lags: list[float] = []

    def on_log(self, session: Session, row: dict[str, Any]) -> None:
        self.lags.append(row["policy_lag"])


def test_the_lag_of_a_rollout_of_several_policies_is_their_mean_over_real_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rollouts are learned from, so the policy is number 3; the fourth was collected by numbers 1, 2 and 3."""
    session = Session(small_config("impala", tmp_path, backend="sync", total_timesteps=4 * 64 - 16, eval_episodes=0))
    collect, seen = session.collector.collect, Lags()

    def collected(num_steps: int) -> Rollout:
        rollout = collect(num_steps)
        if session.progress.iterations < 3:
            return rollout
        versions = torch.full((16, 4), 3)
        versions[:, 0], versions[:, 1] = 1, 2
        valid = torch.ones(16, 4, dtype=torch.bool)
        valid[:, 3] = False
        return replace(rollout, policy_version=versions, valid=valid)

    monkeypatch.setattr(session.collector, "collect", collected)
    run_training(session, [seen])
    assert seen.lags == [0.0, 0.0, 0.0, pytest.approx((2 + 1 + 0) / 3)]
    assert session.progress.iterations == 3 + 1
