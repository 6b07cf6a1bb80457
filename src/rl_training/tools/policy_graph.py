"""A policy as one pure function of tensors: observations, memory and chance in, executed actions and memory out.

Everything that stands between an environment's observation and its action is inside: the normaliser, the networks, the
masks, the choice of the action and its way to the environment's bounds. Random numbers are an input, so that the same
inputs always give the same actions, on every machine that runs the graph.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree, observation_buffers, to_tensors
from rl_training.envs.masks import ACTION_MASK, is_masked, without_mask
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.actor_critic import Acted
from rl_training.models.actors import BoxActor
from rl_training.models.noisy import NoisyLinear
from rl_training.search.policy import SearchPolicy
from rl_training.tools.execution import execution
from rl_training.tools.given_noise import GivenNoise

OBS, STATE, NOISE, ACTION, NEXT_STATE = "obs", "state", "noise", "action", "next_state"
EXAMPLE_ROWS = 2


class Leaf(NamedTuple):
    """One array of an observation: where it stands, and what it is called as an input."""

    path: tuple[str, ...]
    name: str


def observation_leaves(of_task: Spaces) -> list[Leaf]:
    """`obs` where there is one array, `obs.<key>` where there are several; a mask is `action_mask`."""
    paths = _paths(of_task.observation)
    if not is_masked(of_task):
        return [Leaf(path, ".".join((OBS, *path))) for path in paths]
    assert isinstance(of_task.observation, spaces.Dict)
    has_keys = isinstance(without_mask(of_task.observation.spaces), dict)
    names = {path: ".".join((OBS, *path)) if has_keys else OBS for path in paths}
    return [Leaf(path, ACTION_MASK if path == (ACTION_MASK,) else names[path]) for path in paths]


def _paths(space: Any) -> list[tuple[str, ...]]:
    if isinstance(space, spaces.Dict):
        return [(key, *path) for key, sub in space.items() for path in _paths(sub)]
    return [()]


def pick(obs: Tree, leaves: Sequence[Leaf]) -> list[Any]:
    """The arrays of an observation in the order of its leaves."""
    picked = []
    for leaf in leaves:
        part = obs
        for key in leaf.path:
            part = part[key]
        picked.append(part)
    return picked


def _planted(leaves: Sequence[Leaf], values: Sequence[Tensor]) -> Tree:
    """The observation that the arrays are the leaves of."""
    if not leaves[0].path:
        return values[0]
    obs: dict[str, Any] = {}
    for leaf, value in zip(leaves, values, strict=True):
        part = obs
        for key in leaf.path[:-1]:
            part = part.setdefault(key, {})
        part[leaf.path[-1]] = value
    return obs


class Graph(nn.Module):
    """A function of tensors with names for what goes in and out. All have the batch as their first axis."""

    network: Any
    input_names: list[str]
    output_names: list[str]

    def examples(self) -> tuple[Tensor, ...]:
        """Inputs of the right shapes and types."""
        raise NotImplementedError

    def expected(self, policy: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        """The answers of the policy itself, as arrays or tensors on its own device."""
        raise NotImplementedError


class PolicyGraph(Graph):
    """`graph(obs, state, noise)`: the observation's arrays, then the memory and the chances if it has any.

    It gives the actions that the environment executes, and the memory for the next observation. The first is zero.
    """

    def __init__(self, policy: Any, of_task: Spaces, *, deterministic: bool = True) -> None:
        super().__init__()
        self.network = quiet_copy(policy, deterministic=deterministic)
        self.execute = execution(self.network)
        self.deterministic = deterministic
        self.leaves = observation_leaves(of_task)
        self.observations = to_tensors(observation_buffers(of_task.observation, (EXAMPLE_ROWS,)))
        self.state_size = self.network.initial_state(1).shape[1]
        self.noise_size = 0 if deterministic else self._count_noise()
        extra = [(STATE, self.state_size), (NOISE, self.noise_size)]
        self.input_names = [*(leaf.name for leaf in self.leaves), *(name for name, size in extra if size)]
        self.output_names = [ACTION, NEXT_STATE] if self.state_size else [ACTION]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        acted = self._act(self.network, inputs)
        actions = self.execute(acted.actions)
        return (actions, acted.state) if self.state_size else (actions,)

    def expected(self, policy: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        acted = self._act(policy, [part.to(policy.device) for part in inputs])
        actions = policy.env_actions(acted.actions.cpu().numpy())
        return (actions, acted.state) if self.state_size else (actions,)

    def _act(self, policy: Any, inputs: Sequence[Tensor]) -> Acted:
        rest = list(inputs[len(self.leaves) :])
        obs = _planted(self.leaves, inputs[: len(self.leaves)])
        state = rest.pop(0) if self.state_size else inputs[0].new_zeros(inputs[0].shape[0], 0, dtype=torch.float32)
        with GivenNoise(rest.pop(0) if self.noise_size else None):
            return policy.act(obs, state, deterministic=self.deterministic)

    def examples(self) -> tuple[Tensor, ...]:
        return self.inputs(self.observations, self.network.initial_state(EXAMPLE_ROWS))

    def inputs(self, obs: Tree, state: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The inputs for observations and memories, with new chances."""
        noise = torch.rand(len(state), self.noise_size, generator=generator)
        extra = [part for part, size in ((state, self.state_size), (noise, self.noise_size)) if size]
        return (*pick(obs, self.leaves), *extra)

    def _count_noise(self) -> int:
        with GivenNoise() as counting, torch.no_grad():
            self.network.act(self.observations, self.network.initial_state(EXAMPLE_ROWS), deterministic=False)
        return counting.used


