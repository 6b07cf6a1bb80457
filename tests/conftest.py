"""One thread for every test: the networks are small, and results must not depend on the machine."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
