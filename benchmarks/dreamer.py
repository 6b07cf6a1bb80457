"""`python -m benchmarks.dreamer`: gradient steps per CPU second of Dreamer, ours beside sheeprl's DreamerV3.

One process, one thread, alternating rounds. Both train world model, actor and critic of the size of the preset
`dreamer/cartpole` on the same number of replayed and imagined steps of CartPole's shapes. Theirs is `dreamer_v3_5`, the
published version with the same parts as ours: LaProp, adaptive clipping, the critic's loss on replayed states.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
import time
import warnings
from collections.abc import Callable
from datetime import date
from importlib import metadata
from statistics import median
from typing import Any

import torch
from gymnasium import spaces

from benchmarks.compare_sb3 import PAGE, write_section
from rl_training.envs.types import Spaces
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset
from rl_training.models.dreamer import SIZES
from rl_training.runtime.dreamer_trainer import DreamerLearner, DreamerParams

BAR = 2.0
ROUNDS, STEPS = 7, 20
PARAMS: DreamerParams = make_config(load_preset("dreamer/cartpole")).parsed_params().params
OBSERVATION = spaces.Box(-5.0, 5.0, (4,))
ACTIONS = 2


def our_step() -> Callable[[], Any]:
    length, rows = PARAMS.sequence_length, PARAMS.batch_size
    action = spaces.Discrete(ACTIONS)
    learner = DreamerLearner(PARAMS, Spaces(OBSERVATION, action), num_envs=8, seed=0, device=torch.device("cpu"))
    starts = torch.zeros(length, rows, dtype=torch.bool)
    starts[0] = True
    batch = {
        "obs": torch.randn(length, rows, 4),
        "previous_actions": torch.randint(ACTIONS, (length, rows)),
        "rewards": torch.ones(length, rows),
        "terminal": torch.zeros_like(starts),
        "is_first": starts,
        "is_last": torch.zeros_like(starts),
    }
    return lambda: learner.algorithm.update(batch)


def their_step() -> Callable[[], Any]:
    import hydra
    from lightning import Fabric
    from omegaconf import OmegaConf
    from sheeprl.algos.dreamer_v3_5.agent import build_agent
    from sheeprl.algos.dreamer_v3_5.dreamer_v3_5 import train
    from sheeprl.algos.dreamer_v3_5.utils import Moments
    from sheeprl.utils.utils import dotdict

    with hydra.initialize_config_module("sheeprl.configs", version_base="1.3"):
        composed = hydra.compose("config", [f"{key}={value}" for key, value in their_options().items()])
    cfg = dotdict(OmegaConf.to_container(composed, resolve=True, throw_on_missing=False))
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    world_model, actor, critic, slow_critic, _ = build_agent(
        fabric, (ACTIONS,), False, cfg, spaces.Dict({"state": OBSERVATION})
    )
    modules = (world_model, actor, critic)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = fabric.setup_optimizers(hydra.utils.instantiate(cfg.algo.optimizer, params=parameters, _convert_="all"))
    scale = cfg.algo.actor.moments
    moments = Moments(scale.decay, scale.max, scale.percentile.low, scale.percentile.high)
    shape = (PARAMS.sequence_length, PARAMS.batch_size)
    data = {
        "state": torch.randn(*shape, 4),
        "actions": torch.nn.functional.one_hot(torch.randint(ACTIONS, shape), ACTIONS).float(),
        "rewards": torch.ones(*shape, 1),
    }
    data |= {name: torch.zeros(*shape, 1) for name in ("terminated", "truncated", "is_first")}
    return lambda: train(fabric, cfg, *modules, slow_critic, optimizer, moments, data, None, (ACTIONS,))


def their_options() -> dict[str, Any]:
    size = SIZES[PARAMS.size]
    model = {
        "stochastic_size": size.rssm.groups,
        "discrete_size": size.rssm.classes,
        "recurrent_model.recurrent_state_size": size.rssm.deter,
        "recurrent_model.hidden_size": size.rssm.hidden,
        "recurrent_model.blocks": size.rssm.blocks,
        "encoder.mlp_layers": size.codec.layers,
        "observation_model.mlp_layers": size.codec.layers,
        "reward_model.bins": PARAMS.num_bins,
    }
    others = {
        "cnn_keys.encoder": "[]",
        "mlp_keys.encoder": "[state]",
        "horizon": PARAMS.horizon,
        "replay_context": 0,
        "dense_units": size.units,
        "actor.mlp_layers": size.layers,
        "critic.mlp_layers": size.layers,
        "critic.bins": PARAMS.num_bins,
    }
    options = others | {f"world_model.{name}": value for name, value in model.items()}
    return {"exp": "dreamer_v3_5", "env": "gym"} | {f"algo.{name}": value for name, value in options.items()}


def steps_per_cpu_second(step: Callable[[], Any]) -> float:
    started = time.process_time()
    for _ in range(STEPS):
        step()
    return STEPS / (time.process_time() - started)


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = {"ours": our_step(), "sheeprl": their_step()}
    for step in steps.values():
        steps_per_cpu_second(step)
    rounds = [{name: steps_per_cpu_second(step) for name, step in steps.items()} for _ in range(ROUNDS)]
    speeds = {name: median(row[name] for row in rounds) for name in steps}
    ratio = median(row["ours"] / row["sheeprl"] for row in rounds)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("rl-training", "sheeprl", "torch"))
    text = (
        f"{date.today()}, one thread, {ROUNDS} alternating rounds of {STEPS} gradient steps, medians; {versions}.\n\n"
        f"The work: a gradient step of Dreamer at the size of `dreamer/cartpole`, {PARAMS.batch_size} sequences of "
        f"{PARAMS.sequence_length}, {PARAMS.horizon} imagined steps from each state.\n\n"
        "| ours, steps per CPU s | sheeprl | CPU ratio | bar |\n|---|---|---|---|\n"
        f"| {speeds['ours']:.1f} | {speeds['sheeprl']:.1f} | {ratio:.2f} | "
        f"{'met' if ratio >= BAR else 'missed'}: {BAR:g} |\n\n"
        "Again: `python -m benchmarks.dreamer`"
    )
    print(text)
    write_section(PAGE, "bench:dreamer", text)
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
