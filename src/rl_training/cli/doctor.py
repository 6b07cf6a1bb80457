"""`doctor`: what is installed, what the machine offers, and whether training works."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from importlib.util import find_spec
from typing import Any

import torch

from rl_training.cli.main import Answer
from rl_training.errors import RLTrainingError
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.experiment.starts import versions
from rl_training.runtime.manager import train_run
from rl_training.runtime.session import resolve_device

EXTRAS = {  # the module by which each extra is known to be there
    "atari": "ale_py",
    "box2d": "Box2D",
    "classic": "pygame",
    "dm_control": "dm_control",
    "envpool": "envpool",
    "export": "onnxruntime",
    "hub": "huggingface_hub",
    "minari": "minari",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "mlflow": "mlflow",
    "mujoco": "mujoco",
    "open_spiel": "pyspiel",
    "pandas": "pandas",
    "pettingzoo": "pettingzoo",
    "plot": "matplotlib",
    "popgym": "popgym",
    "ray": "ray",
    "serve": "fastapi",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "tune": "optuna",
    "video": "imageio_ffmpeg",
    "wandb": "wandb",
}
SMOKE = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 2_000, "eval_episodes": 0}

# What compiles beside what the smoke run does.
COMPILED = ("muzero", "gumbel_muzero", "efficientzero", "scalezero", "dreamer")
WARM = {"total_timesteps": 256, "eval_episodes": 1, "algo_kwargs": {"learning_starts": 128, "batch_size": 4}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warm", action="store_true", help="compile the inner loops of planners and Dreamer, so that no run waits"
    )


def run(args: argparse.Namespace) -> Answer:
    report = {"versions": versions(), "machine": machine(), "extras": extras(), "smoke": smoke_run()}
    if args.warm:
        report["seconds to warm up"] = {algo: warm_up(algo) for algo in COMPILED}
    text = "\n\n".join(f"{name}\n{_block(part)}" for name, part in report.items())
    return Answer(text, report, exit_code=0 if report["smoke"]["status"] == "ok" else 1)


def machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": str(resolve_device("auto")),
    }


def extras() -> dict[str, str]:
    """`installed`, or the command that installs it."""
    return {
        name: "installed" if find_spec(module) else f"pip install 'rl-training[{name}]'"
        for name, module in EXTRAS.items()
    }


def smoke_run() -> dict[str, Any]:
    """A short training in a directory that is gone afterwards; the speed is that of the training loop."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = train_run(make_config({**SMOKE, "output_dir": folder}))
        except (RLTrainingError, RuntimeError, OSError, ImportError) as error:
            return {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    speed = result.metrics["global_step"] / result.metrics["seconds"]
    return {"status": "ok", "steps": result.global_step, "steps_per_second": round(speed)}


def warm_up(algo: str) -> float:
    """Seconds of a short training, after which the algorithm's compiled code lies on disk."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train_run(make_config(merge(load_preset(f"{algo}/cartpole"), WARM, {"output_dir": folder})))
    return round(time.perf_counter() - started, 1)


def _block(part: dict[str, Any]) -> str:
    width = max(map(len, part))
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in part.items())
