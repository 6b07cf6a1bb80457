"""The environments of a session: how many there are, whether they fit, and which ones evaluations play on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_training.envs.factory import make_envs
from rl_training.envs.sources import EnvSource, is_instance, source_name
from rl_training.envs.space_codec import same_form, spaces_from
from rl_training.envs.types import Envs, Spaces
from rl_training.errors import CheckpointError, ConfigError, EnvironmentFault
from rl_training.experiment.config import TrainConfig

if TYPE_CHECKING:
    from rl_training.runtime.session import Session


def refuse_to_send(env: EnvSource | None, config: TrainConfig) -> None:
    """An instance lives in this process only."""
    if is_instance(env) and (config.backend == "ray" or config.collect_ahead or config.eval_in_background):
        raise ConfigError(f"{source_name(env)} cannot be sent to other processes; pass a callable that makes it")


def fitting(config: TrainConfig, envs: Envs, wanted: int) -> TrainConfig:
    """The config with the number of environments that an instance or a vector environment has, unless it says one."""
    if envs.num_envs == wanted:
        return config
    if "num_envs" in config.model_fields_set:
        raise ConfigError(
            f"num_envs: {wanted} are wanted, and {config.env_id} has {envs.num_envs}; pass a callable that makes one "
            f"environment (or takes num_envs, for a VectorEnv), or num_envs={envs.num_envs}"
        )
    return config.changed(num_envs=envs.num_envs)


def refuse_other_spaces(env_id: str, own: Spaces, state: Mapping[str, Any]) -> None:
    """Names both spaces where a checkpoint's policy cannot act in the environments."""
    stored = spaces_from(state.get("spaces"))
    if not same_form(stored, own):
        raise CheckpointError(
            f"{env_id} has other spaces than the checkpoint: {own.observation} and {own.action}, "
            f"not {stored.observation} and {stored.action}"
        )


class EvaluationEnvs:
    """Made for evaluations alone and kept between them, or training's own where there is but one instance."""

    def __init__(self, session: Session, training: Envs) -> None:
        self.are_shared = is_instance(session.env)
        self._session = session
        self._envs: Envs | None = training if self.are_shared else None
        self._wanted = 0
        if session.config.eval_env_kwargs and session.config.eval_episodes:
            self.get(session.config.eval_episodes)  # so that what is wrong with them is found now

    def get(self, episodes: int) -> Envs:
        """The environments for so many episodes: those that are there, or new ones."""
        config = self._session.config
        if self.are_shared and self._envs is not None:
            if config.eval_env_kwargs:
                raise ConfigError("eval_env_kwargs: the only environment was made before; pass a callable")
            return self._envs
        wanted = min(episodes, config.num_envs)
        if self._envs is None or self._wanted != wanted:
            self.close()
            envs = make_envs(config.env_spec(self._session.env, evaluation=True), wanted)
            if envs.spaces != self._session.spaces:
                envs.close()
                raise EnvironmentFault(f"evaluation has other spaces than training: {envs.spaces}")
            self._envs, self._wanted = envs, wanted
        return self._envs

    def close(self) -> None:
        """Closes what was made here; an instance that the user made stays open."""
        if self._envs is not None and not self.are_shared:
            self._envs.close()
            self._envs = None
