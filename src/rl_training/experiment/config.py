"""`TrainConfig`: everything that defines a run, validated as soon as it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rl_training.envs.factory import Backend, EnvSpec
from rl_training.envs.sources import EnvSource
from rl_training.envs.wrappers import check_count, parse_wrappers
from rl_training.errors import ConfigError
from rl_training.experiment.logging import check_loggers
from rl_training.experiment.plain import plain, read_yaml_file
from rl_training.experiment.registry import algorithm
from rl_training.experiment.validation import Validated, validation_problems
from rl_training.naming import PYTHON_PREFIX, ask_again, named_tree

EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")

ALTERNATIVES = {"batch_size": "num_minibatches", "num_minibatches": "batch_size"}  # two ways to say one thing


class TrainConfig(Validated):
    """Flags of the command line and keys of a preset are the fields of this model."""

    algo: str = Field(description="algorithm, as `rl-training list` names it")
    env_id: str = Field(description="Gymnasium id, package.module:factory or path/to/file.py:factory")
    tasks: list[str] = Field([], description="several environments trained together, in place of env_id")
    env_kwargs: dict[str, Any] = Field({}, description="passed to the environment")
    eval_env_kwargs: dict[str, Any] = Field({}, description="what evaluation changes in env_kwargs")
    wrappers: list[Any] = Field([], description="wrappers by name or module:name, innermost first")
    backend: Literal[Backend, "ray"] = Field("auto", description="how environments are stepped; ray: by workers")
    collect_ahead: bool = Field(
        False, description="collect the next rollout in a second process while learning; data is one rollout old"
    )
    workers: PositiveInt = Field(2, le=10_000, description="processes on Ray that share num_envs")
    worker_backend: Backend = Field("auto", description="how each of them steps its environments")
    ray_mode: Literal["sync", "async"] = Field("sync", description="wait for all workers, or learn meanwhile")
    ray_address: str | None = Field(None, description="of a running cluster, or auto; default: this machine")
    step_timeout_s: NonNegativeFloat = Field(60.0, description="longest step of an environment; 0: no limit")
    env_restarts: NonNegativeInt = Field(0, description="how often a dead async environment is replaced")
    learners: PositiveInt = Field(1, le=1_000, description="processes on Ray that share every update")
    num_envs: PositiveInt = Field(8, le=100_000, description="environments that step together")
    seed: int = Field(0, ge=0, lt=2**31, description="fixes every random stream of the run")
    total_timesteps: PositiveInt = Field(100_000, description="environment steps over all environments together")
    schedule_horizon: PositiveInt | None = Field(None, description="where schedules end; default: total_timesteps")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where networks live")
    threads: PositiveInt | None = Field(None, le=1_024, description="torch threads; default: 1, all cores for images")
    kernels: Literal["auto", "off"] = Field("auto", description="compiled twins of plain functions where they apply")
    output_dir: str = Field("runs", description="parent of run directories")
    run_name: str | None = Field(None, description="name of the run directory; default: time and seed")
    eval_episodes: int = Field(20, ge=0, description="greedy episodes of an evaluation; 0: never evaluate")
    eval_interval: PositiveInt | None = Field(None, description="steps between evaluations; default: at the end only")
    eval_max_steps: PositiveInt | None = Field(
        None, description="where an evaluation's episode is cut; default: 10 times the longest of training"
    )
    eval_in_background: bool = Field(False, description="periodic evaluations on Ray, beside training")
    checkpoint_interval: PositiveInt = Field(50_000, description="steps between checkpoints")
    keep_checkpoints: PositiveInt = Field(3, description="how many of the latest checkpoints to keep")
    log_interval: PositiveInt = Field(1_000, description="steps between rows of metrics")
    loggers: list[Any] = Field(
        ["jsonl", "csv"], description="jsonl, csv, tensorboard, wandb, mlflow, trackio, or module:name"
    )
    tracker_project: str = Field("rl-training", min_length=1, description="the project that trackers file runs under")
    tracker_artifacts: list[Literal["config", "controls", "videos", "checkpoint"]] = Field(
        [], description="files that trackers keep: config, controls (as used), videos, checkpoint (the last)"
    )
    callbacks: list[Any] = Field([], description="callbacks of your own as module:name")
    init_from: str | None = Field(None, description="run or model whose policy a new run starts from")
    init_checkpoint: str | int = Field("latest", description="which of its checkpoints: latest, best or a step")
    target_return: float | None = Field(None, description="stop when an evaluation's mean reaches it")
    early_stop_patience: PositiveInt | None = Field(None, description="stop after so many evaluations without a best")
    defaults: Literal["algorithm", "environment"] = Field(
        "algorithm", description="what is not given: the algorithm's defaults, or those for the kind of environment"
    )
    algo_kwargs: dict[str, Any] = Field({}, description="hyper-parameters, schedules and warm-ups of the algorithm")

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, raw: Any, validate: ModelWrapValidatorHandler[TrainConfig]) -> TrainConfig:
        try:
            return validate(raw)
        except ValidationError as error:
            raise ConfigError("\n".join(validation_problems(error, "config", cls.model_fields))) from error

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_tasks(cls, raw: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(raw.get("tasks"), list) or not raw["tasks"]:
            return raw
        name = "+".join(map(str, raw["tasks"]))
        if raw.get("env_id", name) != name:
            raise ValueError(f"tasks stand in place of env_id; leave out env_id {raw['env_id']!r}")
        return {**raw, "env_id": name}

    @field_validator("algo")
    @classmethod
    def _known_algorithm(cls, name: str) -> str:
        return algorithm(name).name

    @field_validator("wrappers")
    @classmethod
    def _known_wrappers(cls, specs: list[Any]) -> list[Any]:
        parse_wrappers(specs)
        return specs

    @field_validator("loggers")
    @classmethod
    def _known_loggers(cls, loggers: list[Any]) -> list[Any]:
        check_loggers(loggers)
        return loggers

    @field_validator("env_kwargs", "eval_env_kwargs")
    @classmethod
    def _sensible_time_limit(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        if kwargs.get("max_episode_steps") is not None:
            check_count("max_episode_steps", kwargs["max_episode_steps"])
        return kwargs

    @field_validator("algo_kwargs")
    @classmethod
    def _valid_params(cls, raw: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "algo" in info.data:
            horizon = info.data.get("schedule_horizon") or info.data.get("total_timesteps")
            algorithm(info.data["algo"]).learner_class().parse(raw, horizon=horizon)
        return raw

    @model_validator(mode="after")
    def _workers_fit(self) -> TrainConfig:
        learner = self.learner_class()
        if self.learners > 1 and not learner.shares_updates:
            raise ConfigError(f"learners: {self.algo} cannot share its updates; use 1")
        if self.collect_ahead and not (learner.bears_stale_data or learner.bears_one_old_rollout):
            raise ConfigError(f"collect_ahead: {self.algo} cannot learn from the data of an older policy")
        if self.backend != "ray":
            return self
        if self.collect_ahead:
            raise ConfigError("collect_ahead: workers on Ray collect while the learner learns by ray_mode async")
        if self.num_envs % self.workers:
            raise ConfigError(f"num_envs: {self.num_envs} cannot be shared evenly by {self.workers} workers")
        if self.ray_mode == "async" and not learner.bears_stale_data:
            raise ConfigError(f"ray_mode: {self.algo} cannot learn from the data of older policies; use sync")
        return self

    def learner_class(self) -> Any:
        return algorithm(self.algo).learner_class()

    def parsed_params(self) -> Any:
        """The algorithm's parameters with the controls that move some of them: `runtime.params.ParsedParams`."""
        return self.learner_class().parse(self.algo_kwargs, horizon=self.schedule_horizon or self.total_timesteps)

    @property
    def uses_ray(self) -> bool:
        return self.backend == "ray" or self.learners > 1 or self.eval_in_background

    def env_spec(self, env: EnvSource | None = None, *, evaluation: bool = False) -> EnvSpec:
        kwargs = {**self.env_kwargs, **(self.eval_env_kwargs if evaluation else {})}
        for key, value in kwargs.items():
            if isinstance(value, str) and value.startswith(PYTHON_PREFIX):
                raise ask_again(f"env_kwargs.{key}", value, "env_kwargs=")
        elsewhere = self.backend == "ray" and not evaluation  # where the driver watches over its workers
        return EnvSpec(
            self.env_id if env is None else env,
            kwargs,
            tuple(self.wrappers),
            self._stepped_by(),
            tuple(self.tasks),
            step_timeout_s=0.0 if elsewhere else self.step_timeout_s,
            restarts=self.env_restarts,
        )

    def in_one_process(self) -> TrainConfig:
        """Returns the config without Ray, for a session in this process."""
        return self.model_copy(
            update={"backend": self._stepped_by(), "collect_ahead": False, "learners": 1, "eval_in_background": False}
        )

    def _stepped_by(self) -> Backend:
        """The backend in each process that steps environments."""
        return self.worker_backend if self.backend == "ray" else self.backend

    def changed(self, **changes: Any) -> TrainConfig:
        """The config with other values for some keys, validated again."""
        return make_config({**dict(self), **changes})

    def stored(self) -> dict[str, Any]:
        """The config as a file can hold it: an object that was passed in Python is there by its name only."""
        return named_tree(dict(self))

    def resolved(self) -> dict[str, Any]:
        """All of it, with every default of the algorithm written out; reading it back gives the same run."""
        parsed = self.parsed_params()
        params = parsed.params.model_dump(mode="json", exclude=set(parsed.params.idle()))
        return self.stored() | {"algo_kwargs": params | named_tree(parsed.schedules)}


