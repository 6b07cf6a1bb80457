"""Action heads: features → the parameters of a distribution, and plain functions of those parameters.

No distribution objects: acting and updating call `log_probs`, `entropy` and `kl` on a tensor `[N, P]`.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.errors import ConfigError
from rl_training.models.box_scale import BoxScale
from rl_training.models.mlp import orthogonal

POLICY_GAIN = 0.01
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_STD_BOUNDS = (-20.0, 2.0)  # of a deviation that depends on the state, as in Haarnoja et al. (2018)
LARGEST_SQUASHED = 1.0 - 1e-6  # an action at a bound stands for this one: the bound itself is infinitely far away


class ActionHead(nn.Module):
    """`forward` gives distribution parameters; actions are what was sampled, `to_env` makes them what is executed."""

    action_shape: tuple[int, ...] = ()
    action_dtype: torch.dtype = torch.int64

    def sample(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        raise NotImplementedError

    def mode(self, dist: Tensor) -> Tensor:
        raise NotImplementedError

    def random(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Actions that are uniform over the space; over [−1, 1], or what that stands for, where it has no bounds."""
        raise NotImplementedError

    def log_probs(self, dist: Tensor, actions: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self, dist: Tensor) -> Tensor:
        raise NotImplementedError

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) for each row."""
        raise NotImplementedError

    def widen(self, log_std: float) -> None:
        """Gives samples of Box actions this deviation, and leaves their means alone."""

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The sample that `to_env` makes into these actions."""
        return actions


def make_head(
    space: gym.Space,
    in_features: int,
    *,
    log_std_init: float = 0.0,
    state_dependent_std: bool = False,
    squash_actions: bool = False,
) -> ActionHead:
    if isinstance(space, spaces.Box):
        kind = StateGaussianHead if state_dependent_std else GaussianHead
        gaussian = kind(in_features, space, log_std_init)
        return SquashedHead(gaussian) if squash_actions else gaussian
    for name, asked in (("state_dependent_std", state_dependent_std), ("squash_actions", squash_actions)):
        if asked:
            raise ConfigError(f"{name} is for Box actions, and these are {space}; leave it out")
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(in_features, [int(space.n)], start=space.start)
    if isinstance(space, spaces.MultiDiscrete) and len(space.nvec.shape) == 1:
        return CategoricalHead(in_features, [int(n) for n in space.nvec], joint=True, start=space.start)
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return BernoulliHead(in_features, space.shape[0])
    raise ConfigError(f"action space {space} is not supported; use Discrete, Box, MultiDiscrete or MultiBinary")


