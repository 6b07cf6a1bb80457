"""Runs that are killed with -9 again and again, and must end as if nobody had touched them."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))  # the conformance suite has the small configurations

from conformance import SMALL, differences, preset_of, rows_of, small_config  # noqa: E402
from rl_training.cli.main import main as run_command  # noqa: E402
from rl_training.experiment.checkpointing import STAGING_PREFIX, load_checkpoint  # noqa: E402
from rl_training.experiment.config import TrainConfig, make_config, merge  # noqa: E402
from rl_training.experiment.presets import load_preset  # noqa: E402

ITERATIONS = 40  # of a run, each of which makes a checkpoint
SECONDS = 300  # for a process that is left alone
TIMES = ("seconds", "cpu_seconds")


@dataclass(frozen=True)
class Victim:
    name: str
    config: TrainConfig


class Outcome(NamedTuple):
    victim: Victim
    kills: int
    within_checkpoints: int
    differing: list[str]


def victims(output_dir: Path) -> Iterator[Victim]:
    """Every algorithm, and what else has a state that could be forgotten."""
    for algo in SMALL:
        yield Victim(preset_of(algo), _short(small_config(algo, output_dir)))
    picture = {"rollout_steps": 8, "update_epochs": 1, "num_minibatches": 2}
    ppo = SMALL["ppo"]["algo_kwargs"]
    others: dict[str, dict[str, Any]] = {
        "ppo/pendulum, both normalisations": {
            "preset": "ppo/pendulum",
            "num_envs": 2,
            "algo_kwargs": ppo | {"normalize_obs": True, "normalize_reward": True},
        },
        "ppo/cartpole, clipped rewards and a time limit": {
            "preset": "ppo/cartpole",
            "num_envs": 2,
            "wrappers": [{"clip_reward": {"low": -1, "high": 1}}, {"time_limit": 50}],
            "algo_kwargs": ppo,
        },
        "ppo/lunarlander, whose state is hidden": {"preset": "ppo/lunarlander", "num_envs": 2, "algo_kwargs": ppo},
        "ppo/pong": {"preset": "ppo/pong", "num_envs": 2, "algo_kwargs": picture},
        "ppo/cartpole, processes": {"preset": "ppo/cartpole", "num_envs": 2, "backend": "async", "algo_kwargs": ppo},
        "ppo/cartpole, TensorBoard and CSV": {
            "preset": "ppo/cartpole",
            "num_envs": 2,
            "loggers": ["jsonl", "csv", "tensorboard"],
            "algo_kwargs": ppo,
        },
        "scalezero/classic, three tasks": {
            "preset": "scalezero/classic",
            "num_envs": 3,
            "algo_kwargs": SMALL["scalezero"]["algo_kwargs"],
        },
        "muzero/catch, pictures": {
            "preset": "muzero/catch",
            "num_envs": 2,
            "algo_kwargs": {k: v for k, v in SMALL["muzero"]["algo_kwargs"].items() if k != "hidden_sizes"},
        },
    }
    for name, changes in others.items():
        preset = load_preset(changes.pop("preset"))
        yield Victim(name, _short(make_config(merge(preset, {"output_dir": str(output_dir)}, changes))))


def _short(config: TrainConfig) -> TrainConfig:
    """A budget of a few iterations, each of which makes a checkpoint."""
    rows = config.num_envs * config.parsed_params().params.rollout_steps
    budget = {"total_timesteps": ITERATIONS * rows, "checkpoint_interval": rows, "eval_episodes": 0, "threads": 1}
    return make_config(config.model_dump(mode="json") | budget)


def ordeal(victim: Victim, *, kills: int, rng: random.Random) -> Outcome:
    """Trains the same run twice, of which one is killed so many times, every other time within a checkpoint."""
    whole, killed = (_written(victim, name) for name in ("whole", "killed"))
    _finish(_start("train", "--config", str(whole)))
    done = within = 0
    for attempt in range(kills):
        process = _start(*_next_command(killed))
        within_checkpoint = attempt % 2 == 1
        if not _reach(process, killed, rng.randint(1, 3), within_checkpoint):
            break  # the run was over before
        if not within_checkpoint:
            time.sleep(rng.uniform(0.0, 0.05))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        done, within = done + 1, within + within_checkpoint
    _finish(_start(*_next_command(killed)))
    states = [load_checkpoint(_run_dir(path)) for path in (whole, killed)]
    for state in states:
        state["config"].pop("run_name")
    differing = differences(*states) + _different_rows(whole, killed)
    return Outcome(victim, done, within, differing)


def _written(victim: Victim, name: str) -> Path:
    """The config as a file, with a run's name of its own."""
    path = Path(victim.config.output_dir) / f"{re.sub('[^a-z]+', '-', victim.name)}-{name}.yaml"
    path.write_text(yaml.safe_dump(victim.config.model_dump(mode="json") | {"run_name": path.stem}))
    return path


def run_dir_of(victim: Victim) -> Path:
    """The run that was left alone."""
    return _run_dir(_written(victim, "whole"))


def _run_dir(config: Path) -> Path:
    named = [path for path in config.parent.glob(f"*/*/{config.stem}") if path.is_dir()]
    return named[0] if named else config.parent / "nothing yet"


def _next_command(config: Path) -> tuple[str, ...]:
    """Goes on from a checkpoint; without one the run is begun again."""
    run_dir = _run_dir(config)
    if (run_dir / "checkpoints" / "latest").exists():
        return ("resume", str(run_dir))
    shutil.rmtree(run_dir, ignore_errors=True)
    return ("train", "--config", str(config))


def _start(*arguments: str) -> BaseProcess:
    """A verb of the command line, in a child that has this process's imports."""
    process = multiprocessing.get_context("fork").Process(target=_be_command, args=(arguments,))
    process.start()
    return process


def _be_command(arguments: tuple[str, ...]) -> None:
    os.setsid()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    sys.exit(run_command([*arguments, "--display", "none"]))


def _finish(process: BaseProcess) -> None:
    process.join(SECONDS)
    if process.exitcode != 0:
        process.kill()
        raise RuntimeError(f"a run that nobody touched ended with {process.exitcode}")


def _reach(process: BaseProcess, config: Path, saves: int, within_checkpoint: bool) -> bool:
    """Waits until so many checkpoints more were begun, or made; returns whether the process still runs."""
    prefix = f"{STAGING_PREFIX}step-" if within_checkpoint else "step-"
    before, seen = set(_checkpoints(config)), set()
    while process.is_alive():
        seen |= {name for name in _checkpoints(config) if name.startswith(prefix)}
        if len(seen - before) >= saves:
            return True
    return False


def _checkpoints(config: Path) -> list[str]:
    try:
        return os.listdir(_run_dir(config) / "checkpoints")
    except FileNotFoundError:
        return []


def _different_rows(*configs: Path) -> list[str]:
    """Metrics that differ in anything but time."""
    first, second = ([_without_time(row) for row in rows_of(_run_dir(config))] for config in configs)
    return [] if first == second else [f"metrics.jsonl ({len(first)} rows against {len(second)})"]


def _without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in TIMES}
