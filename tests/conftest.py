"""One thread for every test: the networks are small, and results must not depend on the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The key that signs configs is made for the tests, not taken from whoever runs them."""
    state = tmp_path_factory.mktemp("state")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(state))
    yield state
    patch.undo()
