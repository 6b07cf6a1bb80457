"""Plain functions: a config, a run on disk, an evaluation. `rl_training.train("ppo/cartpole", seed=3)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.api.agent import Agent, config_keys
from rl_training.envs.sources import EnvSource, config_name
from rl_training.experiment.config import TrainConfig, merge
from rl_training.experiment.config import make_config as validated
from rl_training.experiment.presets import load_preset
from rl_training.experiment.registry import find_algorithm
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.display import Mode
from rl_training.runtime.manager import train_run
from rl_training.runtime.workflows import TrainResult, evaluate_checkpoint

Recipe = str | Path | Mapping[str, Any] | TrainConfig


def make_config(recipe: Recipe = "", *, env: EnvSource | None = None, **keys: Any) -> TrainConfig:
    """The config of an algorithm (`"ppo"`), a preset (`"ppo/cartpole"`), a YAML file, a mapping or another config.

    `keys` are keys of `TrainConfig` or of the algorithm, and win over the recipe's.
    """
    given = {} if env is None else {"env_id": config_name(env)}
    return validated(merge(_read(recipe), config_keys(keys), given))


def _read(recipe: Recipe) -> dict[str, Any]:
    if isinstance(recipe, Mapping | TrainConfig):
        return dict(recipe)
    name = str(recipe)
    if name and not find_algorithm(name):
        return load_preset(name)
    return {"defaults": "environment"} | ({"algo": name} if name else {})


def train(
    recipe: Recipe,
    *,
    env: EnvSource | None = None,
    callbacks: Sequence[Callback] = (),
    display: Mode = "none",
    **keys: Any,
) -> TrainResult:
    """Trains into a new run directory, by a recipe and keys as `make_config` takes them."""
    config = make_config(recipe, env=env, **keys)
    return train_run(config, env=None if isinstance(env, str) else env, callbacks=callbacks, display=display)


def evaluate(trained: Agent | Path | str, episodes: int = 20, **options: Any) -> dict[str, Any]:
    """Scores of whole episodes: of an agent, or of a run, a checkpoint or a model by its path.

    `options` are those of `Agent.evaluate`; for a path also `which`, `env` and `trust`, as `evaluate_checkpoint` has.
    """
    if isinstance(trained, Agent):
        return trained.evaluate(episodes, **options)
    return evaluate_checkpoint(trained, episodes=episodes, **options).summary()
