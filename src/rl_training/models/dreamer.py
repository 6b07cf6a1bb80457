"""Dreamer's networks: the world model, the actor and the critic; and the policy that carries a state through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.envs.masks import ACTION_MASK
from rl_training.envs.types import ImageLayout, Spaces
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import Acted
from rl_training.models.heads import POLICY_GAIN, ActionHead, CategoricalHead, GaussianHead
from rl_training.models.masking import ILLEGAL, ObsView
from rl_training.models.mlp import orthogonal
from rl_training.models.normed import NormedMLP
from rl_training.models.observation_codec import CodecSize, ObsDecoder, ObsEncoder, ObsReader, Seen
from rl_training.models.rssm import RSSM, Latent, RSSMSize
from rl_training.models.torsos import TorsoOptions, make_torso
from rl_training.ops.categorical import symmetric_mean, unimix
from rl_training.ops.transforms import symexp_bins, symlog

MIN_STD, MAX_STD = 0.1, 1.0


class DreamerSize(NamedTuple):
    rssm: RSSMSize
    codec: CodecSize
    units: int  # of the actor, the critic and the other heads
    layers: int  # of the actor and the critic


def published(deter: int, units: int, classes: int, depth: int) -> DreamerSize:
    """The proportions of Hafner et al. (2025)."""
    rssm = RSSMSize(deter, units, groups=32, classes=classes, blocks=8)
    return DreamerSize(rssm, CodecSize(units, 3, depth), units, 3)


SIZES: dict[str, DreamerSize] = {
    # The first is for classic control on a CPU; the others are the paper's 1M, 12M, 25M, 50M, 100M and 200M.
    "nano": DreamerSize(RSSMSize(96, 48, groups=8, classes=8), CodecSize(64, 2, 8), 64, 2),
    "xxs": published(512, 64, 4, 4),
    "xs": published(2048, 256, 16, 16),
    "s": published(3072, 384, 24, 24),
    "m": published(4096, 512, 32, 32),
    "l": published(6144, 768, 48, 48),
    "xl": published(8192, 1024, 64, 64),
}


class UnimixHead(CategoricalHead):
    """One categorical or several, of each of which one per cent is uniform."""

    def forward(self, features: Tensor) -> Tensor:
        logits = F.linear(features, self.linear.weight, self.linear.bias)
        if not self.joint:
            return unimix(logits).log()
        return torch.cat([unimix(part).log() for part in logits.split(self.classes, dim=-1)], dim=-1)


class BoundedGaussianHead(GaussianHead):
    """Mean in [−1, 1], deviation in [0.1, 1], both from the state; what is executed is the sample clipped to [−1, 1].

    An axis without two bounds is acted in as far as [−1, 1] goes, moved inside of the bound that it has.
    """

    def __init__(self, in_features: int, space: spaces.Box) -> None:
        super().__init__(in_features, space, log_std_init=0.0)
        del self.log_std
        self.scale.move_inside()
        self.linear = orthogonal(nn.Linear(in_features, 2 * self.linear.out_features), POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        mean, spread = F.linear(features, self.linear.weight, self.linear.bias).chunk(2, dim=-1)
        std = MIN_STD + (MAX_STD - MIN_STD) * torch.sigmoid(spread + 2.0)
        return torch.cat([mean.tanh(), std.log()], dim=-1)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return super().to_env(actions.clip(-1.0, 1.0))


def make_dreamer_head(space: gym.Space, in_features: int) -> ActionHead:
    if isinstance(space, spaces.Discrete):
        return UnimixHead(in_features, [int(space.n)], start=space.start)
    if isinstance(space, spaces.Box):
        return BoundedGaussianHead(in_features, space)
    if isinstance(space, spaces.MultiDiscrete) and len(space.nvec.shape) == 1:
        return UnimixHead(in_features, [int(n) for n in space.nvec], joint=True, start=space.start)
    raise ConfigError(f"action space {space} is not supported by Dreamer; use Discrete, MultiDiscrete or Box")


class Imagined(NamedTuple):
    """Dreamt trajectories: features of H + 1 states `[H + 1, N, F]`, the H actions between them.

    `legal` `[H, N, A]` says which actions were taken to be legal, where environments give action masks.
    """

    features: Tensor
    actions: Tensor
    legal: Tensor | None = None


class DreamerModel(nn.Module):
    """Its state, `[B, S]`, is the latent state before the observation and the action that led there."""

    bins: Tensor

    def __init__(
        self,
        spaces: Spaces,
        size: DreamerSize,
        *,
        num_bins: int,
        bin_limit: float,
        image_layout: ImageLayout,
        torso: Any = None,
        torso_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """A `torso` takes the place of the encoder, and reads observations as they are."""
        super().__init__()
        self.view = ObsView(spaces)
        self.reader = ObsReader(spaces.observation, image_layout)
        self.has_own_torso = torso is not None
        self.encoder: Any = ObsEncoder(self.reader, size.codec)
        if self.has_own_torso:
            widths = (size.codec.units,) * size.codec.layers
            self.encoder = make_torso(
                self.view.space,
                TorsoOptions(widths, "silu", "nature", image_layout, "float32", torso, torso_kwargs or {}),
            )
        features = size.rssm.deter + size.rssm.stoch
        self.actor = NormedMLP(features, size.units, size.layers)
        self.head = make_dreamer_head(spaces.action, size.units)
        self.action_size = _action_size(self.head)
        self.rssm = RSSM(size.rssm, self.action_size, self.encoder.out_features)
        self.decoder = ObsDecoder(self.reader, features, size.codec)
        self.reward = NormedMLP(features, size.units, 1, num_bins, out_scale=0.0)
        self.goes_on = NormedMLP(features, size.units, 1, 1)
        self.critic = NormedMLP(features, size.units, size.layers, num_bins, out_scale=0.0)
        self.register_buffer("bins", symexp_bins(num_bins, bin_limit), persistent=False)

    @property
    def device(self) -> torch.device:
        return self.bins.device

    def initial_state(self, batch: int) -> Tensor:
        width = self.rssm.size.deter + self.rssm.size.stoch + self.action_size
        return torch.zeros(batch, width, device=self.device)

    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        uniform = None if deterministic else self.uniform(state.shape[0], generator=generator)
        latent = self._perceive(obs, state, uniform)
        dist = self.view.masked(self.head(self.actor(latent.features)), obs)
        actions = self.head.mode(dist) if deterministic else self.head.sample(dist, generator)
        carried = torch.cat([*latent, self.encode_actions(actions)], dim=-1)
        return Acted(actions, carried)

    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        """The state goes on as if the policy had chosen the actions."""
        latent = self._perceive(obs, state, self.uniform(len(state), generator=generator))
        actions = self.random_actions(obs, len(state), generator)
        return Acted(actions, torch.cat([*latent, self.encode_actions(actions)], dim=-1))

    def random_actions(self, obs: Tree, rows: int, generator: torch.Generator | None) -> Tensor:
        """Actions that are uniform over those that are legal."""
        if not self.view.is_masked:
            return self.head.random(rows, generator, self.device)
        alike = torch.zeros(rows, self.action_size, device=self.device)
        return self.head.sample(self.view.masked(alike, obs), generator)

    def dreamt_policy(self, features: Tensor, legal: Tensor | None) -> Tensor:
        """The actor's distributions in imagined states, over the actions that are expected to be legal there."""
        dist = self.head(self.actor(features))
        if legal is None:
            return dist
        assert isinstance(self.head, CategoricalHead)
        return self.head.renormalized(dist.masked_fill(~legal, ILLEGAL))

    @torch.no_grad()
    def expected_legal(self, features: Tensor) -> Tensor | None:
        """Which actions the decoder takes to be likelier legal than not; all, where it takes none."""
        if not self.view.is_masked:
            return None
        assert self.decoder.mlp is not None
        mask = self.decoder.mlp(features)[:, self.reader.columns((ACTION_MASK,))]
        legal = mask > symlog(mask.new_tensor(0.5))
        return legal | ~legal.any(-1, keepdim=True)

    def encode(self, obs: Tree, seen: Seen) -> Tensor:
        """The tokens `[N, E]` of observations, which the reader made into `seen`."""
        return self.encoder(self.view.seen(obs)) if self.has_own_torso else self.encoder(seen)

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.head.to_env(actions)

    def encode_actions(self, actions: Tensor) -> Tensor:
        """Actions as the world model takes them: one-hot, or clipped as they are on their way to the environment."""
        if isinstance(self.head, CategoricalHead):
            parts = actions.unbind(-1) if self.head.joint else (actions,)
            encoded = [F.one_hot(part, n) for part, n in zip(parts, self.head.classes, strict=True)]
            return torch.cat(encoded, dim=-1).float()
        batch = actions.shape[: actions.dim() - len(self.head.action_shape)]
        return actions.reshape(*batch, -1).clamp(-1.0, 1.0)

    def expected(self, logits: Tensor) -> Tensor:
        """The number that logits over `bins` stand for."""
        return symmetric_mean(logits.softmax(-1), self.bins)

    def uniform(self, *shape: int, generator: torch.Generator | None) -> Tensor:
        """The random numbers that choose stochastic states `[*shape, G, 1]`."""
        return torch.rand(*shape, self.rssm.size.groups, 1, generator=generator, device=self.device)

    @torch.no_grad()
    def imagine(self, start: Latent, horizon: int, generator: torch.Generator | None) -> Imagined:
        """Dreams: the actor acts and the world model answers; no gradient reaches either."""
        latent, features, actions, masks = start, [start.features], [], []
        for uniform in self.uniform(horizon, len(start.deter), generator=generator):
            legal = self.expected_legal(features[-1])
            actions.append(self.head.sample(self.dreamt_policy(features[-1], legal), generator))
            masks += [] if legal is None else [legal]
            deter = self.rssm.advance(latent, self.encode_actions(actions[-1]))
            latent = Latent(deter, self.rssm.sample(self.rssm.prior(deter), uniform))
            features.append(latent.features)
        return Imagined(torch.stack(features), torch.stack(actions), torch.stack(masks) if masks else None)

    def _perceive(self, obs: Tree, state: Tensor, uniform: Tensor | None) -> Latent:
        size = self.rssm.size
        deter, stoch, action = state.split([size.deter, size.stoch, self.action_size], dim=-1)
        deter = self.rssm.advance(Latent(deter, stoch), action)
        probs = self.rssm.posterior(deter, self.encode(obs, self.reader(obs)))
        return Latent(deter, self.rssm.sample(probs, uniform))


def _action_size(head: ActionHead) -> int:
    if isinstance(head, CategoricalHead):
        return sum(head.classes)
    return int(torch.Size(head.action_shape).numel())
