"""The recurrent state-space model of DreamerV3: a GRU in blocks, and categorical variables drawn from what it knows.

`deter` is `[N, D]`; `stoch` is one-hot, flattened to `[N, G·K]`; `probs` is `[..., G, K]`, with one per cent of each
variable uniform. A zero state and a zero action stand before the first observation of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.normed import BlockLinear, NormedActivation, NormedMLP, linear
from rl_training.ops.categorical import one_hot_mode, one_hot_sample, straight_through, unimix
from rl_training.replaceable import replaceable


@dataclass(frozen=True)
class RSSMSize:
    deter: int
    hidden: int
    groups: int
    classes: int
    blocks: int = 1

    @property
    def stoch(self) -> int:
        return self.groups * self.classes


class Latent(NamedTuple):
    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """The input of every head."""
        return torch.cat([self.deter, self.stoch], dim=-1)


class Observed(NamedTuple):
    """The states of a sequence `[T, N, …]`, and the distributions that their stochastic parts came from."""

    latent: Latent
    posterior: Tensor
    prior: Tensor


class RSSM(nn.Module):
    def __init__(self, size: RSSMSize, action_size: int, token_size: int) -> None:
        super().__init__()
        self.size = size
        self.from_deter = linear(size.deter, size.hidden)
        self.from_stoch = linear(size.stoch, size.hidden)
        self.from_action = linear(action_size, size.hidden)
        self.input_activation = NormedActivation(3 * size.hidden, groups=3)
        block = size.deter // size.blocks
        self.hidden = BlockLinear(size.blocks, block + 3 * size.hidden, block)
        self.hidden_activation = NormedActivation(size.deter)
        self.gates = BlockLinear(size.blocks, block, 3 * block)
        self.prior_net = NormedMLP(size.deter, size.hidden, 2, size.stoch)
        self.posterior_deter = linear(size.deter, size.hidden)
        self.posterior_token = linear(token_size, size.hidden)
        self.posterior_activation = NormedActivation(size.hidden)
        self.posterior_last = linear(size.hidden, size.stoch)

    def initial(self, batch: int) -> Latent:
        weight = self.from_deter.weight
        return Latent(weight.new_zeros(batch, self.size.deter), weight.new_zeros(batch, self.size.stoch))

    def advance(self, latent: Latent, actions: Tensor) -> Tensor:
        """The next deterministic state."""
        return self._advance(latent, self.from_action(actions))

    def prior(self, deter: Tensor) -> Tensor:
        """The distribution of the stochastic state before the observation is seen."""
        return self._probs(self.prior_net(deter))

    def posterior(self, deter: Tensor, tokens: Tensor) -> Tensor:
        """The distribution of the stochastic state, given the encoded observation."""
        return self._posterior(deter, self.posterior_token(tokens))

    def sample(self, probs: Tensor, uniform: Tensor | None) -> Tensor:
        """One-hot, flattened, with a straight-through gradient; without `uniform` `[N, G, 1]`, the likeliest."""
        chosen = one_hot_mode(probs) if uniform is None else one_hot_sample(probs, uniform)
        return straight_through(chosen, probs).flatten(-2) if probs.requires_grad else chosen.flatten(-2)

    def observe(self, tokens: Tensor, previous_actions: Tensor, is_first: Tensor, uniform: Tensor) -> Observed:
        """Follows sequences `[T, N, …]` of observations; the state begins anew wherever an episode does."""
        goes_on = (~is_first).unsqueeze(-1).to(tokens.dtype)
        # What does not depend on the state is computed for the whole sequence at once.
        inputs = self.from_action(previous_actions * goes_on), self.posterior_token(tokens), goes_on, uniform
        deter, stoch, posterior = self.filtered(*inputs)
        return Observed(Latent(deter, stoch), posterior, self.prior(deter))

    @replaceable
    def filtered(
        self, action_inputs: Tensor, token_inputs: Tensor, goes_on: Tensor, uniform: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(deter, stoch, posterior) of each step; where `goes_on` `[T, N, 1]` is 0 the state is zero before it."""
        latent, steps = self.initial(uniform.shape[1]), []
        for action_input, token_input, keep, noise in zip(action_inputs, token_inputs, goes_on, uniform, strict=True):
            deter = self._advance(Latent(latent.deter * keep, latent.stoch * keep), action_input)
            probs = self._posterior(deter, token_input)
            latent = Latent(deter, self.sample(probs, noise))
            steps.append((*latent, probs))
        deter, stoch, posterior = map(torch.stack, zip(*steps, strict=True))
        return deter, stoch, posterior

    def _advance(self, latent: Latent, action_input: Tensor) -> Tensor:
        blocks = self.size.blocks
        inputs = torch.cat([self.from_deter(latent.deter), self.from_stoch(latent.stoch), action_input], dim=-1)
        inputs = self.input_activation(inputs).unsqueeze(1).expand(-1, blocks, -1)
        grouped = latent.deter.unflatten(-1, (blocks, -1))
        hidden = self.hidden_activation(self.hidden(torch.cat([grouped, inputs], dim=-1)).flatten(1))
        return gated(self.gates(hidden.unflatten(-1, (blocks, -1))), grouped).flatten(1)

    def _posterior(self, deter: Tensor, token_input: Tensor) -> Tensor:
        hidden = self.posterior_activation(self.posterior_deter(deter) + token_input)
        return self._probs(self.posterior_last(hidden))

    def _probs(self, logits: Tensor) -> Tensor:
        return unimix(logits.unflatten(-1, (self.size.groups, self.size.classes)))


@replaceable
def gated(gates: Tensor, state: Tensor) -> Tensor:
    """The state `[..., W]` of a GRU after `gates` `[..., 3W]`, reset, candidate and update, which begins low."""
    reset, candidate, update = gates.chunk(3, dim=-1)
    return torch.lerp(state, torch.tanh(reset.sigmoid() * candidate), torch.sigmoid(update - 1.0))
