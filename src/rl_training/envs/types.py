"""The one step semantics that every environment backend is brought to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.envs.infos import InfoRow


class Spaces(NamedTuple):
    """The spaces of one environment, not of the batch."""

    observation: gym.Space
    action: gym.Space


class EnvStep(NamedTuple):
    """The answer of `B` environments to their actions.

    `obs` is what the policy sees next, until the next step overwrites it. Where an episode ended and the backend has
    already begun the next one, the observation that ended it is in `final_obs`, one for each index in `final_rows`.
    `valid` is False for an environment that ignored the action because it only reset itself.
    """

    obs: Any
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    starts: NDArray[np.bool_]  # `obs` is the first of an episode
    final_rows: NDArray[np.int64]
    final_obs: Any | None
    infos: tuple[InfoRow, ...] = ()  # the numbers that environments told about this step


ImageLayout = Literal["auto", "channels_first", "channels_last"]


def channels_last(shape: tuple[int, ...], layout: ImageLayout = "auto") -> bool:
    """Whether the channels of an image are its last axis.

    The rule of `auto`: the sides of an image are alike, so of (84, 84, 12) and (12, 84, 84) the 12 are channels. Where
    neither the first two nor the last two axes alone are equal, the shorter end is: (210, 160, 3). A cube's are last.
    """
    if layout != "auto":
        return layout == "channels_last"
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    return last <= first


class Envs(ABC):
    """`num_envs` environments that step together and restart by themselves."""

    num_envs: int
    spaces: Spaces
    tasks: tuple[str, ...] = ()  # the task of each environment, where there are several
    restorable: bool = False  # whether `state_dict` holds the whole state

    @property
    def kind(self) -> str:
        """Names who steps them: a state can only be loaded by the same kind."""
        return type(self).__name__

    def at(self) -> str:
        """Which environment is being stepped, as far as that is known; another thread may ask."""
        return "an environment"

    @abstractmethod
    def reset(self, seed: int) -> Any:
        """First observations; one seed fixes everything that follows."""

    @abstractmethod
    def step(self, actions: NDArray[Any]) -> EnvStep: ...

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} does not offer its state")

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Restores the environments and returns the observations that come next."""
        raise NotImplementedError(f"{type(self).__name__} does not offer its state")

    @abstractmethod
    def close(self) -> None: ...
