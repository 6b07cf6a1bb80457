"""ScaleZero's model: a transformer over (observation, action) tokens that several tasks share (Pu et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.data.trees import Tree, flatten_time, tree_map
from rl_training.envs.multitask import TASK, TaskObservations
from rl_training.envs.types import Spaces
from rl_training.models.masking import ILLEGAL
from rl_training.models.muzero import (
    MuZeroOptions,
    PlanningModel,
    Unrolled,
    with_biases,
    zeroed,
)
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.torsos import make_torso
from rl_training.models.transformer import Transformer, TransformerOptions

ALONE = ""  # the column of a task that is the only one


@dataclass(frozen=True)
class ScaleZeroOptions(MuZeroOptions):
    """`latent_size` is the width of the transformer, `hidden_size` that of an expert."""

    latent_size: int
    transformer: TransformerOptions
    unroll_steps: int  # imagined
    context_steps: int  # remembered


class Context(NamedTuple):
    """The last steps of `B` episodes, the newest last; an episode with fewer has nothing real in the places before."""

    latents: Tensor  # [B, C, D]
    actions: Tensor  # [B, C]
    lengths: Tensor  # [B] real steps

    def packed(self) -> Tensor:
        columns = (self.actions.float(), self.lengths[:, None].float())
        return torch.cat([self.latents.flatten(1), *columns], dim=-1)

    def followed_by(self, latents: Tensor, actions: Tensor) -> Context:
        """The steps after one more, with latents `[B, D]` and actions `[B]`; the oldest goes."""
        steps = self.actions.shape[1]
        latents = torch.cat([self.latents, latents[:, None]], dim=1)
        actions = torch.cat([self.actions, actions[:, None]], dim=1)
        return Context(latents[:, 1:], actions[:, 1:], (self.lengths + 1).clamp_max(steps))

    def step(self, index: int) -> tuple[Tensor, Tensor]:
        """(latents, actions) of the steps so many after each row's first; where there is none, of any."""
        steps = self.actions.shape[1]
        places = (steps - self.lengths + index).clamp_max(steps - 1)
        rows = torch.arange(len(places), device=places.device)
        return self.latents[rows, places], self.actions[rows, places]


class Node(NamedTuple):
    """`B` nodes of the search, side by side in a row: all that is needed to go on from them."""

    latents: Tensor  # [B, D]
    tasks: Tensor  # [B]
    lengths: Tensor  # [B] tokens up to here
    memory: Tensor  # [B, L, 2, H, S, D/H] their keys and values

    def packed(self) -> Tensor:
        columns = (self.tasks[:, None].float(), self.lengths[:, None].float(), self.memory.flatten(1))
        return torch.cat([self.latents, *columns], dim=-1)


class TaskEncoder(nn.Module):
    """Observations of one space → latents of zero mean and unit variance."""

    def __init__(self, space: gym.Space, options: ScaleZeroOptions) -> None:
        super().__init__()
        self.normalizer = ObsNormalizer(space) if options.normalize_obs else None
        self.torso = with_biases(make_torso(space, options.torso))
        self.project = nn.Linear(self.torso.out_features, options.latent_size)

    def forward(self, obs: Tree) -> Tensor:
        return normed(self.project(self.torso(obs if self.normalizer is None else self.normalizer(obs))))


class TaskHead(nn.Module):
    """A linear head of each task; all are computed, which for a few tasks is quicker than to sort the rows."""

    def __init__(self, width: int, outputs: int, tasks: int) -> None:
        super().__init__()
        self.heads = zeroed(nn.Linear(width, tasks * outputs))
        self.tasks = tasks

    def forward(self, x: Tensor, tasks: Tensor) -> Tensor:
        """Features `[…, B, D]` of rows whose tasks are `[B]`."""
        answers = self.heads(x).unflatten(-1, (self.tasks, -1))
        return answers[..., torch.arange(tasks.shape[0], device=tasks.device), tasks, :]


def normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


