"""`make learn`: trains presets over several seeds and compares the worst, or their mean, with its bar.

Every finished seed is kept in `benchmarks/results/<algo>/<preset>.json`, so that a stopped call goes on where it was;
`--again` forgets them. The table in `docs/benchmarks.md` is made from these files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compare_sb3 import write_section
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import SCORES, load_preset
from rl_training.experiment.runs import file_name
from rl_training.tools.plot import plot_runs

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "runs" / "learn"
SEEDS = range(5)
FEWER_SEEDS = range(3)
ONE_SEED = range(1)

# preset → the mean greedy return that the worst of the seeds has to reach, or what it has to reach of each metric.
BARS: dict[str, float | dict[str, float]] = {
    "ppo/cartpole": 490,
    "ppo/acrobot": -95,
    "ppo/pendulum": -250,
    "ppo/lunarlander": 200,
    "ppo/mountaincar": -130,
    "a2c/cartpole": 475,
    "trpo/cartpole": 475,
    "trpo/pendulum": -250,
    "recurrent_ppo/cartpole_masked": 475,
    "impala/cartpole": 475,
    "appo/cartpole": 475,
    "ppg/cartpole": 475,
    "muzero/cartpole": 450,
    "gumbel_muzero/cartpole": 475,
    "muzero/tictactoe": 0,  # against the perfect player, from whom nobody wins
    "gumbel_muzero/tictactoe": 0,
    "gumbel_muzero/connect_four": {"success_rate": 0.95, "success_rate/rollouts:200": 0.8},
    "efficientzero/cartpole": 450,
    "scalezero/cartpole": 400,
    "scalezero/classic": {"return_mean/CartPole-v1": 350, "return_mean/Acrobot-v1": -130},
    "gail/cartpole": 475,
    "gail/pendulum": -202,  # within 15 % of the expert, who returns −175.7 over 100 episodes
    "dreamer/cartpole": 450,
    "dreamer/pendulum": -350,
    "dreamer/catch": 1.0,
    "muzero/catch": 1.0,
}


class OnMean(NamedTuple):
    """A bar on the mean of the seeds, of which none may miss it by more than 40 %, and what others reached."""

    mean: float
    published: str
    metric: str = "return_mean"  # of the final evaluation

    @property
    def lowest(self) -> float:
        return self.mean - 0.4 * abs(self.mean)


MUJOCO_PPO = "Tianshou {}; RL Zoo, one run on v3, {}; CleanRL on v4 {}"
MINATAR = "pgx after 20 million steps, read off a figure, {}"
ON_MEAN: dict[str, OnMean] = {
    "ppo/halfcheetah": OnMean(4900, MUJOCO_PPO.format("5,784", "5,819", "1,443")),
    "ppo/hopper": OnMean(2400, MUJOCO_PPO.format("2,609", "2,410", "2,383")),
    "ppo/walker2d": OnMean(3200, MUJOCO_PPO.format("3,589", "3,479", "2,288")),
    "ppo/swimmer": OnMean(270, "RL Zoo, one run, 282"),
    "ppo/minigrid_doorkey": OnMean(0.95, "RL Zoo, one run, 0.964"),
    "ppo/minigrid_keycorridor": OnMean(0.93, "RL Zoo, one run, 0.949"),
    "ppo/minigrid_multiroom": OnMean(0.65, ""),
    "ppo/minatar_breakout": OnMean(20, MINATAR.format(50)),
    "ppo/minatar_asterix": OnMean(10, MINATAR.format(22)),
    "ppo/minatar_space_invaders": OnMean(60, MINATAR.format(145)),
    "ppo/pong": OnMean(18, "RL Zoo after 10 million steps, one run, 20.9"),
    "a2c/halfcheetah": OnMean(1700, "Tianshou 1,830"),
    "a2c/hopper": OnMean(1150, "Tianshou 1,253"),
    "a2c/inverted_double_pendulum": OnMean(8500, "Tianshou 9,258"),
    "trpo/halfcheetah": OnMean(3900, "Tianshou 4,471"),
    "trpo/walker2d": OnMean(3300, "Tianshou 3,827"),
    "trpo/hopper": OnMean(2600, "RL Zoo, one run, 3,618"),
    "recurrent_ppo/pendulum_masked": OnMean(-230, "RL Zoo, one run, −218"),
    "recurrent_ppo/mountaincar_continuous_masked": OnMean(89, "RL Zoo, one run, 91.5"),
    "recurrent_ppo/popgym_repeat_previous": OnMean(0.9, "none; PPO without a memory has −0.5"),
    "recurrent_ppo/popgym_autoencode": OnMean(-0.3, "none; PPO without a memory has −0.5"),
    "appo/minigrid_doorkey": OnMean(0.77, "none; the bar is 80 % of `ppo/minigrid_doorkey`"),
    "impala/minigrid_doorkey": OnMean(0.77, "none; the bar is 80 % of `ppo/minigrid_doorkey`"),
    "appo/hopper": OnMean(2616, "none; the bar is 80 % of `ppo/hopper`"),
    "impala/hopper": OnMean(2616, "none; the bar is 80 % of `ppo/hopper`"),
    "impala/minatar_breakout": OnMean(20, "none; the bar is 80 % of `ppo/minatar_breakout`"),
    "appo/minatar_breakout": OnMean(20, "none; the bar is 80 % of `ppo/minatar_breakout`"),
    "ppg/minatar_breakout": OnMean(25, "none; the bar is `ppo/minatar_breakout`"),
    "ppg/minatar_asterix": OnMean(14.6, "none; the bar is `ppo/minatar_asterix`"),
    "gail/hopper": OnMean(2873, "Tianshou 1,761; the bar is 85 % of the expert"),  # who returns 3,380 over 10 episodes
    "gail/halfcheetah": OnMean(4630, "Tianshou 5,177; the bar is 85 % of the expert"),  # 5,447 over 10 episodes
    "muzero/grid": OnMean(0.7, ""),  # the shortest ways return 0.77
    "gumbel_muzero/grid": OnMean(0.7, ""),
    "gumbel_muzero/pendulum": OnMean(-200, ""),
    "gumbel_muzero/lunarlander": OnMean(200, "LightZero after 700,000 steps, read off a figure, 130"),
    "gumbel_muzero/lunarlander_continuous": OnMean(200, ""),
    "efficientzero/grid": OnMean(0.7, ""),
    "scalezero/grid": OnMean(0.7, ""),
    "dreamer/cartpole_swingup": OnMean(650, "tdmpc2's DreamerV3 677"),
    "dreamer/cup_catch": OnMean(830, "tdmpc2's DreamerV3 870"),
    "dreamer/reacher_easy": OnMean(800, "tdmpc2's DreamerV3 872"),
    "dqn/cartpole": OnMean(490, "RL Zoo, one run, 500"),
    "dqn/acrobot": OnMean(-85, "RL Zoo, one run, −77"),
    "dqn/mountaincar": OnMean(-110, "RL Zoo, one run, −101"),
    "sac/pendulum": OnMean(-165, "RL Zoo, one run, −157"),
    "sac/mountaincar_continuous": OnMean(93, "RL Zoo, one run, 94.7"),
    "sac/cartpole_swingup": OnMean(800, "tdmpc2's SAC 835"),
    "sac/cup_catch": OnMean(920, "tdmpc2's SAC 958"),
    "sac/fetchreach": OnMean(0.95, "", metric="success_rate"),
    "td3/pendulum": OnMean(-165, "RL Zoo, one run, −152"),
}
PRESETS = (*BARS, *ON_MEAN)
COSTLY = (
    "muzero/tictactoe",
    "gumbel_muzero/tictactoe",
    "gumbel_muzero/connect_four",
    "gumbel_muzero/pendulum",
    "gumbel_muzero/lunarlander",
    "gumbel_muzero/lunarlander_continuous",
    "dreamer/cartpole_swingup",
    "dreamer/cup_catch",
    "dreamer/reacher_easy",
    "dreamer/catch",
    "muzero/catch",
    *(preset for preset in PRESETS if preset.endswith("/grid")),
)
LONG = ("ppo/pong",)  # hours
RIVALS = {"gumbel_muzero/connect_four": "rollouts:200"}  # another opponent, whom a trained run meets as well
RIVALRY = 200  # games
_writing = threading.Lock()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="presets or algorithms; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time [2]")
    parser.add_argument("--again", action="store_true", help="forget earlier results of the chosen presets")
    args = parser.parse_args()
    chosen = [p for p in PRESETS if not args.presets or p in args.presets or p.partition("/")[0] in args.presets]
    if args.again:
        for preset in chosen:
            result_path(preset).unlink(missing_ok=True)
    missing = [(preset, seed) for preset in chosen for seed in seeds_of(preset) if str(seed) not in load(preset)]
    with ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda work: train(*work), missing):
            print(line, flush=True)
    for preset in chosen:
        draw(preset)
    write_table()
    SCORES.write_text(json.dumps(scores(), indent=1) + "\n")
    missed = [p for p in chosen if not reaches_its_bar(p)]
    print(f"{len(chosen) - len(missed)} presets reach their bar" + (f", missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def seeds_of(preset: str) -> range:
    if preset in LONG:
        return ONE_SEED
    return FEWER_SEEDS if preset in COSTLY else SEEDS


def train(preset: str, seed: int) -> str:
    """One seed, whose result is kept."""
    result = measured(training(preset, seed))
    if preset in RIVALS:
        result |= meeting(RIVALS[preset], runs_of(preset, f"*-seed{seed}")[-1])
    keep(result_path(preset), str(seed), result)
    return f"{preset} seed {seed}: {result['return_mean']} in {result['cpu_seconds']} CPU s"


def training(preset: str, seed: int) -> list[str]:
    """The command that trains a preset with one thread and tells its scores in JSON."""
    flags = ["--seed", str(seed), "--threads", "1", "--output-dir", str(RUNS), "--display", "none", "--json"]
    return [sys.executable, "-m", "rl_training", "train", "--config", preset, *flags]


def measured(command: list[str]) -> dict[str, Any]:
    """The scores that a command tells, and the time that its process took."""
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    answer = json.loads(output)
    return {
        "return_mean": round(answer["return_mean"], 4),
        "return_min": round(answer["return_min"], 4),
        "steps": answer["global_step"],
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
        **{
            name: round(answer[name], 3) for name in answer if name == "success_rate" or name.startswith("return_mean/")
        },
    }


def meeting(rival: str, run: Path) -> dict[str, float]:
    """The share of games that a run wins against another opponent than its config's."""
    against = ["--eval-env-kwargs", json.dumps({"opponent": rival}), "--episodes", str(RIVALRY), "--json"]
    command = [sys.executable, "-m", "rl_training", "evaluate", str(run), *against]
    answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return {f"success_rate/{rival}": round(answer["success_rate"], 3)}


