"""Defaults by the kind of environment, for a run that no preset describes.

A learner's `defaults_by_kind` says what differs from the defaults of its `Params` where the environment is of a kind.
What the user gives wins; whoever gives one key of a control (`learning_rate`) gets none of its others
(`learning_rate_schedule`) from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rl_training.envs.factory import choose_backend
from rl_training.envs.sources import EnvSource
from rl_training.envs.types import Spaces
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.runtime.controls import Control, control_keys
from rl_training.runtime.params import canonical_params

UNCLIPPED = {"eval_env_kwargs": {"reward_clipping": False}}  # Atari's preprocessing clips; a score is the game's own


def settled(config: TrainConfig, spaces: Spaces, env: EnvSource | None = None) -> TrainConfig:
    """The config with the defaults for its environment written out, where it asks for them."""
    if config.defaults != "environment":
        return config
    learner = config.learner_class()
    given = canonical_params(learner.Params, learner.controls, config.algo_kwargs)
    by_kind = learner.defaults_for(spaces, given)
    kwargs = {key: value for key, value in by_kind.items() if key not in _spoken_for(given, learner.controls)}
    atari = UNCLIPPED if not config.tasks and choose_backend(config.env_spec(env)) == "atari" else {}
    said = {**dict(config), "algo_kwargs": given, "defaults": "algorithm"}
    return make_config(merge({"algo_kwargs": kwargs, **atari}, said))


def _spoken_for(given: Mapping[str, Any], controls: Iterable[Control]) -> set[str]:
    """The keys of all controls of which one key was given."""
    groups = [set(control_keys(control)) for control in controls]
    return set().union(*(group for group in groups if group & given.keys()))
