"""TD3 in training: its schedules, a known answer, and what it refuses."""

from pathlib import Path

import pytest

from conformance import assert_schedule_is_applied_and_logged
from probing import probed
from rl_training.errors import ConfigError
from support import ContextualBandit, TargetEnv
from test_sac_trainer_smoke import QUICK


@pytest.mark.parametrize(("control", "start", "end"), [("exploration_noise", 0.5, 0.1), ("target_noise", 0.2, 0.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("td3", control, tmp_path, start=start, end=end)


def test_a_number_is_found() -> None:
    assert probed("td3", TargetEnv, 4_000, **QUICK).evaluate(64).return_mean >= -0.03


def test_discrete_actions_are_refused_with_who_takes_them() -> None:
    with pytest.raises(ConfigError, match=r"needs a Box of actions, got Discrete\(4\); DQN and SAC"):
        probed("td3", ContextualBandit, 100)