def runs_of(preset: str, which: str = "*") -> list[Path]:
    """The runs of a preset's task, from the oldest on."""
    config = make_config(load_preset(preset))
    return sorted((RUNS / config.algo / file_name(config.env_spec().name)).glob(which))


def keep(path: Path, seed: str, result: dict[str, Any]) -> None:
    with _writing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(read(path) | {seed: result}, indent=2, sort_keys=True) + "\n")


def draw(preset: str) -> None:
    """The learning curves of all seeds, if their runs are still there."""
    if runs := runs_of(preset):
        curve_path(preset).parent.mkdir(parents=True, exist_ok=True)
        plot_runs([runs[0].parent], curve_path(preset), title=preset)


def curve_path(preset: str) -> Path:
    return ROOT / "docs" / "images" / "curves" / f"{preset.replace('/', '_')}.svg"


def result_path(preset: str) -> Path:
    return RESULTS / f"{preset}.json"


def load(preset: str) -> dict[str, Any]:
    return read(result_path(preset))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def bars(preset: str) -> dict[str, float]:
    """The bar on the worst seed, of each metric that has one."""
    if preset in ON_MEAN:
        return {ON_MEAN[preset].metric: ON_MEAN[preset].lowest}
    bar = BARS[preset]
    return bar if isinstance(bar, dict) else {"return_mean": bar}


