"""Several tasks at once: groups of environments that step together as one, whatever their spaces are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.data.trees import tree_leaves, tree_map, zeros_for
from rl_training.envs.masks import ACTION_MASK, is_masked, seen_space, without_mask
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.errors import ConfigError

TASK = "task"


class TaskObservations(spaces.Dict):
    """The number of a task and a column for each distinct observation space; all but the task's own column are 0.

    If any task has action masks, there is one for all: it also rules out the actions that a task does not have.
    """

    def __init__(self, names: Sequence[str], of_tasks: Sequence[Spaces]) -> None:
        self.names, self.of_tasks = tuple(names), tuple(of_tasks)
        self.columns: tuple[str, ...] = ()  # of each task
        self.actions: tuple[spaces.Discrete, ...] = ()
        distinct: list[spaces.Space] = []
        for name, task in zip(names, of_tasks, strict=True):
            if not isinstance(task.action, spaces.Discrete):
                raise ConfigError(f"tasks need Discrete actions, {name} has {task.action}")
            seen = seen_space(task)
            if seen not in distinct:
                distinct.append(seen)
            self.columns += (f"obs_{distinct.index(seen)}",)
            self.actions += (task.action,)
        self.num_actions = tuple(int(action.n) for action in self.actions)
        columns = {f"obs_{index}": space for index, space in enumerate(distinct)}
        self.has_masks = any(map(is_masked, of_tasks))
        mask = {ACTION_MASK: spaces.MultiBinary((max(self.num_actions),))} if self.has_masks else {}
        super().__init__({**columns, TASK: spaces.Discrete(len(self.names)), **mask})


class MultiTaskEnvs(Envs):
    """Has as many actions as the task with the most; where a task has fewer, the others count from its first again."""

    def __init__(self, names: Sequence[str], groups: Sequence[Envs]) -> None:
        self.groups = groups
        self.tasks = tuple(name for name, group in zip(names, groups, strict=True) for _ in range(group.num_envs))
        self.num_envs = len(self.tasks)
        self.restorable = all(group.restorable for group in groups)
        self.observations = TaskObservations(names, [group.spaces for group in groups])
        self.spaces = Spaces(self.observations, spaces.Discrete(max(self.observations.num_actions)))
        self._is_masked = [is_masked(group.spaces) for group in groups]
        self._firsts = [0, *accumulate(group.num_envs for group in groups)]

    def reset(self, seed: int) -> Any:
        firsts = zip(self.groups, self._firsts, strict=False)
        return self._joined([group.reset(seed + first) for group, first in firsts])

    def step(self, actions: NDArray[Any]) -> EnvStep:
        parts = zip(self.groups, self.observations.actions, np.split(actions, self._firsts[1:-1]), strict=True)
        steps = [group.step(chosen % space.n + space.start) for group, space, chosen in parts]
        ended = [(task, step.final_obs) for task, step in enumerate(steps) if len(step.final_rows)]
        firsts = list(zip(steps, self._firsts, strict=False))
        flags = ("rewards", "terminated", "truncated", "valid", "starts")
        return EnvStep(
            obs=self._joined([step.obs for step in steps]),
            final_rows=np.concatenate([s.final_rows + first for s, first in firsts]),
            final_obs=_stacked([self._of_task(task, obs) for task, obs in ended]) if ended else None,
            infos=tuple((row + first, told) for s, first in firsts for row, told in s.infos),
            **{name: np.concatenate([getattr(step, name) for step in steps]) for name in flags},
        )

    @property
    def kind(self) -> str:
        return "+".join(group.kind for group in self.groups)

    def state_dict(self) -> dict[str, Any]:
        return {"groups": [group.state_dict() for group in self.groups]}

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        saved = zip(self.groups, state["groups"], strict=True)
        return self._joined([group.load_state_dict(own) for group, own in saved])

    def close(self) -> None:
        for group in self.groups:
            group.close()

    def _joined(self, observations: Sequence[Any]) -> Any:
        return _stacked([self._of_task(task, obs) for task, obs in enumerate(observations)])

    def _of_task(self, task: int, obs: Any) -> Any:
        """A batch of a task's observations as those of all tasks."""
        column = self.observations.columns[task]
        own = tree_map(np.asarray, obs)
        count, actions = len(tree_leaves(own)[0]), self.observations.num_actions[task]
        rows = zeros_for(self.observations, (count,))
        if self.observations.has_masks:
            rows[ACTION_MASK][:, :actions] = own[ACTION_MASK] if self._is_masked[task] else 1
        own = without_mask(own) if self._is_masked[task] else own
        return rows | {column: own, TASK: np.full_like(rows[TASK], task)}


def _stacked(batches: Sequence[Any]) -> Any:
    return tree_map(lambda *leaves: np.concatenate(leaves), *batches)


def split_evenly(num_envs: int, tasks: Sequence[str]) -> list[int]:
    """How many of the environments each task gets."""
    if num_envs < len(tasks):
        raise ConfigError(f"{len(tasks)} tasks need at least as many environments or episodes, got {num_envs}")
    return [len(part) for part in np.array_split(np.arange(num_envs), len(tasks))]