class CategoricalHead(ActionHead):
    """One categorical (Discrete) or several independent ones (MultiDiscrete); parameters are normalised log-probs."""

    def __init__(self, in_features: int, classes: list[int], *, joint: bool = False, start: Any = 0) -> None:
        super().__init__()
        self.classes = classes
        self.start = np.asarray(start)
        self._shifted = bool(self.start.any())
        self.joint = joint
        self.action_shape = (len(classes),) if joint else ()
        self.linear = orthogonal(nn.Linear(in_features, sum(classes)), POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        logits = F.linear(features, self.linear.weight, self.linear.bias)
        if not self.joint:
            return F.log_softmax(logits, dim=-1)
        return torch.cat([F.log_softmax(part, dim=-1) for part in logits.split(self.classes, dim=-1)], dim=-1)

    def renormalized(self, dist: Tensor) -> Tensor:
        """The parameters that these stand for, when some were put down: normalised log-probs once more."""
        return torch.cat([F.log_softmax(part, dim=-1) for part in dist.split(self.classes, dim=-1)], dim=-1)

    def sample(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        # Gumbel-max: argmax(log p + G) with G = −log E, E exponential.
        noise = torch.empty_like(dist).exponential_(generator=generator).log_()
        return self.mode(dist - noise)

    def mode(self, dist: Tensor) -> Tensor:
        if not self.joint:
            return dist.argmax(dim=-1)
        return torch.stack([part.argmax(dim=-1) for part in dist.split(self.classes, dim=-1)], dim=-1)

    def random(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        return self.sample(torch.zeros(rows, sum(self.classes), device=device), generator)

    def log_probs(self, dist: Tensor, actions: Tensor) -> Tensor:
        if not self.joint:
            return dist.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        parts = zip(dist.split(self.classes, dim=-1), actions.unbind(-1), strict=True)
        return torch.stack([part.gather(-1, chosen.unsqueeze(-1)).squeeze(-1) for part, chosen in parts]).sum(0)

    def entropy(self, dist: Tensor) -> Tensor:
        return -(dist.exp() * dist).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return (old.exp() * (old - new)).sum(-1)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions + self.start if self._shifted else actions

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return (actions - self.start).astype(np.int64)


class BernoulliHead(ActionHead):
    """Independent bits (MultiBinary); parameters are logits."""

    action_dtype = torch.int8

    def __init__(self, in_features: int, bits: int) -> None:
        super().__init__()
        self.action_shape = (bits,)
        self.linear = orthogonal(nn.Linear(in_features, bits), POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)

    def sample(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        uniform = torch.rand(dist.shape, generator=generator, device=dist.device)
        return (uniform < dist.sigmoid()).to(self.action_dtype)

    def mode(self, dist: Tensor) -> Tensor:
        return (dist > 0).to(self.action_dtype)

    def random(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        return self.sample(torch.zeros(rows, *self.action_shape, device=device), generator)

    def log_probs(self, dist: Tensor, actions: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(dist, actions.to(dist.dtype), reduction="none").sum(-1)

    def entropy(self, dist: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(dist, dist.sigmoid(), reduction="none").sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        p = old.sigmoid()
        return (p * (F.logsigmoid(old) - F.logsigmoid(new)) + (1 - p) * (F.logsigmoid(-old) - F.logsigmoid(-new))).sum(
            -1
        )


class GaussianHead(ActionHead):
    """Diagonal Gaussian with a state-independent deviation; parameters are [mean, log_std].

    Where a Box is bounded on both sides it is acted in as [−1, 1]: the sample is clipped and scaled to the bounds on
    its way to the environment, and log-probabilities are those of the sample itself. Other axes are only clipped.
    """

    action_dtype = torch.float32

    def __init__(self, in_features: int, space: spaces.Box, log_std_init: float) -> None:
        super().__init__()
        self.action_shape = space.shape
        self.scale = BoxScale(space)
        self.linear = orthogonal(nn.Linear(in_features, self.scale.size), POLICY_GAIN)
        self.log_std = nn.Parameter(torch.full((self.scale.size,), float(log_std_init)))

    def forward(self, features: Tensor) -> Tensor:
        mean = F.linear(features, self.linear.weight, self.linear.bias)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)

    @torch.no_grad()
    def widen(self, log_std: float) -> None:
        self.log_std.fill_(log_std)

    def sample(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        mean, log_std = dist.chunk(2, dim=-1)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return (mean + log_std.exp() * noise).reshape(-1, *self.action_shape)

    def mode(self, dist: Tensor) -> Tensor:
        return dist.chunk(2, dim=-1)[0].reshape(-1, *self.action_shape)

    def random(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        return 2.0 * torch.rand(rows, *self.action_shape, generator=generator, device=device) - 1.0

    def log_probs(self, dist: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = dist.chunk(2, dim=-1)
        z = (actions.reshape(mean.shape) - mean) * (-log_std).exp()
        return -(0.5 * z.square() + log_std + HALF_LOG_2PI).sum(-1)

    def entropy(self, dist: Tensor) -> Tensor:
        return (dist.chunk(2, dim=-1)[1] + 0.5 + HALF_LOG_2PI).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (mean_old, log_old), (mean_new, log_new) = old.chunk(2, dim=-1), new.chunk(2, dim=-1)
        ratio = (2 * (log_old - log_new)).exp()
        return (log_new - log_old + 0.5 * (ratio + (mean_old - mean_new).square() * (-2 * log_new).exp() - 1)).sum(-1)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.scale.to_env(actions)

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.scale.from_env(actions)


class StateGaussianHead(GaussianHead):
    """Diagonal Gaussian whose deviation depends on the state, as its mean does."""

    def __init__(self, in_features: int, space: spaces.Box, log_std_init: float) -> None:
        super().__init__(in_features, space, log_std_init)
        size = len(self.log_std)
        del self.log_std
        self.linear = orthogonal(nn.Linear(in_features, 2 * size), POLICY_GAIN)
        nn.init.constant_(self.linear.bias[size:], float(log_std_init))

    @torch.no_grad()
    def widen(self, log_std: float) -> None:
        self.linear.weight[self.scale.size :].zero_()
        self.linear.bias[self.scale.size :].fill_(log_std)

    def forward(self, features: Tensor) -> Tensor:
        mean, log_std = self.linear(features).chunk(2, dim=-1)
        return torch.cat([mean, log_std.clamp(*LOG_STD_BOUNDS)], dim=-1)


class SquashedHead(ActionHead):
    """The tanh of a Gaussian (Haarnoja et al., 2018, appendix C): no sample is ever clipped at a bound.

    Actions are kept as they were before the tanh, from which their log-density in [−1, 1] follows exactly; `to_env`
    squashes them. The entropy has no closed form: it is a Gauss–Hermite quadrature, which needs no samples. The KL is
    the Gaussians', since both sides are squashed alike. The mode is the squashed mean.
    """

    action_dtype = torch.float32
    _nodes: Tensor
    _weights: Tensor

    def __init__(self, gaussian: GaussianHead) -> None:
        super().__init__()
        if not gaussian.scale.is_bounded:
            raise ConfigError("squash_actions needs actions with finite bounds on both sides; leave it out")
        self.gaussian = gaussian
        self.action_shape = gaussian.action_shape
        nodes, weights = np.polynomial.hermite_e.hermegauss(32)
        self.register_buffer("_nodes", torch.tensor(nodes, dtype=torch.float32), persistent=False)
        self.register_buffer("_weights", torch.tensor(weights / weights.sum(), dtype=torch.float32), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        return self.gaussian(features)

    def widen(self, log_std: float) -> None:
        self.gaussian.widen(log_std)

    def sample(self, dist: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.gaussian.sample(dist, generator)

    def mode(self, dist: Tensor) -> Tensor:
        return self.gaussian.mode(dist)

    def random(self, rows: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        return (self.gaussian.random(rows, generator, device) * LARGEST_SQUASHED).atanh()

    def log_probs(self, dist: Tensor, actions: Tensor) -> Tensor:
        slopes = log_tanh_slope(actions).reshape(len(actions), -1).sum(-1)
        return self.gaussian.log_probs(dist, actions) - slopes

    def entropy(self, dist: Tensor) -> Tensor:
        mean, log_std = (part.unsqueeze(-1) for part in dist.chunk(2, dim=-1))
        slopes = (log_tanh_slope(mean + log_std.exp() * self._nodes) * self._weights).sum((-2, -1))
        return self.gaussian.entropy(dist) + slopes

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return self.gaussian.kl(old, new)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.gaussian.to_env(np.tanh(actions))

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return np.arctanh(self.gaussian.from_env(actions).clip(-LARGEST_SQUASHED, LARGEST_SQUASHED))


def log_tanh_slope(x: Tensor) -> Tensor:
    """log(1 − tanh²x), exact where the tanh is 1 in floating point."""
    return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))
