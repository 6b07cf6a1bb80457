"""`Session`: the parts of a run put together from its config, and their state."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rl_training.algorithms.base import Stateful, UpdateResult
from rl_training.data.rollout import Episode, Rollout, task_means
from rl_training.envs.factory import EnvSource, make_envs
from rl_training.envs.space_codec import describe_spaces
from rl_training.envs.types import Envs, Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.fitting import load_fitting, loading_part
from rl_training.experiment.trust import sign
from rl_training.kernels import using
from rl_training.models.torsos import has_image
from rl_training.runtime.collector import layout_of
from rl_training.runtime.engine import engine_for
from rl_training.runtime.evaluation import Evaluation, Watch, evaluate
from rl_training.runtime.learner import Learner
from rl_training.runtime.memory import refuse_too_much
from rl_training.runtime.meter import Meter
from rl_training.runtime.policy import PolicySnapshot

RECENT_EPISODES = 100
WEIGHTS, ACTING, BARRIER, EVALUATION, WORKER = range(5)  # the random streams that derive from the run's seed


def derive_seed(seed: int, stream: int, step: int = 0) -> int:
    """Seeds of different streams, and of neighbouring runs, have nothing in common."""
    return int(np.random.SeedSequence([seed, stream, step]).generate_state(1)[0] >> 1)


def resolve_device(name: str) -> torch.device:
    """`auto` takes the accelerator that is there."""
    if name == "auto":
        found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(found)
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present[name]:
        raise ConfigError(f"device {name!r} is not available here; use device auto or cpu")
    return torch.device(name)


@dataclass
class Progress:
    """How far the run has come."""

    global_step: int = 0
    iterations: int = 0
    gradient_steps: int = 0
    episodes: int = 0
    best_return: float | None = None
    evaluations_since_best: int = 0
    seconds: float = 0.0
    recent: dict[str, deque[Episode]] = field(default_factory=dict)  # of each task

    def add_episodes(self, episodes: tuple[Episode, ...]) -> None:
        self.episodes += len(episodes)
        for episode in episodes:
            self.recent.setdefault(episode.task, deque(maxlen=RECENT_EPISODES)).append(episode)

    def add_evaluation(self, evaluation: Evaluation) -> bool:
        """Counts an evaluation and tells whether it is the best so far."""
        best = self.best_return is None or evaluation.return_mean > self.best_return
        self.evaluations_since_best = 0 if best else self.evaluations_since_best + 1
        if best:
            self.best_return = evaluation.return_mean
        return best

    def episode_metrics(self) -> dict[str, float]:
        """Over the last hundred finished episodes of each task; nothing before the first."""
        recent = [episode for of_task in self.recent.values() for episode in of_task]
        if not recent:
            return {}
        returns = np.array([episode.total_reward for episode in recent])
        return {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "episode_length_mean": float(np.mean([episode.length for episode in recent])),
            **task_means(recent),
        }

    def state_dict(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"recent": [list(episode) for of_task in self.recent.values() for episode in of_task]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        recent = tuple(Episode(float(paid), int(length), str(task)) for paid, length, task in state["recent"])
        self.recent = {}
        self.add_episodes(recent)
        for name in state.keys() & {f.name for f in fields(self)} - {"recent"}:
            setattr(self, name, state[name])
        if min(self.global_step, self.iterations, self.gradient_steps, self.episodes) < 0:
            raise ValueError("a run cannot have made fewer than 0 steps")


class Session(Stateful):
    """Learner, collector, controls and progress. It writes no file: runs and the managed API are built on it."""

    state_parts = ("progress", "meter", "learner", "collector")

    def __init__(self, config: TrainConfig, *, env: EnvSource | None = None) -> None:
        self.config = config
        self.env = env
        self.controls = config.parsed_params().controls
        engine = engine_for(config)
        envs = make_envs(config.env_spec(env), engine.num_local_envs(config))
        self.spaces = envs.spaces
        try:
            refuse_too_much(config, envs.spaces)
            limit_threads(config.threads or default_threads(envs))
            self.learner = make_learner(config, envs.spaces)
        except BaseException:
            envs.close()
            raise
        self.collector = engine.collector(self, envs, seed=derive_seed(config.seed, ACTING))
        self.peers = engine.peers(self)
        self.evaluator = engine.evaluator(self)
        self.progress = Progress()
        self.meter = Meter()
        self.stop_reason: str | None = None
        self.was_interrupted = False  # by a signal
        self._eval_envs: Envs | None = None

    @property
    def policy(self) -> Any:
        return self.learner.algorithm.policy

    def kernels(self) -> AbstractContextManager[None]:
        """Whatever computes with the session's networks does so within this."""
        return using(self.config.kernels)

    def configure(self, config: TrainConfig) -> None:
        """Another budget or other schedules for the same learner and environments."""
        self.config = config
        self.controls = config.parsed_params().controls

    def request_stop(self, reason: str) -> None:
        """The loop ends after the iteration that is under way."""
        self.stop_reason = reason

    def evaluate(
        self, episodes: int, *, deterministic: bool = True, seed: int | None = None, watch: Watch | None = None
    ) -> Evaluation:
        """Plays whole episodes on environments and random streams of their own: training does not notice."""
        if episodes < 1:
            raise ConfigError(f"an evaluation needs at least one episode, got {episodes}")
        num_envs = min(episodes, self.config.num_envs)
        if self._eval_envs is None or self._eval_envs.num_envs != num_envs:
            self._close_eval_envs()
            self._eval_envs = make_envs(self.config.env_spec(self.env, evaluation=True), num_envs)
        chosen = self.evaluation_seed() if seed is None else seed
        self.move_controls()
        with self.kernels():
            evaluation = evaluate(
                self.policy, self._eval_envs, episodes=episodes, seed=chosen, deterministic=deterministic, watch=watch
            )
        return replace(evaluation, step=self.progress.global_step)

    def evaluation_seed(self) -> int:
        return derive_seed(self.config.seed, EVALUATION, self.progress.global_step)

    def snapshot(self, *, weights: bool) -> PolicySnapshot:
        """The policy as it would act next."""
        acting = self.controls.at(self.progress.global_step, moment="acting")
        return PolicySnapshot(
            self.progress.iterations,
            acting,
            acts_randomly=self.progress.global_step < self.learner.random_steps,
            weights=self.policy.state_dict() if weights else None,
        )

    def move_controls(self) -> dict[str, float]:
        """Gives every control its value of this step, in the one place where learner and policy read it."""
        values = self.controls.resolve(self.progress.global_step)
        self.learner.params.move(values)
        return values

    def apply_controls(self) -> dict[str, float]:
        """Moves the controls before an iteration, and publishes the policy to whoever acts elsewhere."""
        values = self.move_controls()
        self.collector.publish(self.snapshot(weights=not self.collector.shares_weights))
        return values

    def evaluate_in_background(self) -> None:
        """Evaluates the policy as it is now; `evaluator.finished` has the answer later."""
        step = self.progress.global_step
        self.evaluator.submit(self.snapshot(weights=True), step=step, seed=self.evaluation_seed())

    def learn(self, rollout: Rollout, controls: Mapping[str, float]) -> Iterator[UpdateResult]:
        """The learner's updates, whose work other learners may share."""
        if self.peers is not None:
            self.peers.send(rollout, controls)
        yield from self.learner.learn(rollout)
        if self.peers is not None:
            self.peers.settle()

    def barrier(self) -> None:
        """Where environments hide their state, every checkpoint begins new episodes, resumed or not."""
        if not self.collector.restorable:
            self._restart_collector()

    def _restart_collector(self) -> None:
        self.collector.restart(derive_seed(self.config.seed, BARRIER, self.progress.global_step))

    def state_dict(self) -> dict[str, Any]:
        config = self.config.model_dump(mode="json")
        made_here = {"config": config, "signature": sign(config), "spaces": describe_spaces(self.spaces)}
        return super().state_dict() | made_here | {"rng": _global_rng_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("progress", "meter", "learner"):
            load_fitting(getattr(self, name), name, state)
        if self.peers is not None:
            self.peers.load_state_dict(state["learner"])
        if self._goes_on(state):
            load_fitting(self.collector, "collector", state)
            self.barrier()
        else:  # other environments, or divided otherwise, so that nobody can go on where somebody stopped
            self._restart_collector()
        self.move_controls()
        with loading_part("rng"):
            set_global_rng_state(state["rng"])

    def _goes_on(self, state: Mapping[str, Any]) -> bool:
        """Whether the environments are those of the state."""
        with loading_part("collector"):
            same = state["config"]["env_id"] == self.config.env_id
            return same and layout_of(state["collector"]) == self.collector.layout

    def close(self) -> None:
        self.collector.close()
        for part in (self.peers, self.evaluator):
            if part is not None:
                part.close()
        self._close_eval_envs()

    def _close_eval_envs(self) -> None:
        if self._eval_envs is not None:
            self._eval_envs.close()
            self._eval_envs = None


def make_learner(config: TrainConfig, spaces: Spaces) -> Learner:
    return config.learner_class()(
        config.parsed_params().params,
        spaces,
        num_envs=config.num_envs,
        seed=derive_seed(config.seed, WEIGHTS),
        device=resolve_device(config.device),
    )


def default_threads(envs: Envs) -> int:
    """Small networks lose time to a second thread; images gain."""
    return (os.cpu_count() or 1) if has_image(envs.spaces.observation) else 1


def limit_threads(count: int) -> None:
    """For torch and for the BLAS that NumPy brings, which would take every core for a matrix of a few kilobytes."""
    torch.set_num_threads(count)
    threadpool_limits(limits=count, user_api="blas")


def seed_globals(seed: int) -> None:
    """The package draws from streams of its own; this is for environments and callbacks that do not."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _global_rng_state() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "numpy": [name, keys, *rest],
        "python": [version, list(numbers), gauss],
    }


def set_global_rng_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    np.random.set_state(tuple(state["numpy"]))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
