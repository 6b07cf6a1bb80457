"""`Agent`: what all managed classes can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rl_training.api.history import History, HistoryRecorder, loggers_in_memory
from rl_training.envs.sources import EnvSource, config_name
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.checkpointing import save_tree
from rl_training.experiment.config import TrainConfig, make_config, merge
from rl_training.experiment.logging import Logger
from rl_training.experiment.presets import load_preset
from rl_training.experiment.registry import REGISTRY, algorithm
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.display import Mode
from rl_training.runtime.fine_tuning import start_from
from rl_training.runtime.manager import OnScreen, display_of, resumed_config, warn_of_ended_schedule
from rl_training.runtime.opening import open_checkpoint
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import TrainResult, predict, train_session
from rl_training.tools.export import Exported, export_policy
from rl_training.tools.record import Recording, record_episodes

AgentT = TypeVar("AgentT", bound="Agent")


def config_keys(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `TrainConfig` as they are, and those of the algorithm under `algo_kwargs`."""
    known = {key: value for key, value in overrides.items() if key in TrainConfig.model_fields}
    params = {key: value for key, value in overrides.items() if key not in known}
    return {**known, "algo_kwargs": {**known.get("algo_kwargs", {}), **params}}


class Agent:
    """Trains, evaluates, predicts, saves and loads, in memory; `rl_training.train_run` is for runs on disk."""

    algo: ClassVar[str]
    history: History  # the rows of metrics of all calls of `train`
    _budget: int  # steps of a call that names none
    _loggers: list[Logger]

    def __init__(self, env: EnvSource | None = None, **overrides: Any) -> None:
        """`overrides` are keys of `TrainConfig`, or hyper-parameters, schedules and warm-ups of the algorithm.

        Several environments at once are `tasks=[...]` in place of `env`.
        """
        named = {} if env is None else {"env_id": config_name(env)}
        config = make_config({"algo": self.algo, "defaults": "environment", **config_keys(overrides), **named})
        self._budget = config.total_timesteps
        self.history = History()
        self._loggers = loggers_in_memory(overrides.get("loggers", ()))
        self._session = Session(config, env=None if isinstance(env, str) else env)
        if config.init_from is not None:
            start_from(self._session, config.init_from, config.init_checkpoint)

    @classmethod
    def from_preset(cls: type[AgentT], name: str, env: EnvSource | None = None, **overrides: Any) -> AgentT:
        """An agent by a packaged preset (`"ppo/cartpole"`) or a YAML file; `overrides` win over its keys."""
        preset = load_preset(name)
        algo = preset.pop("algo", cls.algo)
        if algo != cls.algo:
            raise ConfigError(f"the preset {name!r} is for {algo!r}; use {algorithm(str(algo)).class_name}.from_preset")
        return cls(env, **merge({"defaults": "algorithm"}, preset, config_keys(overrides)))

    @property
    def config(self) -> TrainConfig:
        """The config, with what the environment and the calls of `train` have settled."""
        return self._session.config

    @property
    def policy(self) -> Any:
        """The torch module that acts."""
        return self._session.policy

    @property
    def num_timesteps(self) -> int:
        """The steps trained so far, over all environments together."""
        return self._session.progress.global_step

    def train(
        self,
        total_timesteps: int | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        display: Mode = "auto",
        stretch_schedules: bool = False,
    ) -> TrainResult:
        """Trains for so many steps more, by default as many as the agent was made for.

        Schedules end with the first call's budget or at `schedule_horizon`; `stretch_schedules` makes them end with
        this call's. `display` is `auto` for what fits the terminal or the notebook, or `none`.
        """
        session = self._session
        steps = self._budget if total_timesteps is None else total_timesteps
        if steps < 1:
            cure = f"leave it out for {self._budget}"
            raise ConfigError(f"train: total_timesteps must be at least 1, got {steps}; {cure}")
        if self.num_timesteps:
            budget = self.num_timesteps + steps
            session.configure(resumed_config(session.config, budget, stretch_schedules=stretch_schedules))
            warn_of_ended_schedule(session)
        else:
            session.configure(session.config.changed(total_timesteps=steps))
        recorder = HistoryRecorder(self.history, self._loggers)
        with display_of(session, display) as shown:
            return train_session(session, callbacks=[*callbacks, recorder, OnScreen(shown)])

    learn = train  # as Stable-Baselines3 calls it

    def evaluate(self, episodes: int = 20, *, deterministic: bool = True, seed: int | None = None) -> dict[str, Any]:
        """Mean, deviation, extremes and median of the returns of whole episodes, and their lengths."""
        return self._session.evaluate(episodes, deterministic=deterministic, seed=seed).summary()

    def predict(
        self, obs: Any, state: Any = None, *, deterministic: bool = True, action_mask: Any = None
    ) -> tuple[Any, Any]:
        """(action, state) for one observation or a batch of them; hand the state back with the next one.

        `action_mask` says which actions are legal, for a policy that was trained with masks.
        """
        return predict(self._session, obs, state=state, deterministic=deterministic, action_mask=action_mask)

    def save(self, path: Path | str) -> Path:
        """Everything, as a checkpoint directory: it predicts, evaluates, and trains on as if nothing had happened."""
        save_tree(Path(path), self._session.state_dict())
        return Path(path)

    @classmethod
    def load(
        cls: type[AgentT],
        path: Path | str,
        *,
        env: EnvSource | None = None,
        which: str | int = "latest",
        trust: bool = False,
        **changes: Any,
    ) -> AgentT:
        """Loads what `save` wrote, a checkpoint or a run; `changes` are keys as the class itself takes them.

        An environment that was a Python object is passed again as `env`; another one begins new episodes. What a file
        names that you did not make here is imported only with `trust`, or if you give it again.
        """
        opened = open_checkpoint(path, which=which, env=env, trust=trust, changes=config_keys(changes))
        algo = opened.config.algo
        if algo != cls.algo:
            raise CheckpointError(f"{path} holds {algo!r}; load it with {REGISTRY[algo].class_name}")
        agent = cls.__new__(cls)
        agent._budget = opened.config.schedule_horizon or opened.config.total_timesteps
        agent.history = History()
        agent._loggers = loggers_in_memory(changes.get("loggers", ()))
        agent._session = opened.session()
        return agent

    def record(self, output: Path | str = "episode.mp4", *, episodes: int = 1, **options: Any) -> Recording:
        """Plays episodes into an mp4 or a gif; `options` are those of `rl_training.tools.record.record_episodes`."""
        return record_episodes(self._session, output, episodes=episodes, **options)

    def export(self, output: Path | str, *, deterministic: bool = True, observations: int = 1000) -> Exported:
        """Writes the policy to an `.onnx`, `.pt2` or `.safetensors` file and compares it on real observations."""
        return export_policy(self._session, output, deterministic=deterministic, observations=observations)

    def close(self) -> None:
        """Closes the environments that the agent made, and the loggers that it was given."""
        self._session.close()
        for logger in self._loggers:
            logger.close()