def make_config(raw: Mapping[str, Any]) -> TrainConfig:
    """A config, or a ConfigError that lists every problem at once."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"a config is a mapping of keys, got {type(raw).__name__}")
    try:
        return TrainConfig.model_validate(plain(raw))
    except ValidationError as error:
        raise ConfigError("\n".join(validation_problems(error, "config"))) from error


def read_yaml(path: Path) -> dict[str, Any]:
    content = read_yaml_file(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping of keys, got {type(content).__name__}")
    return with_numbers(content)


def with_numbers(tree: Any) -> Any:
    """YAML 1.1 reads `1e-3` as a string; here it is the number its writer meant."""
    if isinstance(tree, dict):
        return {key: with_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_numbers(value) for value in tree]
    return float(tree) if isinstance(tree, str) and EXPONENT.fullmatch(tree) else tree


def layer_of(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Puts keys of the config, or else of the algorithm, in their places; `env_kwargs.key` reaches into a mapping."""
    layer: dict[str, Any] = {}
    for key, value in values:
        head, dot, tail = key.partition(".")
        if dot and head in TrainConfig.model_fields:
            layer.setdefault(head, {})[tail] = value
        elif key in TrainConfig.model_fields:
            layer[key] = value
        else:
            layer.setdefault("algo_kwargs", {})[key] = value
    return layer


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; mappings of keyword arguments are merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = _merged_kwargs(merged[key], value) if both else value
    return merged


def _merged_kwargs(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The later ones win, also over what they are an alternative to."""
    return {key: value for key, value in earlier.items() if ALTERNATIVES.get(key) not in later} | dict(later)
