"""Multi-layer perceptrons and their initialisation."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.models.precision import Precision, product

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "silu": F.silu,
    "elu": F.elu,
}
HIDDEN_GAIN = 2.0**0.5


LayerT = TypeVar("LayerT", nn.Linear, nn.Conv2d)


def orthogonal(layer: LayerT, gain: float) -> LayerT:
    """Orthogonal weights and zero biases (Andrychowicz et al., 2021)."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class MLP(nn.Module):
    """Linear layers with an activation after each; `out_features` is the width of the last."""

    precision: Precision = "float32"  # of the products between hidden layers

    def __init__(self, in_features: int, hidden_sizes: Sequence[int], activation: str) -> None:
        super().__init__()
        widths = [in_features, *hidden_sizes]
        self.layers = nn.ModuleList(orthogonal(nn.Linear(n_in, n_out), HIDDEN_GAIN) for n_in, n_out in pairwise(widths))
        self.activation = activation
        self.out_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        activate = ACTIVATIONS[self.activation]
        for index in range(len(self.layers)):
            x = activate(self.linear(index, x))
        return x

    def linear(self, index: int, x: Tensor) -> Tensor:
        """The outputs of one layer, before its activation."""
        layer: Any = self.layers[index]
        if index == 0 or self.precision == "float32":
            return layer(x)
        return product(x, layer.weight.t(), self.precision) + layer.bias


class LayerNormMLP(MLP):
    """Linear layers, each followed by a layer norm and the activation (Ba et al., 2016)."""

    def __init__(self, in_features: int, hidden_sizes: Sequence[int], activation: str) -> None:
        super().__init__(in_features, hidden_sizes, activation)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in hidden_sizes)

    def forward(self, x: Tensor) -> Tensor:
        activate = ACTIVATIONS[self.activation]
        for index, norm in enumerate(self.norms):
            x = activate(norm(self.linear(index, x)))
        return x
