"""`Session`: the parts of a run put together from its config, and their state."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Stateful, UpdateResult
from rl_training.data.rollout import Rollout
from rl_training.envs.factory import make_envs
from rl_training.envs.sources import EnvSource, config_name, is_instance
from rl_training.envs.space_codec import describe_spaces
from rl_training.envs.types import Spaces
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.fitting import load_fitting, loading_part
from rl_training.experiment.trust import sign
from rl_training.kernels import using
from rl_training.runtime.collector import layout_of
from rl_training.runtime.defaults import settled
from rl_training.runtime.engine import engine_for
from rl_training.runtime.evaluation import Evaluation, Watch, evaluate
from rl_training.runtime.learner import Learner
from rl_training.runtime.memory import refuse_too_much
from rl_training.runtime.meter import Meter
from rl_training.runtime.params import refuse_idle
from rl_training.runtime.policy import PolicySnapshot
from rl_training.runtime.progress import Progress
from rl_training.runtime.session_envs import EvaluationEnvs, fitting, refuse_other_spaces, refuse_to_send
from rl_training.runtime.stopping import Interruption, active
from rl_training.runtime.threads import default_threads, prepare_process

_log = logging.getLogger(__name__)

EVAL_LIMIT_FACTOR, EVAL_SHORTEST_EPISODE = 10, 100
NO_COLLECTOR: dict[str, Any] = {"workers": []}  # the state of one that must begin new episodes
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


class Session(Stateful):
    """Learner, collector, controls and progress. It writes no file: runs and the managed API are built on it."""

    state_parts = ("progress", "meter", "learner")  # and the collector, where it has a state

    def __init__(self, config: TrainConfig, *, env: EnvSource | None = None) -> None:
        self.env = env
        if env is not None:
            config = config.model_copy(update={"env_id": config_name(env)})
        engine = engine_for(config)
        refuse_to_send(env, config)
        envs = make_envs(config.env_spec(env), engine.num_local_envs(config))
        self.spaces = envs.spaces
        try:
            config = fitting(config, envs, engine.num_local_envs(config))
            self.configure(config := settled(config, envs.spaces, env))
            refuse_too_much(config, envs.spaces)
            prepare_process(config.threads or default_threads(envs))
            self.learner = make_learner(config, envs.spaces)
            self.learner.meet(config.env_spec(env))
        except BaseException:
            if not is_instance(env):
                envs.close()
            raise
        self.collector = engine.collector(self, envs, seed=derive_seed(config.seed, ACTING))
        self.peers = engine.peers(self)
        self.evaluator = engine.evaluator(self)
        self.progress = Progress()
        self.meter = Meter()
        self.stop_reason: str | None = None
        self.was_interrupted = False  # by a signal
        self.saved_step = 0  # of the latest checkpoint
        self.collector_is_lost = False  # it was called back from the middle of a rollout
        self.eval_envs = EvaluationEnvs(self, envs)

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

    def interrupt(self, signal_name: str) -> None:
        """The same for a signal, which ends evaluations as well."""
        self.was_interrupted = True
        self.request_stop(signal_name)

    def collect(self) -> Rollout:
        """One rollout. Whoever is called back from it has lost the place at which its environments were."""
        with active().interruptible():
            if self.collector_is_lost:
                self._restart_collector()
            try:
                return self.collector.collect(self.learner.rollout_steps)
            except Interruption:
                self.collector_is_lost = True
                raise

    def evaluate(
        self, episodes: int, *, deterministic: bool = True, seed: int | None = None, watch: Watch | None = None
    ) -> Evaluation:
        """Plays whole episodes on environments and random streams of their own: training does not notice."""
        if episodes < 1:
            raise ConfigError(f"an evaluation needs at least one episode, got {episodes}")
        envs = self.eval_envs.get(episodes)
        self.lend_envs()
        chosen = self.evaluation_seed() if seed is None else seed
        limit = self.evaluation_limit()
        self.move_controls()
        with self.kernels(), active().interruptible():
            evaluation = evaluate(
                self.policy,
                envs,
                episodes=episodes,
                seed=chosen,
                deterministic=deterministic,
                watch=watch,
                max_steps=limit,
                is_stopped=lambda: self.was_interrupted,
            )
        if evaluation.episodes_cut:
            _log.warning(
                "evaluation at step %d: %d of %d episodes did not end within %d steps and were cut (eval_max_steps)",
                *(self.progress.global_step, evaluation.episodes_cut, episodes, limit),
            )
        return replace(evaluation, step=self.progress.global_step)

    def lend_envs(self) -> None:
        """To be called before anything else plays on the environments; training on an instance then begins anew."""
        self.collector_is_lost = self.collector_is_lost or self.eval_envs.are_shared

    def evaluation_limit(self) -> int | None:
        """The steps after which an evaluation's episode is cut; None where the environment has a limit of its own."""
        if self.config.eval_max_steps is not None:
            return self.config.eval_max_steps
        if self.config.env_spec(self.env).has_time_limit:
            return None
        seen = self.progress.longest_episode or self.progress.global_step // self.config.num_envs
        return EVAL_LIMIT_FACTOR * max(seen, EVAL_SHORTEST_EPISODE)

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

    def control_values(self) -> dict[str, float]:
        """The value of every control at this step."""
        return self.controls.resolve(self.progress.global_step, self.progress.adapted)

    def move_controls(self) -> dict[str, float]:
        """Gives every control its value of this step, in the one place where learner and policy read it."""
        values = self.control_values()
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
        limits = {"seed": self.evaluation_seed(), "max_steps": self.evaluation_limit()}
        self.evaluator.submit(self.snapshot(weights=True), step=step, **limits)

    def learn(self, rollout: Rollout, controls: Mapping[str, float]) -> Iterator[UpdateResult]:
        """The learner's updates, whose work other learners may share."""
        if self.peers is not None:
            self.peers.send(rollout, controls)
        measured: list[Mapping[str, Any]] = []
        for result in self.learner.learn(rollout):
            measured.append(result.metrics)
            yield result
        self.progress.adapted = self.controls.adapt(self.progress.adapted, measured)
        if self.peers is not None:
            self.peers.settle()

    def barrier(self) -> None:
        """Where environments hide their state, every checkpoint begins new episodes, resumed or not."""
        if not (self.collector.restorable or self.collector_is_lost):
            self._restart_collector()

    def _restart_collector(self) -> None:
        self.learner.begin_episodes()
        if self.peers is not None:
            self.peers.begin_episodes()
        self.collector.restart(derive_seed(self.config.seed, BARRIER, self.progress.global_step))
        self.collector_is_lost = False

    def state_dict(self) -> dict[str, Any]:
        config = self.config.stored()
        moved = {"controls": self.control_values()}
        made_here = {"config": config, "signature": sign(config), "spaces": describe_spaces(self.spaces)}
        collector = self._collector_state()
        return super().state_dict() | made_here | moved | {"collector": collector, "rng": _global_rng_state()}

    def _collector_state(self) -> dict[str, Any]:
        if not self.collector_is_lost:
            try:
                return self.collector.state_dict()
            except Interruption:
                self.collector_is_lost = True
        return NO_COLLECTOR

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        refuse_other_spaces(self.config.env_id, self.spaces, state)
        for name in ("progress", "meter", "learner"):
            load_fitting(getattr(self, name), name, state)
        self.saved_step = self.progress.global_step
        if not self.learner.algorithm.is_finite():
            raise CheckpointError("the checkpoint's weights are not finite; load an older one")
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
        """Closes what the session made; an instance that the user made stays open."""
        if not is_instance(self.env):
            self.collector.close()
        for part in (self.peers, self.evaluator):
            if part is not None:
                part.close()
        self.eval_envs.close()


def make_learner(config: TrainConfig, spaces: Spaces) -> Learner:
    learner_class, params = config.learner_class(), config.parsed_params().params
    refuse_idle(params, learner_class.idle(spaces))
    learner: Learner = learner_class(
        params,
        spaces,
        num_envs=config.num_envs,
        seed=derive_seed(config.seed, WEIGHTS),
        device=resolve_device(config.device),
    )
    learner.env_id = config.env_id
    return learner


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
