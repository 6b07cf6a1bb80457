"""An actor-critic with a memory: LSTM, GRU or attention cores between the torsos and the heads.

Inside a sequence the state begins anew wherever an episode does. The recurrent kernels know nothing of episodes, so a
batch of sequences `[T, N]` is cut at the starts into segments, and all segments run side by side, padded at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rl_training.data.trees import Tree, flatten_time, tree_leaves
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import Acted, ActorCritic, Evaluated, PolicyOptions
from rl_training.models.attention import AttentionCore

Cell = Literal["lstm", "gru", "transformer"]
KEEPING_BIAS = 1.0


@dataclass(frozen=True)
class CoreOptions:
    cell: Cell
    size: int
    length: int  # the rows that a transformer sees
    heads: int


def make_core(in_features: int, options: CoreOptions) -> RecurrentCore | AttentionCore:
    if options.cell == "transformer":
        return AttentionCore(in_features, options.size, length=options.length, heads=options.heads)
    return RecurrentCore(in_features, options)


class RecurrentCore(nn.Module):
    """`state` is `[N, S]`: h, and for an LSTM c beside it."""

    def __init__(self, in_features: int, options: CoreOptions) -> None:
        super().__init__()
        kind = nn.LSTM if options.cell == "lstm" else nn.GRU
        self.rnn = kind(in_features, options.size)
        self.has_cell = options.cell == "lstm"
        self.state_size = options.size * (2 if self.has_cell else 1)
        for name, parameter in self.rnn.named_parameters():
            _ = nn.init.orthogonal_(parameter) if "weight" in name else nn.init.zeros_(parameter)
        self._remember_at_first()

    @torch.no_grad()
    def _remember_at_first(self) -> None:
        """Opens the gate that keeps the state (Jozefowicz et al., 2015).

        At a bias of 0 half of it is lost in every step: of a cue that was seen ten steps ago, a thousandth is left.
        """
        gates = dict(self.rnn.named_parameters())["bias_ih_l0"].chunk(4 if self.has_cell else 3)
        gates[1].fill_(KEEPING_BIAS)  # both kinds have it second

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs [T, N, H], state after the last row) of inputs [T, N, F] without episode starts."""
        if self.has_cell:
            hidden = tuple(part.contiguous()[None] for part in state.chunk(2, dim=-1))
            outputs, (h, c) = self.rnn(inputs, hidden)
            return outputs, torch.cat([h[0], c[0]], dim=-1)
        outputs, h = self.rnn(inputs, state[None])
        return outputs, h[0]


class Segments:
    """Where each row of `[T, N]` sequences stands among the padded segments `[length, count]`."""

    def __init__(self, starts: Tensor) -> None:
        steps, sequences = starts.shape
        first = starts.clone()
        first[0] = True
        rows = torch.arange(steps * sequences, device=starts.device)  # sequence by sequence
        begins = first.T.reshape(-1).nonzero()[:, 0]
        index = first.T.reshape(-1).cumsum(0) - 1
        offset = rows - begins[index]
        self.count = len(begins)
        self.length = int(offset.max()) + 1
        self.index = index.reshape(sequences, steps).T
        self.offset = offset.reshape(sequences, steps).T

    def pad(self, rows: Tensor) -> Tensor:
        """[T, N, F] → [length, count, F]"""
        padded = rows.new_zeros(self.length, self.count, rows.shape[-1])
        return padded.index_put((self.offset, self.index), rows)

    def unpad(self, padded: Tensor) -> Tensor:
        """[length, count, F] → [T, N, F]"""
        return padded[self.offset, self.index]

    def first_states(self, state: Tensor, initial: Tensor) -> Tensor:
        """The sequences' own states for the segments they begin with, initial ones for all others."""
        return initial.index_put((self.index[0],), state)


class RecurrentActorCritic(ActorCritic):
    """Policy and value each have a torso and a core, or share both (`share_torso`)."""

    def __init__(self, spaces: Spaces, options: PolicyOptions, core: CoreOptions) -> None:
        super().__init__(spaces, options, head_features=core.size)
        width = self.actor_torso.out_features
        cores = [make_core(width, core) for _ in range(1 if self.shares_torso else 2)]
        self.cores = nn.ModuleList(cores)
        self.state_size = len(cores) * cores[0].state_size

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, self.state_size, device=self.device)

    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        inputs = [features[None] for features in self._torso_features(obs)]
        outputs, following = self._run(inputs, state)
        dist = self._dist(outputs[0][0], obs)
        actions = self.head.mode(dist) if deterministic else self.head.sample(dist, generator)
        logprobs = self.head.log_probs(dist, actions)
        return Acted(actions, following, logprobs, self._value(outputs[-1][0]), {"state": state})

    def evaluate_actions(
        self, obs: Tree, actions: Tensor, *, state: Tensor | None = None, starts: Tensor | None = None
    ) -> Evaluated:
        """Evaluates sequences `[T, N, …]` that begin with `state`, by default the initial one; answers are `[T·N]`."""
        steps, sequences = tree_leaves(obs)[0].shape[:2]
        rows = flatten_time(obs)
        inputs = [f.reshape(steps, sequences, -1) for f in self._torso_features(rows)]
        state = self.initial_state(sequences) if state is None else state
        outputs = self._run(inputs, state)[0] if starts is None else self._run_segments(inputs, state, starts)
        dist = self._dist(outputs[0].flatten(0, 1), rows)
        actions = actions.flatten(0, 1)
        values = self._value(outputs[-1].flatten(0, 1))
        return Evaluated(self.head.log_probs(dist, actions), self.head.entropy(dist), values, dist)

    def distribution(self, obs: Tree) -> Tensor:
        raise NotImplementedError("a recurrent policy has no distribution without a state; use act")

    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        features = self._torso_features(obs)
        state = self.initial_state(len(features[0])) if state is None else state
        outputs, _ = self._run([f[None] for f in features], state)
        return self._value(outputs[-1][0])

    def _torso_features(self, obs: Tree) -> list[Tensor]:
        """Returns the features that each core sees: the policy's, then the value's if it has its own."""
        obs = self._normalized(obs)
        torsos = (self.actor_torso,) if self.shares_torso else (self.actor_torso, self.critic_torso)
        return [torso(obs) for torso in torsos]

    def _run(self, inputs: list[Tensor], state: Tensor) -> tuple[list[Tensor], Tensor]:
        """Each core's outputs `[T, N, H]`, and all their states afterwards, side by side."""
        states = state.chunk(len(self.cores), dim=-1)
        results = [core(x, own) for core, x, own in zip(self.cores, inputs, states, strict=True)]
        return [outputs for outputs, _ in results], torch.cat([after for _, after in results], dim=-1)

    def _run_segments(self, inputs: list[Tensor], state: Tensor, starts: Tensor) -> list[Tensor]:
        state = torch.where(starts[0][:, None], self.initial_state(len(state)), state)
        if not starts[1:].any():
            return self._run(inputs, state)[0]
        segments = Segments(starts)
        first = segments.first_states(state, self.initial_state(segments.count))
        outputs, _ = self._run([segments.pad(x) for x in inputs], first)
        return [segments.unpad(padded) for padded in outputs]
