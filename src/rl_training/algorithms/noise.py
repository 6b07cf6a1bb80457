"""The random numbers that updates draw."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class NoiseStream:
    """A generator on the device of the networks, part of a checkpoint."""

    def __init__(self) -> None:
        """Seeded by the global stream, which `build_seeded` has set."""
        device = torch.empty(0).device
        # Shapes alone, on torch's device `meta`, draw nothing.
        drawn_on = "cpu" if device.type == "meta" else device
        self.generator = torch.Generator(drawn_on).manual_seed(int(torch.randint(2**62, (), device="cpu")))

    def state_dict(self) -> dict[str, Tensor]:
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["state"])
