"""What can be imported from where, and what importing costs."""

import subprocess
import sys

import pytest

import rl_training
from rl_training import api


def test_the_public_names_are_there() -> None:
    for name in ("PPO", "TrainConfig", "TrainResult", "Callback", "train_run", "resume_run", "list_runs"):
        assert name in dir(rl_training)
        assert getattr(rl_training, name)
    assert "PPO" in api.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PPOO'"):
        rl_training.PPOO  # noqa: B018


@pytest.mark.parametrize(
    "statement", ["import rl_training", "import rl_training.experiment.registry; import rl_training.cli"]
)
def test_importing_does_not_import_torch(statement: str) -> None:
    code = f"{statement}; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
