"""The package's exceptions; each class says with which code the command line exits."""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

WHAT_NEEDS_EXTRA = {
    "atari": "an Atari environment",
    "box2d": "a Box2D environment",
    "classic": "rendering classic control",
    "envpool": "an environment of EnvPool",
    "dm_control": "a dm_control environment",
    "export": "exporting to ONNX",
    "hub": "sharing on the Hugging Face Hub",
    "minari": "a Minari dataset",
    "minatar": "a MinAtar environment",
    "minigrid": "a MiniGrid environment",
    "mlflow": "logging to MLflow",
    "mujoco": "a MuJoCo environment",
    "open_spiel": "a game of OpenSpiel",
    "pandas": "a table of metrics",
    "pettingzoo": "a game of PettingZoo",
    "plot": "plotting",
    "popgym": "a POPGym environment",
    "ray": "the Ray backend",
    "serve": "serving a policy",
    "tensorboard": "TensorBoard logging",
    "trackio": "logging to Trackio",
    "tune": "tuning",
    "video": "recording video",
    "wandb": "logging to Weights & Biases",
}


class RLTrainingError(Exception):
    """The run failed."""

    exit_code = 1


class ConfigError(RLTrainingError, ValueError):
    """The configuration, or an argument that stands for one, is wrong."""

    exit_code = 2


class EnvironmentFault(RLTrainingError):
    """An environment cannot be made, or broke while it was stepped."""

    exit_code = 3


class CheckpointError(RLTrainingError):
    """A checkpoint is missing, damaged, foreign, or cannot be written."""

    exit_code = 4


class NonFiniteError(RLTrainingError):
    """A loss, a gradient or a parameter is no longer finite."""

    exit_code = 5


class MissingExtraError(RLTrainingError):
    """A feature needs a package that is not installed."""

    exit_code = 6


class StoppedBySignal(RLTrainingError):
    """The run was asked to stop; it exits as a shell expects, with 128 + the signal's number."""

    exit_code = 130

    def __init__(self, signum: int, told: str | None = None) -> None:
        super().__init__(told or f"stopped by signal {int(signum)}")
        self.signum = int(signum)
        self.exit_code = 128 + self.signum

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.signum, str(self))


def did_you_mean(word: object, options: Iterable[str]) -> str:
    """The cure for a misspelt `word`: the nearest option, or all of them when none is near."""
    options = list(options)
    close = get_close_matches(str(word), options, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(options)}"


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """The error to raise when `package`, which the optional dependency group `extra` brings, is absent."""
    feature = WHAT_NEEDS_EXTRA.get(extra, f"the extra {extra!r}")
    return MissingExtraError(f"{feature} needs {package}; install it with: pip install 'rl-training[{extra}]'")


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        # `torch.utils.tensorboard` is there without tensorboard: what is missing is what the error names.
        missing = (error.name if isinstance(error, ModuleNotFoundError) else None) or module
        raise missing_extra(extra, missing.partition(".")[0]) from error
