"""Experiments that must fail: `python -m benchmarks.must_fail`. What passes them proves nothing.

- A feed-forward PPO on CartPole without velocities: if it balances the pole, the task needs no memory.
- A feed-forward PPO where the answer is what was seen steps ago: it could only guess.
- GAIL on Pendulum with shuffled labels: if it imitates, something other than the discriminator taught it.
- PPO on a task of MiniGrid without the bonus for what is new: if it is solved, it needs no curiosity.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.compare_sb3 import write_section
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.algorithms.gail import GAIL
from rl_training.data.trees import tree_map
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import train_session

ROOT = Path(__file__).parent.parent
SEEDS = range(2)


def train(preset: str | dict[str, Any], seed: int, **changes: Any) -> float:
    settings = load_preset(preset) if isinstance(preset, str) else preset
    session = Session(make_config(merge(settings, {"seed": seed, "threads": 1}, changes)))
    evaluation = train_session(session).evaluation
    session.close()
    assert evaluation is not None
    return evaluation.return_mean


def without_velocities(seed: int) -> float:
    return train("ppo/cartpole", seed, wrappers=["masked_velocities"])


def without_memory(preset: str) -> Callable[[int], float]:
    settings = load_preset(preset)
    settings["algo_kwargs"].pop("recurrent_size", None)
    return lambda seed: train(settings, seed, algo="ppo")


def with_shuffled_labels(seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    honest = GAIL.discriminator_update

    def shuffled(self: GAIL, expert: Batch, policy: Batch) -> UpdateResult:
        both = tree_map(lambda a, b: torch.cat([a, b]), dict(expert), dict(policy))
        order = torch.randperm(2 * len(expert["actions"]), generator=generator)
        first, second = order.chunk(2)
        return honest(self, tree_map(lambda leaf: leaf[first], both), tree_map(lambda leaf: leaf[second], both))

    GAIL.discriminator_update = shuffled  # type: ignore[method-assign]
    try:
        return train("gail/pendulum", seed)
    finally:
        GAIL.discriminator_update = honest  # type: ignore[method-assign]


def without_curiosity(seed: int) -> float:
    return train("ppo/minigrid_multiroom", seed, algo_kwargs={"rnd_coef": 0.0})


CONTROLS = {
    "feed-forward PPO on CartPole without velocities stays under 150": (without_velocities, 150.0),
    **{
        f"feed-forward PPO on `{preset}` stays under −0.3": (without_memory(preset), -0.3)
        for preset in ("recurrent_ppo/popgym_repeat_previous", "recurrent_ppo/popgym_autoencode")
    },
    "GAIL with shuffled labels on Pendulum stays under −800": (with_shuffled_labels, -800.0),
    "PPO on `ppo/minigrid_multiroom` without its bonus stays under 0.1": (without_curiosity, 0.1),
}


def main() -> int:
    lines = ["| control | seeds | returns | fails as it must |", "|---|---|---|---|"]
    failed_as_they_must = True
    for name, (run, ceiling) in CONTROLS.items():
        returns = [run(seed) for seed in SEEDS]
        as_it_must = max(returns) < ceiling
        failed_as_they_must &= as_it_must
        scores = ", ".join(f"{value:.{2 if abs(value) < 10 else 0}f}" for value in returns)
        lines.append(f"| {name} | {len(returns)} | {scores} | {'yes' if as_it_must else 'NO'} |")
        print(lines[-1], flush=True)
    write_section(ROOT / "docs" / "benchmarks.md", "controls", "\n".join(lines))
    return 0 if failed_as_they_must else 1


if __name__ == "__main__":
    raise SystemExit(main())
