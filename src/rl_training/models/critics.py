"""Several critics at once, whose layers are batched products: weights are `[E, in, out]`, values `[E, N, K, Z]`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from gymnasium import spaces as gym_spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree, tree_map
from rl_training.envs.types import Spaces
from rl_training.models.masking import ObsView
from rl_training.models.mlp import ACTIVATIONS
from rl_training.models.precision import Precision, product
from rl_training.models.torsos import TorsoOptions, make_torso


@dataclass(frozen=True)
class CriticOptions:
    torso: TorsoOptions
    num_critics: int
    num_quantiles: int
    layer_norm: bool
    dropout: float
    batch_renorm: bool


class EnsembleLinear(nn.Module):
    """`[E, N, in]` → `[E, N, out]`, each member initialised as torch's `Linear` is."""

    def __init__(self, members: int, in_features: int, out_features: int, *, precision: Precision = "float32") -> None:
        super().__init__()
        self.precision = precision
        bound = in_features**-0.5
        self.weight = nn.Parameter(torch.empty(members, in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, out_features).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        if self.precision == "float32":
            return torch.baddbmm(self.bias, x, self.weight)
        return product(x, self.weight, self.precision) + self.bias


class EnsembleNorm(nn.Module):
    """Layer norm with a scale and a shift for each member."""

    def __init__(self, members: int, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, 1, features))
        self.shift = nn.Parameter(torch.zeros(members, 1, features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, F.layer_norm(x, x.shape[-1:]), self.scale)


class EnsembleRenorm(nn.Module):
    """Batch renormalisation (Ioffe, 2017) as CrossQ has it: by the batch while it trains, else by running statistics.

    The batch's statistics are corrected towards the running ones, within bounds, once those have settled.
    """

    MOMENTUM, EPS, WARMUP_STEPS, LARGEST_RATIO, LARGEST_SHIFT = 0.01, 1e-3, 100_000, 3.0, 5.0
    mean: Tensor
    var: Tensor
    steps: Tensor

    def __init__(self, members: int, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, 1, features))
        self.shift = nn.Parameter(torch.zeros(members, 1, features))
        self.register_buffer("mean", torch.zeros(members, 1, features))
        self.register_buffer("var", torch.ones(members, 1, features))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            normalized = self._by_batch(x)
        else:
            normalized = (x - self.mean) * (self.var + self.EPS).rsqrt()
        return torch.addcmul(self.shift, normalized, self.scale)

    def _by_batch(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        std, running_std = (var + self.EPS).sqrt(), (self.var + self.EPS).sqrt()
        normalized = (x - mean) / std
        if self.steps >= self.WARMUP_STEPS:
            ratio = (std.detach() / running_std).clamp(1.0 / self.LARGEST_RATIO, self.LARGEST_RATIO)
            shift = ((mean.detach() - self.mean) / running_std).clamp(-self.LARGEST_SHIFT, self.LARGEST_SHIFT)
            normalized = normalized * ratio + shift
        with torch.no_grad():
            self.mean.lerp_(mean, self.MOMENTUM)
            self.var.lerp_(var, self.MOMENTUM)
            self.steps += 1
        return normalized


class Critics(nn.Module):
    """`num_critics` networks of observations and actions; a Discrete space's actions are outputs and not inputs.

    Hidden layers may have dropout, drawn from the generator that a call gives, and layer norm (DroQ's order: linear,
    dropout, norm, activation), or CrossQ's batch renormalisation of the input and after every activation. Images go
    through one CNN that all critics share. The products between hidden layers are in the torso's precision.
    """

    def __init__(self, spaces: Spaces, options: CriticOptions) -> None:
        super().__init__()
        self.view = ObsView(spaces)
        self.torso = make_torso(self.view.space, replace(options.torso, hidden_sizes=()))
        choices = int(spaces.action.n) if isinstance(spaces.action, gym_spaces.Discrete) else None
        self.takes_actions = choices is None
        self.outputs = (choices or 1, options.num_quantiles)
        inputs = self.torso.out_features + (math.prod(spaces.action.shape or ()) if self.takes_actions else 0)
        members = options.num_critics
        widths = [inputs, *options.torso.hidden_sizes]
        self.precision: Precision = options.torso.precision
        precisions: list[Precision] = ["float32", *[self.precision] * len(widths)]
        self.layers = nn.ModuleList(
            EnsembleLinear(members, n_in, n_out, precision=precision)
            for (n_in, n_out), precision in zip(pairwise(widths), precisions, strict=False)
        )
        self.last = EnsembleLinear(members, widths[-1], self.outputs[0] * self.outputs[1])
        norms = (EnsembleNorm(members, width) for width in widths[1:])
        self.norms = nn.ModuleList(norms) if options.layer_norm else None
        renorms = (EnsembleRenorm(members, width) for width in widths)
        self.renorms = nn.ModuleList(renorms) if options.batch_renorm else None
        self.activation = options.torso.activation
        self.dropout = options.dropout
        self.eval()  # but for `jointly`

    def forward(self, obs: Tree, actions: Tensor | None, generator: torch.Generator | None = None) -> Tensor:
        """Values of the given actions, or of all that there are."""
        x = self.torso(self.view.seen(obs))
        if actions is not None:
            x = torch.cat([x, actions], dim=-1)
        x = x.expand(len(self.last.weight), *x.shape)
        activate = ACTIVATIONS[self.activation]
        if self.renorms is not None:
            x = self.renorms[0](x)
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if self.dropout and generator is not None:
                x = dropped_out(x, self.dropout, generator)
            x = activate(x if self.norms is None else self.norms[index](x))
            if self.renorms is not None:
                x = self.renorms[index + 1](x)
        return self.last(x).unflatten(-1, self.outputs)

    def of_replayed(self, obs: Tree, actions: Tensor, generator: torch.Generator | None) -> Tensor:
        """`[E, N, Z]`: the values of the actions that were taken."""
        return self._taken(self(obs, actions if self.takes_actions else None, generator), actions)

    def jointly(
        self, batch: Mapping[str, Tree], following: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Values of the actions taken and of those that follow, in one pass: both are normalised alike (CrossQ)."""
        obs = tree_map(lambda now, then: torch.cat([now, then]), batch["obs"], batch["next_obs"])
        self.train()
        outputs = self(obs, None if following is None else torch.cat([batch["actions"], following]), generator)
        self.eval()
        now, then = outputs.chunk(2, dim=1)
        return self._taken(now, batch["actions"]), then.detach()

    def _taken(self, outputs: Tensor, actions: Tensor) -> Tensor:
        if self.takes_actions:
            return outputs.squeeze(-2)
        return outputs[:, torch.arange(len(actions), device=actions.device), actions]


def dropped_out(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    kept = torch.empty_like(x).bernoulli_(1.0 - share, generator=generator)
    return x * kept / (1.0 - share)