def quiet_copy(policy: Any, *, deterministic: bool = True) -> Any:
    """The policy on the CPU, in evaluation mode, with plain layers in place of those that draw their own weights.

    Who never explores carries no noise from step to step either.
    """
    copied = copy.deepcopy(policy).cpu().eval().requires_grad_(False)
    if deterministic and isinstance(copied, BoxActor):
        copied.noise = replace(copied.noise, correlation=0.0)
    for parameter in copied.parameters():  # which were views of an optimizer's one tensor
        parameter.data = parameter.data.clone()
    for module in list(copied.modules()):
        for name, child in module.named_children():
            if isinstance(child, NoisyLinear):
                if not deterministic:
                    raise ConfigError("a noisy network draws its weights, which no graph does; export without sampling")
                setattr(module, name, _without_noise(child))
    return copied


def _without_noise(noisy: NoisyLinear) -> nn.Linear:
    plain = nn.Linear(noisy.weight.shape[1], noisy.weight.shape[0]).requires_grad_(False)
    plain.weight.copy_(noisy.weight)
    plain.bias.copy_(noisy.bias)
    return plain


class RootGraph(Graph):
    """A planner's first network: observations → latents, values and policy logits of roots."""

    output_names = ["latent", "value", "policy_logits"]

    def __init__(self, model: Any, of_task: Spaces) -> None:
        super().__init__()
        self.network = quiet_copy(model)
        self.leaves = observation_leaves(of_task)
        self.observations = to_tensors(observation_buffers(of_task.observation, (EXAMPLE_ROWS,)))
        self.input_names = [leaf.name for leaf in self.leaves]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.network.root(_planted(self.leaves, inputs))

    def expected(self, policy: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        return policy.model.root(_planted(self.leaves, [part.to(policy.device) for part in inputs]))

    def examples(self) -> tuple[Tensor, ...]:
        return tuple(pick(self.observations, self.leaves))


class DynamicsGraph(Graph):
    """A planner's second network: latents and actions, which count from 0 → what follows them."""

    input_names = ["latent", "action"]
    output_names = ["next_latent", "reward", "value", "policy_logits"]

    def __init__(self, root: RootGraph) -> None:
        super().__init__()
        self.network = root.network
        with torch.no_grad():
            self.latents = root(*root.examples())[0]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.network.recurrent(*inputs)

    def expected(self, policy: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        return policy.model.recurrent(*(part.to(policy.device) for part in inputs))

    def examples(self) -> tuple[Tensor, ...]:
        return self.latents, torch.zeros(len(self.latents), dtype=torch.int64)


def graphs_of(policy: Any, of_task: Spaces, *, deterministic: bool) -> Mapping[str, Graph]:
    """A policy's graphs by name: one, without a name, for whoever acts by a network; two for a planner."""
    if not isinstance(policy, SearchPolicy):
        return {"": PolicyGraph(policy, of_task, deterministic=deterministic)}
    if policy.model.sampled is not None:
        raise ConfigError(f"export: a planner that samples its actions, of {of_task.action}, cannot be written")
    if policy.model.state_size:
        raise ConfigError("export: a planner that remembers past steps (context_steps) cannot be written")
    root = RootGraph(policy.model, of_task)
    return {"root": root, "dynamics": DynamicsGraph(root)}
