"""Small environments whose answers are known, and helpers that many tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCriticAlgorithm, PolicyParams
from rl_training.algorithms.efficientzero import EfficientZeroParams
from rl_training.algorithms.muzero import MuZeroParams
from rl_training.algorithms.scalezero import ScaleZeroParams
from rl_training.data.trees import tree_map
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.models.actor_critic import ActorCritic, PolicyOptions
from rl_training.models.efficientzero import EfficientZeroOptions
from rl_training.models.muzero import MuZeroOptions
from rl_training.models.options import options_from
from rl_training.models.scalezero import ScaleZeroOptions
from rl_training.models.torsos import TorsoOptions
from rl_training.models.transformer import TransformerOptions
from rl_training.runtime.planner_learner import PlannerLearner

UNBOUNDED = (-np.inf, np.inf)


class ScriptedEnv(gym.Env):
    """Observation [episode, t], reward t: an episode of three steps pays 1 + 2 + 3 = 6.

    A reset with a seed begins with episode 0 again. `terminates` says how the last step ends the episode.
    """

    def __init__(self, length: int = 3, terminates: bool = False) -> None:
        self.observation_space = spaces.Box(*UNBOUNDED, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length, self.terminates = length, terminates
        self.episode, self.t = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.t += 1
        ended = self.t >= self.length
        return self._obs(), float(self.t), ended and self.terminates, ended and not self.terminates, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.episode, self.t], dtype=np.float32)


class ScriptedDictEnv(ScriptedEnv):
    """The same with a mapping as its observation."""

    def __init__(self, length: int = 3, terminates: bool = False) -> None:
        super().__init__(length, terminates)
        self.observation_space = spaces.Dict({"episode": spaces.Discrete(100), "t": self.observation_space})

    def _obs(self) -> Any:
        return {"episode": np.int64(self.episode), "t": super()._obs()}


class TruncationEnv(gym.Env):
    """Pays 1 each step and ends only by its time limit of 10: with gamma 0.9 every state is worth 10."""

    def __init__(self, length: int = 10) -> None:
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.ones(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return np.ones(1, dtype=np.float32), 1.0, False, self.t >= self.length, {}


class DiscountEnv(gym.Env):
    """Two steps, observations [1, 0] and [0, 1], a reward of 1 at the end: V = gamma, 1."""

    observations = np.eye(2, dtype=np.float32)

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.observations[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return self.observations[1], float(self.t == 2), self.t == 2, False, {}


class QuestionEnv(gym.Env):
    """A new question each step, paid at once; `length` questions make an episode. Subclasses say what is asked."""

    def __init__(self, observation: gym.Space, action: gym.Space, length: int = 1) -> None:
        self.observation_space, self.action_space, self.length = observation, action, length

    def ask(self) -> Any:
        """Draws a question and returns its observation."""
        raise NotImplementedError

    def pay(self, action: Any) -> float:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self.ask(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        reward = self.pay(action)
        return self.ask(), reward, self.t >= self.length, False, {}


class ContextualBandit(QuestionEnv):
    """Four contexts, four arms; context `c` pays 1 for arm `BEST[c]`."""

    BEST = (2, 0, 3, 1)

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 1, (4,), np.float32), spaces.Discrete(4))

    def ask(self) -> np.ndarray:
        self.context = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.context]

    def pay(self, action: Any) -> float:
        return float(action == self.BEST[self.context])


class IdentityEnv(ContextualBandit):
    """The action that equals the observation pays, eight times in an episode."""

    BEST = (0, 1, 2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.length = 8


class IdentityImageEnv(IdentityEnv):
    """The same; the number is the quadrant that is lit."""

    def __init__(self, channels_last: bool = True) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.observation_space = spaces.Box(0, 255, (36, 36, 1) if channels_last else (1, 36, 36), np.uint8)

    def ask(self) -> np.ndarray:
        super().ask()
        return quadrant_image(self.context).reshape(self.observation_space.shape)


def quadrant_image(quadrant: int) -> np.ndarray:
    image = np.zeros((36, 36), dtype=np.uint8)
    row, column = divmod(quadrant, 2)
    image[18 * row : 18 * (row + 1), 18 * column : 18 * (column + 1)] = 255
    return image


class TargetEnv(QuestionEnv):
    """The observation is a target in [-1, 1]; an action in [-2, 2] costs its squared distance to it."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-2, 2, (1,), np.float32))

    def ask(self) -> np.ndarray:
        self.target = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.target

    def pay(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return -float(((action - self.target) ** 2).sum())


class TwoAnswersEnv(QuestionEnv):
    """MultiDiscrete([3, 2]): the share of the two answers that equal the two numbers asked."""

    def __init__(self) -> None:
        super().__init__(spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([3, 2]))

    def ask(self) -> np.ndarray:
        self.asked = self.np_random.integers([3, 2])
        return self.asked

    def pay(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float((action == self.asked).mean())


class BitsEnv(QuestionEnv):
    """MultiBinary(3): the share of bits that are the opposite of those seen."""

    def __init__(self) -> None:
        super().__init__(spaces.MultiBinary(3), spaces.MultiBinary(3))

    def ask(self) -> np.ndarray:
        self.bits = self.np_random.integers(2, size=3, dtype=np.int8)
        return self.bits

    def pay(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float((action != self.bits).mean())


class DictEnv(QuestionEnv):
    """An image, a vector and a number; the answer needs the image's column and the number, the vector is noise."""

    def __init__(self) -> None:
        observation = {
            "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "noise": spaces.Box(*UNBOUNDED, (2,), np.float32),
            "number": spaces.Discrete(2),
        }
        super().__init__(spaces.Dict(observation), spaces.Discrete(4))

    def ask(self) -> Any:
        quadrant, self.number = int(self.np_random.integers(4)), int(self.np_random.integers(2))
        self.column = quadrant % 2
        noise = self.np_random.normal(size=2).astype(np.float32)
        return {"image": quadrant_image(quadrant)[..., None], "noise": noise, "number": np.int64(self.number)}

    def pay(self, action: Any) -> float:
        return float(action == 2 * self.column + self.number)


class RecallEnv(gym.Env):
    """A cue of ±1 at t = 0; the action at t = n that names it pays 1, the other −1."""

    def __init__(self, n: int = 4) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.n = n

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2))
        return np.array([2 * self.cue - 1, 0], dtype=np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        answered = self.t == self.n
        reward = (1.0 if action == self.cue else -1.0) if answered else 0.0
        self.t += 1
        return np.array([0, self.t == self.n], dtype=np.float32), reward, answered, False, {}


class HiddenWalk(gym.Env):
    """A random walk that ends at ±1 and does not offer its state."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(*UNBOUNDED, (1,), np.float64)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position = self.np_random.normal(0.0, 0.1)
        return np.array([self.position]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.position += (action - 0.5) * 0.1 + self.np_random.normal(0.0, 0.3)
        return np.array([self.position]), self.position, abs(self.position) > 1, False, {}


class ProtocolWalk(HiddenWalk):
    """The same walk with the package's protocol; the generator is the package's to keep."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": float(self.position)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]


FAULTS = ("raises", "nan_obs", "inf_reward", "wrong_shape", "wrong_dtype", "nan_reset")


class FaultyEnv(ScriptedEnv):
    """Breaks at its `at_step`-th step, if it was reset with the seed `only_seed`: one of many."""

    def __init__(self, fault: str, at_step: int = 2, only_seed: int | None = None, length: int = 100) -> None:
        super().__init__(length)
        assert fault in FAULTS
        self.fault, self.at_step, self.only_seed = fault, at_step, only_seed
        self.count, self.faulty = 0, True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(seed=seed)
        if seed is not None:
            self.faulty = self.only_seed in (None, seed)
        return (obs * np.float32(np.nan), info) if self.faulty and self.fault == "nan_reset" else (obs, info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.count += 1
        if not (self.faulty and self.count == self.at_step):
            return obs, reward, terminated, truncated, info
        if self.fault == "raises":
            raise TwoArgumentError("the motor", "is stuck")
        if self.fault == "inf_reward":
            reward = float("inf")
        broken = {"nan_obs": obs * np.float32(np.nan), "wrong_shape": obs[:1], "wrong_dtype": obs.astype(complex)}
        return broken.get(self.fault, obs), reward, terminated, truncated, info


class RaisingEnv(FaultyEnv):
    """Raises at its `at`-th step."""

    def __init__(self, at: int) -> None:
        super().__init__("raises", at_step=at)


class TwoArgumentError(Exception):
    """An exception that cannot be built again from its message."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} {problem}")


def copied(step: EnvStep) -> EnvStep:
    """A step whose observations the next step does not overwrite."""
    return step._replace(obs=tree_map(np.array, step.obs))


def play(envs: Envs, actions: Sequence[Any]) -> list[EnvStep]:
    return [copied(envs.step(action)) for action in actions]


def random_actions(space: gym.Space, num_steps: int, num_envs: int, seed: int = 0) -> list[np.ndarray]:
    space.seed(seed)
    return [np.stack([np.asarray(space.sample()) for _ in range(num_envs)]) for _ in range(num_steps)]


def env_makers(*envs: Callable[..., gym.Env]) -> list[Callable[[], gym.Env]]:
    return [partial(env) for env in envs]


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers)[:, None]


def hand_batch(ratios: list[float], rewards: list[float], **changes: Any) -> dict[str, Any]:
    """One environment, observation 1 and action 0, whose probability is 1/2 now and was 1/2 / ratio."""
    steps = len(ratios)
    return {
        "obs": torch.ones(steps, 1, 1),
        "actions": torch.zeros(steps, 1, dtype=torch.int64),
        "behavior_logprobs": column(*(math.log(0.5 / ratio) for ratio in ratios)),
        "rewards": column(*rewards),
        "terminated": torch.zeros(steps, 1, dtype=torch.bool),
        "bootstrap_value": torch.zeros(1),
        **changes,
    }


# Options of networks, as the defaults of an algorithm's parameters make them, but for those that are given.


def torso_options(**params: Any) -> TorsoOptions:
    return options_from(TorsoOptions, PolicyParams(**params))


def policy_options(**params: Any) -> PolicyOptions:
    given = PolicyParams(**params)
    return options_from(PolicyOptions, given, torso=options_from(TorsoOptions, given))


def muzero_options(**params: Any) -> MuZeroOptions:
    given = MuZeroParams(**params)
    return options_from(MuZeroOptions, given, torso=_planner_torso(given))


def efficientzero_options(**params: Any) -> EfficientZeroOptions:
    given = EfficientZeroParams(**params)
    return options_from(EfficientZeroOptions, given, torso=_planner_torso(given))


def transformer_options(**params: Any) -> TransformerOptions:
    return options_from(TransformerOptions, ScaleZeroParams(**params))


def scalezero_options(**params: Any) -> ScaleZeroOptions:
    given = ScaleZeroParams(**params)
    parts = {"torso": _planner_torso(given), "transformer": options_from(TransformerOptions, given)}
    return options_from(ScaleZeroOptions, given, **parts)


def _planner_torso(params: Any) -> TorsoOptions:
    return PlannerLearner.torso_options(params)


def zero_policy() -> ActorCritic:
    """Both heads linear in one number and zero: both actions alike, all values 0."""
    space = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2))
    policy = ActorCritic(space, policy_options(hidden_sizes=()))
    for parameter in policy.parameters():
        parameter.data.zero_()
    return policy


def logit_gap(algorithm: ActorCriticAlgorithm) -> float:
    """By how much the logit of the first action exceeds that of the second, where the one number is 1."""
    dist = algorithm.policy.distribution(torch.ones(1, 1))
    return (dist[0, 0] - dist[0, 1]).item()
