"""The command line as a user and as a program meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.cli.main import VERBS
from rl_training.experiment.checkpointing import CheckpointStore
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import list_presets, load_preset
from rl_training.experiment.runs import find_run

TINY = ["--total-timesteps", "256", "--num-envs", "2", "--eval-episodes", "2", "--display", "none"]


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    output = str(tmp_path_factory.mktemp("runs"))
    assert main(["train", "--config", "ppo/cartpole", "--output-dir", output, *TINY]) == 0
    return str(next(Path(output).glob("ppo/CartPole-v1/*")))


def test_help_is_quick_and_does_not_import_torch() -> None:
    call = "try: main(['--help'])\nexcept SystemExit: pass"
    code = f"import sys; from rl_training.cli import main\n{call}\nprint('torch' in sys.modules)"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
    assert time.perf_counter() - started < 2.0  # 0.05 s alone; other tests share the machine


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help_with_examples_and_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "examples:" in shown
    assert f"rl-training {verb}" in shown
    assert "--json" in shown


def test_train_answers_with_one_json_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run_cli(capsys, "train", "--config", "ppo/cartpole", "--output-dir", str(tmp_path), *TINY, "--json")
    answer = json.loads(out)
    assert code == 0
    assert {"run_dir", "global_step", "return_mean", "return_min"} <= answer.keys()
    assert answer["global_step"] >= 256
    assert answer["return_min"] <= answer["return_mean"]
    assert Path(answer["run_dir"], "config.yaml").is_file()


def test_several_seeds_answer_under_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["train", "--config", "ppo/cartpole", "--output-dir", str(tmp_path), *TINY, "--seeds", "3-4", "--json"]
    code, out, _ = run_cli(capsys, *arguments)
    answer = json.loads(out)
    assert code == 0
    assert [Path(run["run_dir"]).name.rpartition("seed")[2] for run in answer["runs"]] == ["3", "4"]
    first, second = (run["return_mean"] for run in answer["runs"])
    together = answer["aggregate"]
    assert together["return_mean"] == pytest.approx((first + second) / 2)
    assert together["return_std"] == pytest.approx(abs(first - second) / 2**0.5)
    # Student's t with one degree of freedom is 12.71, and the mean of two varies by their deviation over the root of 2
    reach = 12.71 * abs(first - second) / 2
    assert together["return_interval"] == pytest.approx([(first + second) / 2 - reach, (first + second) / 2 + reach])
    assert together["return_worst"] == min(first, second)


def test_seeds_side_by_side_give_the_runs_of_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def returns(folder: str, *flags: str) -> list[float]:
        where = ["--output-dir", str(tmp_path / folder), *TINY, "--seeds", "3,1", "--json", *flags]
        code, out, err = run_cli(capsys, "train", "ppo/cartpole", *where)
        assert code == 0
        assert err.count("seed 1: ") == 1, "a result is told once"
        return [run["return_mean"] for run in json.loads(out)["runs"]]

    assert returns("together", "--jobs", "2") == returns("apart")


def test_a_failure_of_one_seed_is_told_and_ends_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = ["--env", "no.such.module:make", "--seeds", "0-3", "--jobs", "2", "--output-dir", str(tmp_path)]
    code, out, err = run_cli(capsys, "train", "ppo", *broken, "--json", "--display", "none")
    assert code == 3
    assert "no.such.module" in err
    assert json.loads(out) == {"error": err.removeprefix("error: ").strip(), "exit_code": 3}


@pytest.mark.parametrize("preset", [("ppo/cartpole",), ("--config", "ppo/cartpole")])
def test_any_parameter_is_a_flag(preset: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--learning-rate", "1e-4", "--clip-coef-schedule=linear", "--dry-run", "--json")
    code, out, _ = run_cli(capsys, "train", *preset, *flags)
    kwargs = json.loads(out)["algo_kwargs"]
    assert (code, kwargs["learning_rate"], kwargs["clip_coef_schedule"]) == (0, 1e-4, "linear")


def test_flags_win_over_the_preset_and_set_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--num-envs", "3", "--set", "gamma=0.5", "--set", "learning_rate=1e-3", "--set", "hidden_sizes=[8]")
    code, out, _ = run_cli(capsys, "train", "--config", "ppo/cartpole", "--dry-run", "--json", *arguments)
    config = json.loads(out)
    assert code == 0
    assert config["num_envs"] == 3
    assert config["algo_kwargs"]["gamma"] == 0.5
    assert config["algo_kwargs"]["learning_rate"] == 0.001
    assert config["algo_kwargs"]["hidden_sizes"] == [8]
    assert config["algo_kwargs"]["gae_lambda"] == 0.8  # the preset's


@pytest.mark.parametrize(
    ("given", "ahead"), [((), False), (("--collect-ahead",), True), (("--collect-ahead", "false"), False)]
)
def test_a_switch_needs_no_value(given: tuple[str, ...], ahead: bool, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_cli(capsys, "train", "--config", "ppo/cartpole", "--dry-run", "--json", *given)
    assert code == 0
    assert json.loads(out)["collect_ahead"] is ahead


def test_a_file_is_a_config_and_names_its_own_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "algo: ppo\nenv_id: CartPole-v1\nalgo_kwargs: {ent_coef_schedule: {kind: linear, start: 1e-2, end: 0}}\n"
    )
    assert run_cli(capsys, "train", "--config", str(path), "--dry-run")[0] == 0
    path.write_text("algo: ppo\nenv_idd: x\nnum_envs: -1\nalgo_kwargs: {gama: 1, clip_coef: 0.1, clip_range: 0.2}\n")
    code, out, err = run_cli(capsys, "train", "--config", str(path), "--dry-run")
    assert (code, out) == (2, "")
    for problem in ("env_idd", "did you mean 'env_id'", "num_envs", "gama", "clip_range"):
        assert problem in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ("train",), "say what to train"),
        (2, ("train", "ppo"), "train ppo needs an environment: --env CartPole-v1; or train one of the presets"),
        (2, ("train", "ppo/cartpole", "--lerning-rate", "1"), "did you mean 'learning_rate'"),
        (2, ("train", "ppo/cartpole", "--learning-rate"), "--learning-rate needs a value"),
        (2, ("train", "ppo/cartpole", "twice"), "'twice' is neither a flag nor the value of one"),
        (2, ("train", "ppo/cartpole", "--config", "ppo/acrobot"), "two configs"),
        (2, ("train", "ppo/cartpole", "--seeds", "4-0"), "write 0-4"),
        (2, ("train", "ppo/cartpole", "--seeds", "1,2,1"), "twice"),
        (2, ("train", "ppo/cartpole", "--seeds", "0-1", "--jobs", "0"), "--jobs must be at least 1"),
        (2, ("train", "ppoo", "--env", "CartPole-v1"), "did you mean 'ppo'"),
        (2, ("train", "--config", "ppo/cartpol"), "did you mean 'ppo/cartpole'"),
        (2, ("train", "ppo", "--env", "CartPole-v1", "--set", "ent_coef=-1"), "ent_coef"),
        (2, ("train", "ppo", "--env", "CartPole-v1", "--set", "ent_coef_schedule=linnear"), "linear"),
        (3, ("train", "ppo", "--env", "CartPoel-v1"), "CartPoel"),
        (3, ("train", "ppo", "--env", "no.such.module:make"), "no.such.module"),
        (4, ("evaluate", "no/such/run"), "no/such/run"),
        (4, ("resume", "no/such/run"), "no/such/run"),
    ],
)
def test_bad_input_gets_one_clear_error_and_its_exit_code(
    code: int, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = ("--output-dir", str(tmp_path)) if arguments[0] == "train" else ()
    found, out, err = run_cli(capsys, *arguments, *flags)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_an_unknown_verb_or_flag_is_a_usage_error() -> None:
    for arguments in (["trian"], ["evaluate", "--no-such-flag"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_evaluate_gives_the_scores(capsys: pytest.CaptureFixture[str], run_dir: str) -> None:
    code, out, _ = run_cli(capsys, "evaluate", run_dir, "--episodes", "3", "--json")
    scores = json.loads(out)
    assert code == 0
    assert scores["episodes"] == 3
    assert scores["return_min"] <= scores["return_mean"] <= scores["return_max"]
    assert scores["return_std"] >= 0


def test_resume_extends_a_run_and_says_what_schedules_do(capsys: pytest.CaptureFixture[str], run_dir: str) -> None:
    before = CheckpointStore(Path(run_dir)).steps()[-1]
    code, out, err = run_cli(
        capsys, "resume", run_dir, "--total-timesteps", str(before + 256), "--display", "none", "--json"
    )
    assert code == 0
    assert json.loads(out)["global_step"] > before
    assert "schedules keep their old horizon" in err


def test_more_steps_at_a_learning_rate_of_0_are_warned_of(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    flags = ["--output-dir", str(tmp_path), *TINY, "--learning-rate-schedule", "linear", "--json"]
    run_dir = json.loads(run_cli(capsys, "train", "ppo/cartpole", *flags)[1])["run_dir"]
    more = ("resume", run_dir, "--display", "none", "--total-timesteps")
    run_cli(capsys, *more, "600", "--stretch-schedules")
    assert "NOTHING WILL BE LEARNED" not in caplog.text
    run_cli(capsys, *more, "900")
    assert "NOTHING WILL BE LEARNED" in caplog.text


def test_predict_answers_with_actions(capsys: pytest.CaptureFixture[str], run_dir: str) -> None:
    code, out, _ = run_cli(capsys, "predict", run_dir, "--obs", "[[0, 0, 0.1, 0], [0, 0, -0.1, 0]]", "--json")
    assert code == 0
    assert all(action in (0, 1) for action in json.loads(out)["action"])
    code, _, err = run_cli(capsys, "predict", run_dir, "--obs", "[0, 1]")
    assert code == 2
    assert "(4,)" in err


def test_predict_says_what_is_no_number(capsys: pytest.CaptureFixture[str], run_dir: str) -> None:
    code, _, err = run_cli(capsys, "predict", run_dir, "--obs", '["a", 1]')
    assert code == 2
    assert '--obs is not JSON of numbers: ["a", 1]' in err


def test_list_and_show(capsys: pytest.CaptureFixture[str], run_dir: str) -> None:
    code, out, _ = run_cli(capsys, "list", "--json")
    assert code == 0
    assert "ppo/cartpole" in [row["name"] for row in json.loads(out)["presets"]]
    assert "CartPole-v1" in run_cli(capsys, "list", "environments")[1]
    code, out, _ = run_cli(capsys, "show", "ppo/cartpole", "--json")
    assert json.loads(out)["algo_kwargs"]["vf_coef"] == 0.5  # a default, written out
    assert json.loads(run_cli(capsys, "show", run_dir, "--json")[1])["num_envs"] == 2


def test_a_run_killed_with_minus_nine_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The real thing: SIGKILL in the middle, `resume`, and the same weights as the run that was left alone."""
    from conformance import differences
    from rl_training.experiment.checkpointing import load_checkpoint
    from rl_training.runtime.manager import resume_run

    def command(name: str) -> list[str]:
        flags = [
            "--total-timesteps",
            "40000",
            "--checkpoint-interval",
            "4000",
            "--num-envs",
            "8",
            "--eval-episodes",
            "0",
        ]
        where = ["--output-dir", str(tmp_path), "--run-name", name, "--display", "none"]
        return [sys.executable, "-m", "rl_training", "train", "--config", "ppo/cartpole", *flags, *where]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command("whole"), check=True, env=environment, capture_output=True)
    process = subprocess.Popen(command("killed"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    killed, whole = (tmp_path / "ppo" / "CartPole-v1" / name for name in ("killed", "whole"))
    while not (killed / "checkpoints" / "latest").exists():
        assert process.poll() is None
    process.kill()
    process.wait()
    assert CheckpointStore(killed).steps()[-1] < 40_000
    resume_run(killed)
    first, second = load_checkpoint(whole), load_checkpoint(killed)
    first["config"]["run_name"] = second["config"]["run_name"]
    assert differences(first, second) == []


def test_ray_without_its_extra_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in [name for name in sys.modules if name.startswith("rl_training.distributed.")]:
        monkeypatch.delitem(sys.modules, module)
    arguments = ("train", "--config", "ppo/cartpole", "--backend", "ray", "--output-dir", str(tmp_path), *TINY)
    code, _, err = run_cli(capsys, *arguments)
    assert code == 6
    assert "rl-training[ray]" in err
    assert not any(tmp_path.iterdir()), "no run directory is made for a run that cannot begin"


def test_runs_are_listed_sorted_and_filtered(capsys: pytest.CaptureFixture[str], run_dir: str, tmp_path: Path) -> None:
    home = str(Path(run_dir).parents[2])
    code, out, _ = run_cli(capsys, "list", "runs", "--output-dir", home, "--algo", "ppo", "--sort", "evaluated")
    head, *lines = out.splitlines()[1:]
    assert code == 0
    assert head.split() == ["run", "dir", "global", "step", "return", "mean", "evaluated", "finished"]
    assert any(line.split()[0] == run_dir and line.split()[-1] in ("yes", "no") for line in lines)
    assert run_cli(capsys, "list", "runs", "--output-dir", home, "--algo", "a2c")[1] == "no runs\n"


def test_a_run_is_named_by_latest_or_a_part_of_its_name(
    capsys: pytest.CaptureFixture[str], run_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "runs" / "ppo" / "CartPole-v1"
    for name in ("first-try", "second-try"):
        shutil.copytree(run_dir, home / name, symlinks=True)
    os.utime(home / "first-try" / "config.yaml", (0, 0))
    for text, expected in (("second", "second-try"), ("latest", "second-try"), ("first-try", "first-try")):
        code, *_ = run_cli(capsys, "evaluate", text, "--episodes", "1", "--json")
        assert code == 0
        assert find_run(text, tmp_path / "runs").name == expected
    code, _, err = run_cli(capsys, "evaluate", "try", "--episodes", "1")
    assert code == 4
    assert "first-try" in err
    assert "say which" in err


def test_an_algorithm_is_shown_with_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_cli(capsys, "show", "ppo")
    assert code == 0
    assert "clip_coef: float, >= 0 [0.2], schedulable\n    " in out
    parameters = json.loads(run_cli(capsys, "show", "ppo", "--json")[1])["parameters"]
    assert all(parameter["description"] for parameter in parameters)


def test_presets_are_listed_with_what_they_reached(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.learn import scores

    from rl_training.experiment.presets import preset_scores

    rows = {row["name"]: row for row in json.loads(run_cli(capsys, "list", "presets", "--json")[1])["presets"]}
    assert rows["ppo/cartpole"]["return_mean"] == 500.0
    assert preset_scores() == scores(), "python -m benchmarks.learn writes what was measured"


@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_is_evaluated_on_the_way(preset: str) -> None:
    config = make_config(load_preset(preset))
    assert config.eval_interval
    assert config.eval_interval < config.total_timesteps


@pytest.mark.parametrize("given", [["--workers", "4"], ["--ray-mode", "async"]])
def test_what_only_workers_on_ray_read_is_refused_without_them(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_cli(capsys, "train", "impala/cartpole", *given, "--dry-run")
    assert code == 2
    assert "has no effect without workers on Ray; add --backend ray" in err
    assert run_cli(capsys, "train", "impala/cartpole", *given, "--backend", "ray", "--dry-run")[0] == 0


def test_off_is_a_word_on_the_command_line_and_in_yaml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """YAML reads a bare `off` as a truth value."""
    file = tmp_path / "plain.yaml"
    file.write_text("algo: ppo\nenv_id: CartPole-v1\nkernels: off\n")
    for given in (["ppo/cartpole", "--kernels", "off"], ["ppo/cartpole", "--set", "kernels=off"], [str(file)]):
        code, out, _ = run_cli(capsys, "train", *given, "--dry-run", "--json")
        assert code == 0
        assert json.loads(out)["kernels"] == "off"


@pytest.mark.parametrize(("verb", "code"), [(["list", "--json"], 0), (["show", "ppo/absent", "--json"], 2)])
def test_a_reader_that_has_left_is_no_fault(verb: list[str], code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "rl_training", *verb]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, "Traceback" in done.stderr, "BrokenPipe" in done.stderr) == (code, False, False)