class ScaleZeroModel(PlanningModel):
    """Tokens are z₀ a₀ z₁ a₁ …: policy and value are read from z, the reward and the next latent from a.

    An update sees the real observations as z, a search those that the model imagines. One task is the special case.
    """

    legal: Tensor

    def __init__(self, spaces: Spaces, options: ScaleZeroOptions) -> None:
        super().__init__(spaces, options.support_size)
        counts: tuple[int, ...] = (self.num_actions,)
        encoded = {ALONE: self.view.space}
        self.tasks_of: dict[str, list[int]] = {ALONE: [0]}  # the tasks that an encoder serves, by its column
        self.task_names: tuple[str, ...] = ()
        if isinstance(spaces.observation, TaskObservations):
            counts, columns = spaces.observation.num_actions, spaces.observation.columns
            self.task_names = spaces.observation.names
            encoded = {name: spaces.observation[name] for name in dict.fromkeys(columns)}
            self.tasks_of = {name: [t for t, own in enumerate(columns) if own == name] for name in encoded}
        self.encoders = nn.ModuleList(TaskEncoder(space, options) for space in encoded.values())
        width, tasks, bins = options.latent_size, len(counts), len(self.support)
        self.task_tokens = nn.Parameter(torch.randn(tasks, width) * 0.02)
        self.action_tokens = nn.Parameter(torch.randn(tasks, self.num_actions, width) * width**-0.5)
        self.context_steps = options.context_steps
        self.state_size = self.context_steps and self.context_steps * (width + 1) + 1
        tokens = 2 * (options.context_steps + options.unroll_steps) + 1
        self.transformer = Transformer(width, options.hidden_size, tokens, options.transformer)
        self.experts_per_token = options.transformer.experts_per_token
        self.next_latent = zeroed(nn.Linear(width, width))
        self.policy_head = TaskHead(width, self.num_actions, tasks)
        self.value_head, self.reward_head = TaskHead(width, bins, tasks), TaskHead(width, bins, tasks)
        legal = torch.arange(self.num_actions) < torch.tensor(counts)[:, None]
        self.register_buffer("legal", legal, persistent=False)

    def represent(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """(latents `[B, D]`, tasks `[B]`); a row goes through the encoder of its task."""
        if ALONE in self.tasks_of:
            latents = self.encoders[0](self.view.seen(obs))
            return latents, torch.zeros(latents.shape[0], dtype=torch.int64, device=self.device)
        tasks = obs[TASK].long()
        latents = self.support.new_zeros(len(tasks), self.transformer.width)
        for encoder, name in zip(self.encoders, self.tasks_of, strict=True):
            rows, own = self._rows_of(name, obs)
            latents = latents.index_copy(0, rows, encoder(own))
        return latents, tasks

    def update_statistics(self, obs: Tree) -> None:
        for encoder, name in zip(self.encoders, self.tasks_of, strict=True):
            assert isinstance(encoder, TaskEncoder)
            if encoder.normalizer is not None:
                encoder.normalizer.update(self.view.seen(obs) if name == ALONE else self._rows_of(name, obs)[1])

    def unroll(self, obs: Tree, actions: Tensor) -> Unrolled:
        """Along observations `[K + 1, B, …]` all at once; `latents` are the first's, then those predicted."""
        steps, batch = len(actions), actions.shape[1]
        flat, tasks = self.represent(flatten_time(obs))
        latents, tasks = flat.unflatten(0, (steps + 1, batch)), tasks[:batch]
        states = latents + self.task_tokens[tasks]
        pairs = torch.stack([states[:-1], self.act(tasks, actions)], dim=1).flatten(0, 1)
        features, routing = self.transformer(torch.cat([pairs, states[-1:]]))
        imagined = self.next_latents(latents[:-1], features[1::2])
        policy, value = self.predict(features[0::2], tasks)
        reward = self.reward_head(features[1::2], tasks)
        return Unrolled(policy, value, reward, torch.cat([latents[:1], imagined]), routing)

    def act(self, tasks: Tensor, actions: Tensor) -> Tensor:
        """The tokens of actions `[…, B]`."""
        return self.action_tokens[tasks, actions] + self.task_tokens[tasks]

    def next_latents(self, latents: Tensor, features: Tensor) -> Tensor:
        """The latents that follow, given the features of the actions."""
        return normed(latents + self.next_latent(features))

    def predict(self, features: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """(policy logits, value logits)."""
        policy = self.policy_head(features, tasks).masked_fill(~self.legal[tasks], ILLEGAL)
        return policy, self.value_head(features, tasks)

    def initial(self, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        latents, tasks = self.represent(obs)
        return self._evaluated(Node(latents, tasks, torch.zeros_like(tasks), self._fresh_memory(latents.shape[0])))

    def initial_after(self, state: Tensor, obs: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """Reads the steps that are remembered before the roots, which stand behind them."""
        if not self.context_steps:
            return self.initial(obs)
        latents, tasks = self.represent(obs)
        context, memory = self.context_of(state), self._fresh_memory(latents.shape[0])
        for index in range(int(context.lengths.max())):
            seen, taken = context.step(index)
            place = torch.full_like(tasks, 2 * index)
            # A row with fewer steps reads one that is not there, to a place which its root or a later token overwrites.
            self.transformer.step(seen + self.task_tokens[tasks], memory, place)
            self.transformer.step(self.act(tasks, taken), memory, place + 1)
        return self._evaluated(Node(latents, tasks, 2 * context.lengths, memory))

    def remember(self, state: Tensor, obs: Tree, actions: Tensor) -> Tensor:
        if not self.context_steps:
            return state
        return self.context_of(state).followed_by(self.represent(obs)[0], actions).packed()

    def context_of(self, state: Tensor) -> Context:
        steps, width = self.context_steps, self.transformer.width
        latents, actions, lengths = state.split([steps * width, steps, 1], dim=-1)
        return Context(latents.unflatten(1, (steps, width)), actions.long(), lengths[:, 0].long())

    def _fresh_memory(self, batch: int) -> Tensor:
        return self.support.new_zeros(batch, *self.transformer.memory_shape)

    def recurrent(self, latents: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        node = self.unpacked(latents)
        features = self.transformer.step(self.act(node.tasks, actions), node.memory, node.lengths)
        following = self.next_latents(node.latents, features)
        reward = self.scalar(self.reward_head(features, node.tasks))
        packed, value, policy = self._evaluated(node._replace(latents=following, lengths=node.lengths + 1))
        return packed, reward, value, policy

    def unpacked(self, rows: Tensor) -> Node:
        """Copies: the search keeps the parents' rows as they are."""
        width = self.transformer.width
        tasks, lengths = (rows[:, width + i].long() for i in range(2))
        memory = rows[:, width + 2 :].clone().unflatten(1, self.transformer.memory_shape)
        return Node(rows[:, :width], tasks, lengths, memory)

    def _evaluated(self, node: Node) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, values, policy logits) of nodes that have still to read their latents."""
        states = node.latents + self.task_tokens[node.tasks]
        policy, value = self.predict(self.transformer.step(states, node.memory, node.lengths), node.tasks)
        return node._replace(lengths=node.lengths + 1).packed(), self.scalar(value), policy

    def _rows_of(self, column: str, obs: Tree) -> tuple[Tensor, Tree]:
        """(indices, observations) of the rows whose tasks have the column."""
        own = torch.tensor(self.tasks_of[column], device=self.device)
        rows = torch.isin(obs[TASK], own).nonzero()[:, 0]
        return rows, tree_map(lambda leaf: leaf[rows], obs[column])
