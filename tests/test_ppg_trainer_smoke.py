"""PPG in training: its schedules, and the rhythm of its phases."""

from pathlib import Path

import pytest
import torch

from conformance import assert_schedule_is_applied_and_logged, small_config, train_state, training_rows
from rl_training.errors import ConfigError
from rl_training.runtime.session import Session


@pytest.mark.parametrize(
    ("control", "start", "end"), [("clip_coef", 0.3, 0.1), ("ent_coef", 0.02, 0.0), ("beta_clone", 2.0, 0.5)]
)
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("ppg", control, tmp_path, start=start, end=end)


def test_every_third_rollout_ends_with_an_auxiliary_phase(tmp_path: Path) -> None:
    run_dir, state = train_state(small_config("ppg", tmp_path))
    rows = training_rows(run_dir)
    assert [index for index, row in enumerate(rows) if "clone_kl" in row] == list(range(2, len(rows), 3))
    # 2 epochs of 2 minibatches in each phase.
    algorithm = state["learner"]["algorithm"]
    assert algorithm["policy_updates"] == 4 * len(rows)
    assert algorithm["auxiliary_updates"] == 4 * (len(rows) // 3)
    assert len(state["learner"]["memory"]["batches"]) == len(rows) % 3


def test_a_phase_sees_all_rollouts_since_the_last_one_as_they_were_collected(tmp_path: Path) -> None:
    session = Session(small_config("ppg", tmp_path))
    learner, seen = session.learner, []
    update = learner.algorithm.auxiliary_update

    def spy(batch, **options):
        seen.append(batch["obs"].clone())
        return update(batch, **options)

    learner.algorithm.auxiliary_update = spy
    collected = []
    for _ in range(3):
        assert not seen
        rollout = session.collector.collect(16)
        collected.append(rollout.flat()["obs"].clone())
        list(learner.learn(rollout))
    expected = torch.cat(collected)
    first_epoch = torch.cat(seen[:2])
    assert len(seen) == 4
    assert sorted(first_epoch.tolist()) == sorted(expected.tolist())
    assert len(learner.memory) == 0


def test_a_trunk_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="share_torso"):
        small_config("ppg", tmp_path, algo_kwargs={"share_torso": False})
