"""Runs side by side: groups, intervals, the time to a target, and what a reader has to be told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance import small_config
from rl_training.cli import main
from rl_training.errors import ConfigError
from rl_training.experiment.starts import command, read_starts
from rl_training.runtime.manager import resume_run, train_run
from rl_training.tools.compare import compare_curves, compare_runs
from rl_training.tools.curves import RunCurves


def run_of(scores: list[float], *, seed: int = 0, algo: str = "ppo", **config: Any) -> RunCurves:
    """Evaluated at 100, 200, … steps; 10 s of time and 5 s of CPU time pass between evaluations."""
    rows: list[dict[str, Any]] = []
    for index, score in enumerate(scores, start=1):
        rows.append({"global_step": 100 * index, "seconds": 10.0 * index, "cpu_seconds": 5.0 * index})
        rows.append({"global_step": 100 * index, "eval_return_mean": score})
    base = {"algo": algo, "env_id": "CartPole-v1", "total_timesteps": 100 * len(scores), "algo_kwargs": {}}
    return RunCurves(Path(f"{algo}-{seed}"), {**base, "seed": seed, **config}, rows)


def write_run(folder: Path, run: RunCurves) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(run.config)))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.rows))
    return folder


PPO = [run_of([0.0, last], seed=seed) for seed, last in enumerate([10.0, 20.0, 30.0, 100.0, 40.0])]
A2C = [run_of([0.0, last], seed=seed, algo="a2c") for seed, last in enumerate([5.0, 25.0, 1.0, 2.0, 3.0])]


def test_a_group_is_summed_up_by_its_last_scores() -> None:
    ppo, a2c = compare_curves([*PPO, *A2C], by="algo").groups
    # 10, 20, 30, 40, 100: a quarter of five is one, so that 10 and 100 do not count in the interquartile mean.
    assert (ppo.group, ppo.seeds, ppo.iqm, ppo.mean, ppo.median, ppo.worst) == ("ppo", 5, 30.0, 40.0, 30.0, 10.0)
    assert ppo.iqm_interval is not None
    assert ppo.iqm_interval.low < 30.0 < ppo.iqm_interval.high
    assert (a2c.group, a2c.worst) == ("a2c", 1.0)


def test_the_probability_of_improvement_counts_pairs() -> None:
    (found,) = compare_curves([*PPO, *A2C], by="algo").improvements
    # Of the 25 pairs, PPO loses 10 and 20 against 25.
    assert (found.group, found.over, found.envs) == ("ppo", "a2c", 1)
    assert found.probability == pytest.approx(23 / 25)


def test_time_to_a_target_is_the_median_over_runs_that_may_never_reach_it() -> None:
    runs = [
        run_of(scores, seed=seed) for seed, scores in enumerate([[9.0, 1.0, 1.0], [1.0, 9.0, 9.0], [1.0, 1.0, 9.0]])
    ]
    (group,) = compare_curves(runs, target=9.0).groups
    assert (group.reached, group.steps_to_target) == (3, 200.0)
    assert (group.seconds_to_target, group.cpu_seconds_to_target) == (20.0, 10.0)
    (group,) = compare_curves([*runs, *(run_of([0.0] * 3, seed=seed) for seed in (3, 4, 5, 6))], target=9.0).groups
    assert (group.reached, group.steps_to_target) == (3, None)  # more than half never got there


def test_too_few_seeds_unfinished_runs_and_mixtures_are_told() -> None:
    unfinished = run_of([1.0], seed=1, total_timesteps=200)
    other_clip = run_of([1.0, 1.0], seed=2, algo_kwargs={"clip_coef": 0.1})
    notes = "\n".join(compare_curves([PPO[0], unfinished, other_clip], by="algo").notes)
    assert "too few seeds: ppo on CartPole-v1 has 3 seeds" in notes
    assert "1 of 3 runs ended before their budget" in notes
    assert "2 configurations are mixed" in notes
    single = compare_curves(PPO[:1])
    assert single.groups[0].iqm_interval is None
    assert "has 1 seed;" in single.notes[0]
    assert compare_curves(PPO).notes == ()


def test_several_environments_are_put_on_one_scale() -> None:
    def on(env: str, algo: str, scores: list[float]) -> list[RunCurves]:
        return [run_of([score], seed=seed, algo=algo, env_id=env) for seed, score in enumerate(scores)]

    runs = [*on("A-v0", "ppo", [0.0, 100.0]), *on("A-v0", "a2c", [50.0, 50.0])]
    runs += [*on("B-v0", "ppo", [-2.0, -1.0]), *on("B-v0", "a2c", [-3.0, -2.0])]
    found = compare_curves(runs)
    everywhere = {group.group: group.mean for group in found.groups if group.env == "all environments"}
    # PPO: 0 and 1 in A, 0.5 and 1 in B. A2C: 0.5 twice in A, 0 and 0.5 in B.
    assert everywhere == pytest.approx({"ppo": 2.5 / 4, "a2c": 1.5 / 4})
    assert found.improvements[0].envs == 2
    assert found.improvements[0].probability == pytest.approx((0.5 + 3.5 / 4) / 2)


def test_compare_answers_in_text_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in (*PPO, A2C[0]):
        write_run(tmp_path / run.path.name, run)
    assert main(["compare", str(tmp_path), "--by", "algo", "--target", "25", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [group["seeds"] for group in answer["groups"]] == [1, 5]
    assert answer["groups"][1]["reached"] == 3
    assert main(["compare", str(tmp_path), "--target", "25"]) == 0
    shown = capsys.readouterr().out
    assert "CartPole-v1 (last eval_return_mean)" in shown
    assert "3 of 5" in shown
    assert "too few seeds: a2c on CartPole-v1 has 1 seed" in shown


def test_a_metric_that_nobody_logged_is_named() -> None:
    with pytest.raises(ConfigError, match="no run has numbers for 'eval_retrun_mean'; they logged"):
        compare_curves(PPO, metric="eval_retrun_mean")


def test_a_run_knows_its_commands_versions_and_cpu_time(tmp_path: Path) -> None:
    result = train_run(small_config("ppo", tmp_path, total_timesteps=64))
    run_dir = result.run_dir
    assert run_dir is not None
    resume_run(run_dir, total_timesteps=256)
    first, second = read_starts(run_dir)
    assert (first["global_step"], second["global_step"]) == (0, result.global_step)
    assert first["versions"]["torch"].startswith("2.")
    assert first["command"] == command(sys.argv)
    assert command(["/usr/bin/rl-training", "train", "--env", "My Env"]) == "rl-training train --env 'My Env'"
    assert command(["/lib/rl_training/__main__.py", "list"]) == "python -m rl_training list"
    (group,) = compare_runs([run_dir], target=-1e9).groups
    assert group.cpu_seconds_to_target is not None
    assert group.cpu_seconds_to_target > 0