def reaches_its_bar(preset: str) -> bool:
    return is_reached(preset, load(preset))


def is_reached(preset: str, results: dict[str, Any]) -> bool:
    """Whether results of a preset, however it was run, reach its bar."""
    if any(worst(results, metric) < bar for metric, bar in bars(preset).items()):
        return False
    if preset not in ON_MEAN:
        return True
    mean, _, metric = ON_MEAN[preset]
    return mean_over_seeds(results, metric) >= mean


def mean_over_seeds(results: dict[str, Any], metric: str) -> float:
    return sum(result[metric] for result in results.values()) / len(results)


def worst(results: dict[str, Any], metric: str) -> float:
    return min((result[metric] for result in results.values()), default=float("-inf"))


def scores() -> dict[str, dict[str, float]]:
    """What `rl-training list presets` tells of every preset that was measured."""
    return {preset: _score(load(preset)) for preset in PRESETS if load(preset)}


def _score(results: dict[str, Any]) -> dict[str, float]:
    returns = [result["return_mean"] for result in results.values()]
    return {
        "return_mean": round(sum(returns) / len(returns), 3),
        "worst_seed": min(returns),
        "seeds": len(returns),
        "steps": max(result["steps"] for result in results.values()),
        "cpu_seconds": round(sum(result["cpu_seconds"] for result in results.values()) / len(returns)),
    }


def write_table() -> None:
    lines = [
        "| preset | steps | seeds | mean | worst seed | bar | published | CPU s a seed | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for preset in PRESETS:
        if results := load(preset):
            lines += [_row(preset, results, metric) for metric in bars(preset)]
    curves = [curve_path(preset) for preset in PRESETS if curve_path(preset).exists()]
    lines += ["", *(f"![{path.stem}]({path.relative_to(ROOT / 'docs')})" for path in curves)]
    write_section(ROOT / "docs" / "benchmarks.md", "learn", "\n".join(lines))


def _row(preset: str, results: dict[str, Any], metric: str) -> str:
    digits = 3 if abs(worst(results, metric)) < 10 else 1
    bar, published = f"worst {bars(preset)[metric]:g}", ""
    if preset in ON_MEAN:
        bar, published = f"mean {ON_MEAN[preset].mean:g}", ON_MEAN[preset].published
    cells = [
        f"`{preset}` {metric.removeprefix('return_mean').lstrip('/')}".rstrip(),
        f"{max(result['steps'] for result in results.values()):,}",
        len(results),
        f"{mean_over_seeds(results, metric):.{digits}f}",
        f"{worst(results, metric):.{digits}f}",
        bar,
        published,
        f"{mean_over_seeds(results, 'cpu_seconds'):.0f}",
        f"`rl-training train {preset} --seeds 0-{seeds_of(preset)[-1]}`",
    ]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
