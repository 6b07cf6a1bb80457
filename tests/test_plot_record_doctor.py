"""Learning curves, videos, and the report on the installation; and the section that a benchmark writes."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import errors
from rl_training.cli import doctor, main
from rl_training.errors import ConfigError, EnvironmentFault, MissingExtraError, RLTrainingError
from rl_training.experiment.config import make_config
from rl_training.experiment.presets import load_preset
from rl_training.models.actor_critic import Acted
from rl_training.runtime.manager import train_run
from rl_training.runtime.workflows import load_session
from rl_training.tools.plot import (
    RunCurves,
    Series,
    find_runs,
    group_runs,
    learning_curves,
    plot_runs,
    seed_band,
    smoothed,
)
from rl_training.tools.record import Moved, play, record_episodes

SMALL = {
    "algo": "ppo",
    "env_id": "CartPole-v1",
    "num_envs": 2,
    "total_timesteps": 300,
    "log_interval": 50,
    "eval_interval": 150,
    "eval_episodes": 2,
    "algo_kwargs": {"rollout_steps": 32, "clip_coef_schedule": "linear", "learning_rate_warmup_steps": 200},
}


def small_run(folder: Path, **changes: Any) -> Path:
    run_dir = train_run(make_config({**SMALL, **changes, "output_dir": str(folder)})).run_dir
    assert run_dir is not None
    return run_dir


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs"))


def curves(rows: list[dict[str, Any]], *, seed: int = 0, **config: Any) -> RunCurves:
    base = {"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": {"clip_coef": 0.2, "gamma": 0.99}}
    return RunCurves(Path(f"run-{seed}"), {**base, "seed": seed, **config}, rows)


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_picture_has_the_metric_and_a_panel_for_each_control_that_moved(run_dir: Path) -> None:
    figure = learning_curves(find_runs([run_dir])[0])
    main_axes, *panels = figure.axes
    assert main_axes.get_ylabel() == "return_mean"
    assert main_axes.get_title() == "ppo on CartPole-v1"
    assert {panel.get_title(loc="left") for panel in panels} == {"clip_coef", "learning_rate"}
    assert figure.axes[-1].get_xlabel() == "environment steps"
    assert legend_of(main_axes) == ["seed 0", "evaluation"]
    clip = next(panel for panel in panels if panel.get_title(loc="left") == "clip_coef").lines[0].get_ydata()
    assert (np.diff(clip) < 0).all()


def test_evaluations_are_marked_where_they_were(run_dir: Path) -> None:
    (run,), _ = find_runs([run_dir])
    marks = [
        line for line in learning_curves([run]).axes[0].lines if line.get_marker() == "o" and len(line.get_xdata())
    ]
    steps, values = run.series("eval_return_mean")
    assert len(marks) == 1
    assert len(steps) >= 2
    np.testing.assert_array_equal(marks[0].get_xdata(), steps)
    np.testing.assert_array_equal(marks[0].get_ydata(), values)


def test_controls_can_be_named_or_left_out(run_dir: Path) -> None:
    runs, _ = find_runs([run_dir])
    assert len(learning_curves(runs, controls="none").axes) == 1
    named = learning_curves(runs, controls="gamma,entropy").axes[1:]
    assert [panel.get_title(loc="left") for panel in named] == ["gamma", "entropy"]
    with pytest.raises(ConfigError, match="no run logged 'gama'"):
        learning_curves(runs, controls="gama")
    with pytest.raises(ConfigError, match="no run has numbers for 'reward'"):
        learning_curves(runs, metric="reward")


def test_seeds_of_one_configuration_are_one_line_and_others_are_labelled_by_what_differs() -> None:
    rows = [{"global_step": step, "return_mean": 1.0} for step in (10, 20)]
    seeds = [curves(rows, seed=seed) for seed in range(3)]
    assert [line.label for line in group_runs(seeds)] == ["3 seeds"]
    other_algo = curves(rows, algo="a2c", algo_kwargs={})
    assert [line.label for line in group_runs([*seeds, other_algo])] == ["ppo (3 seeds)", "a2c (seed 0)"]
    other_clip = curves(rows, seed=7, algo_kwargs={"clip_coef": 0.1, "gamma": 0.99})
    labels = [line.label for line in group_runs([*seeds, other_clip])]
    assert labels == ["clip_coef 0.2 (3 seeds)", "clip_coef 0.1 (seed 7)"]
    other_env = curves(rows, env_id="Acrobot-v1")
    assert learning_curves([seeds[0], other_env]).axes[0].get_title() == "ppo"


def test_the_band_of_seeds_is_taken_on_the_steps_that_all_have() -> None:
    # Between 10 and 20 one seed climbs from 1 to 2, the other from 5 to 3.
    early = Series(np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    late = Series(np.array([10.0, 20.0, 30.0]), np.array([5.0, 3.0, 9.0]))
    band = seed_band([early, late], "minmax")
    assert (band.steps[0], band.steps[-1]) == (10.0, 20.0)
    np.testing.assert_allclose([band.mean[0], band.low[0], band.high[0]], [3.0, 1.0, 5.0])
    np.testing.assert_allclose([band.mean[-1], band.low[-1], band.high[-1]], [2.5, 2.0, 3.0])


def test_the_band_is_the_interval_of_the_mean_unless_another_is_asked_for() -> None:
    # Seeds at 1, 2 and 6: mean 3, deviation sqrt((4 + 1 + 9) / 2) = sqrt(7), Student's t of 2 degrees is 4.30.
    seeds = [Series(np.array([0.0, 10.0]), np.full(2, value)) for value in (1.0, 2.0, 6.0)]
    np.testing.assert_allclose(seed_band(seeds).high, 3 + 4.30 * np.sqrt(7 / 3))
    np.testing.assert_allclose(seed_band(seeds, "std").low, 3 - np.sqrt(7))
    figure = learning_curves([curves([{"global_step": 1, "return_mean": 1.0}], seed=seed) for seed in range(2)])
    assert legend_of(figure.axes[0])[-1] == "95% interval of the mean"


def test_a_short_run_does_not_hide_the_others(tmp_path: Path, run_dir: Path) -> None:
    whole = [Series(np.array([10.0, 90.0]), np.array([1.0, 3.0])) for _ in range(2)]
    killed = Series(np.array([5.0]), np.array([100.0]))
    band = seed_band([*whole, killed])
    assert (band.steps[0], band.steps[-1]) == (10.0, 90.0)
    np.testing.assert_allclose([band.mean[0], band.mean[-1]], [1.0, 3.0])
    early = tmp_path / "early"
    early.mkdir()
    (early / "config.yaml").write_text((run_dir / "config.yaml").read_text())
    (early / "metrics.jsonl").write_text('{"global_step": 64, "episodes": 0}\n')
    plotted = plot_runs([run_dir, early], tmp_path / "curve.svg")
    assert (plotted.runs, plotted.without_metric) == ([run_dir], [early])


def test_runs_of_different_budgets_are_lines_of_their_own() -> None:
    rows = [{"global_step": step, "return_mean": 1.0} for step in (10, 20)]
    runs = [curves(rows, seed=seed, total_timesteps=budget) for seed, budget in ((0, 20), (1, 20), (2, 40))]
    assert [line.label for line in group_runs(runs)] == ["total_timesteps 20 (2 seeds)", "total_timesteps 40 (seed 2)"]
    assert [line.label for line in group_runs(runs, "algo")] == ["ppo, 20 steps (2 seeds)", "ppo, 40 steps (seed 2)"]


def test_lines_may_be_grouped_by_preset_or_by_any_key() -> None:
    rows = [{"global_step": step, "return_mean": 1.0} for step in (10, 20)]
    preset = make_config(load_preset("ppo/cartpole")).resolved()
    runs = [curves(rows, **preset), curves(rows, **preset | {"total_timesteps": 7})]
    assert [line.label for line in group_runs(runs, "preset")] == [
        "ppo/cartpole, 100,000 steps (seed 0)",
        "ppo/cartpole, 7 steps (seed 0)",
    ]
    other = curves(rows, seed=1, algo_kwargs={"clip_coef": 0.1})
    assert [line.label for line in group_runs([*runs[:1], other], "clip_coef")] == [
        "clip_coef 0.2 (seed 0)",
        "clip_coef 0.1 (seed 1)",
    ]
    with pytest.raises(ConfigError, match="no run has the key 'clip_cof'; did you mean 'clip_coef'"):
        group_runs(runs, "clip_cof")


def test_smoothing_is_a_mean_of_neighbours_that_leaves_a_constant_alone() -> None:
    np.testing.assert_allclose(smoothed(np.full(60, 7.0)), 7.0)
    # 60 points are smoothed over 3: a lone 3 spreads as 1, 1, 1.
    spike = np.zeros(60)
    spike[30] = 3.0
    np.testing.assert_allclose(smoothed(spike)[28:33], [0, 1, 1, 1, 0])
    np.testing.assert_allclose(smoothed(np.array([4.0])), [4.0])


def test_plot_writes_a_png_and_equal_svgs(tmp_path: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imageio = pytest.importorskip("imageio.v2")
    png = tmp_path / "new" / "curve.png"
    assert main(["plot", str(run_dir), "--output", str(png), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["output"], answer["runs"]) == (str(png), [str(run_dir)])
    assert answer["points"] > 2
    image = imageio.imread(png)
    assert image.shape[1] == 1200
    assert image.std() > 10
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for output in (first, second):
        plot_runs([run_dir.parents[1]], output)
    assert first.read_bytes() == second.read_bytes()


def test_a_run_without_rows_is_refused_by_name_and_left_out_of_a_search(tmp_path: Path, run_dir: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.yaml").write_text("algo: ppo\n")
    with pytest.raises(RLTrainingError, match="has no rows in metrics"):
        find_runs([empty])
    with pytest.raises(RLTrainingError, match="no run has rows"):
        find_runs([tmp_path])
    runs, without_rows = find_runs([run_dir, tmp_path])
    assert ([run.path for run in runs], without_rows) == ([run_dir], [empty])
    with pytest.raises(RLTrainingError, match="there is no run at or below"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match=r"must end in \.png"):
        plot_runs([run_dir], tmp_path / "curve.jpeg")


def test_a_gif_has_a_frame_for_each_step_and_one_for_each_start(
    tmp_path: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imageio = pytest.importorskip("imageio.v2")
    gif = tmp_path / "play.gif"
    flags = ["--episodes", "2", "--max-steps", "5", "--fps", "20", "--json"]
    assert main(["record", str(run_dir), "--output", str(gif), *flags]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"output": str(gif), "frames": 12, "episodes": 2, "return_mean": 5.0}
    with imageio.get_reader(gif) as reader:
        # Frames that look the same are stored once and shown longer: what counts is how long all are shown.
        shown = sum(reader.get_meta_data(index)["duration"] for index in range(len(reader)))
        assert shown == 12 * 50
        assert reader.get_data(0).shape == (400, 600, 3)


def test_an_mp4_shows_a_whole_episode_and_a_seed_fixes_it(tmp_path: Path, run_dir: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    import imageio.v2 as imageio

    session = load_session(run_dir, which="best")
    first, again = (
        record_episodes(session, tmp_path / f"{name}.mp4", seed=3, deterministic=False) for name in ("first", "again")
    )
    session.close()
    assert first.returns == again.returns
    assert first.frames == first.returns[0] + 1  # CartPole pays 1 for each step
    with imageio.get_reader(first.output) as reader:
        assert reader.count_frames() == first.frames
        assert reader.get_meta_data()["size"] == (600, 400)
        assert reader.get_meta_data()["fps"] == 50


class Blind(gym.Env):
    """Two steps and it is over; there is nothing to see."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2, dtype=np.float32), 1.0, self.steps == 2, False, {}

    def render(self) -> Any:
        return None


class Drawn(Blind):
    """Its picture is as bright as its step."""

    def render(self) -> Any:
        return np.full((8, 8, 3), 40 * self.steps, dtype=np.uint8)


def never_rendering() -> gym.Env:
    return Blind()


def test_an_environment_that_cannot_render_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    for source, complaint in ((Blind, "Blind cannot render: it gave NoneType"), (never_rendering, "render_mode")):
        config = make_config({**SMALL, "env_id": "python:blind", "eval_episodes": 0, "output_dir": str(tmp_path)})
        run_dir = train_run(config, env=source).run_dir
        assert run_dir is not None
        session = load_session(run_dir, env=source)
        with pytest.raises(EnvironmentFault, match=complaint):
            record_episodes(session, tmp_path / "play.gif")
        session.close()
        assert not (tmp_path / "play.gif").exists()


def test_frames_come_in_the_order_of_play(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    config = make_config({**SMALL, "env_id": "python:drawn", "eval_episodes": 0, "output_dir": str(tmp_path)})
    run_dir = train_run(config, env=Drawn).run_dir
    assert run_dir is not None
    session = load_session(run_dir, env=Drawn)
    recording = record_episodes(session, tmp_path / "play.gif", episodes=2)
    session.close()
    assert (recording.frames, recording.returns) == (6, (2.0, 2.0))
    brightness = [int(frame.max()) for frame in imageio.mimread(tmp_path / "play.gif")]
    assert brightness == [0, 40, 80, 0, 40, 80]


class Counter:
    """A policy with a memory: its action is the number of steps it remembers."""

    device = torch.device("cpu")

    def initial_state(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, 1)

    def act(self, obs: Any, state: torch.Tensor, **_: Any) -> Acted:
        return Acted(state[:, 0].long(), state + 1)

    def env_actions(self, actions: Any) -> Any:
        return actions


class Stage:
    """Shows what was done last; four steps are an episode."""

    fps = 1.0

    def reset(self, seed: int) -> Any:
        self.shown = 99
        return np.zeros((1, 1), dtype=np.float32)

    def step(self, actions: Any) -> Moved:
        self.shown = int(actions[0])
        return Moved(np.zeros((1, 1), dtype=np.float32), 0.5, self.shown == 3)

    def frame(self) -> Any:
        return np.full((1, 1, 3), self.shown, dtype=np.uint8)

    def close(self) -> None: ...


def test_a_memory_is_carried_through_an_episode_and_fresh_at_its_start() -> None:
    for _ in range(2):
        shots = list(play(Counter(), Stage(), episode=0, seed=0, deterministic=True))  # type: ignore[arg-type]
        assert [int(shot.frame.max()) for shot in shots] == [99, 0, 1, 2, 3]
        assert [shot.reward for shot in shots] == [0.0, 0.5, 0.5, 0.5, 0.5]


def test_an_atari_run_is_filmed_by_its_observations(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    imageio = pytest.importorskip("imageio.v2")
    changes = {"env_id": "ALE/Pong-v5", "total_timesteps": 16, "eval_episodes": 0, "threads": 1}
    run_dir = small_run(tmp_path, **changes, algo_kwargs={"rollout_steps": 8, "update_epochs": 1})
    session = load_session(run_dir)
    recording = record_episodes(session, tmp_path / "pong.gif", max_steps=6)
    session.close()
    assert recording.frames == 7
    frame = imageio.imread(tmp_path / "pong.gif")
    assert frame.shape[:2] == (336, 336)
    assert frame.std() > 1


def test_record_refuses_what_it_cannot_write(tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = load_session(run_dir)
    with pytest.raises(ConfigError, match=r"\.mp4 or \.gif"):
        record_episodes(session, tmp_path / "play.avi")
    with pytest.raises(ConfigError, match="at least 1"):
        record_episodes(session, tmp_path / "play.gif", episodes=0)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"rl-training\[video\]"):
        record_episodes(session, tmp_path / "play.mp4")
    session.close()


@pytest.mark.parametrize("verb", [("record",), ("record-demos", "--episodes", "1")])
def test_a_path_that_cannot_be_written_is_told_before_anything_is_played(
    verb: tuple[str, ...], run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([*verb, str(run_dir), "--output", str(tmp_path / "file" / "play.gif")]) == 2
    assert "error: cannot write" in capsys.readouterr().err


def test_episodes_are_watched_in_a_window(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["watch", str(run_dir), "--episodes", "2", "--fps", "1000", "--max-steps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"returns": [3.0, 3.0]}
    assert main(["watch", str(run_dir), "--fps", "0"]) == 2
    assert "fps must be greater than 0" in capsys.readouterr().err


def test_doctor_reports_and_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"versions", "machine", "extras", "smoke"}
    assert report["smoke"]["status"] == "ok"
    assert report["smoke"]["steps"] >= 2_000
    assert report["smoke"]["steps_per_second"] > 100
    assert report["machine"]["device"] in ("cpu", "cuda", "mps")
    assert report["versions"]["torch"].startswith("2.")


def test_doctor_compiles_ahead_of_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trained: list[str] = []
    monkeypatch.setattr(doctor, "smoke_run", lambda: {"status": "ok"})
    monkeypatch.setattr(doctor, "train_run", lambda config: trained.append(config.algo))
    assert main(["doctor", "--warm", "--json"]) == 0
    assert trained == list(json.loads(capsys.readouterr().out)["seconds to warm up"]) == list(doctor.COMPILED)


def packaged_extras() -> set[str]:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", section, flags=re.MULTILINE))


def test_doctor_knows_every_extra_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(doctor.EXTRAS) == set(errors.WHAT_NEEDS_EXTRA) == packaged_extras() - {"dev", "docs"}
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "matplotlib" else object())
    found = doctor.extras()
    assert found["plot"] == "pip install 'rl-training[plot]'"
    assert found["atari"] == "installed"


def test_doctor_survives_a_failing_smoke_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_config: Any) -> None:
        raise EnvironmentFault("no poles today")

    monkeypatch.setattr(doctor, "train_run", fail)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert "EnvironmentFault: no poles today" in shown


def test_a_benchmark_rewrites_its_own_section_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from benchmarks.compare_sb3 import write_section

    page = tmp_path / "docs" / "benchmarks.md"
    write_section(page, "bench:ppo", "old")
    write_section(page, "bench:a2c", "other")
    write_section(page, "bench:ppo", "new")
    text = page.read_text()
    assert "old" not in text
    assert text.index("# Benchmarks") < text.index("new") < text.index("<!-- /bench:ppo -->") < text.index("other")


def test_the_stopwatch_times_the_iterations_after_the_warmup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from benchmarks import peers

    # Iteration i starts at i² seconds of wall time, i seconds of CPU time, and after 10·i steps.
    watch = peers.Stopwatch(warmup=2, timed=3)
    for i in range(6):
        monkeypatch.setattr(peers.time, "process_time", lambda i=i: float(i))
        monkeypatch.setattr(peers.time, "perf_counter", lambda i=i: float(i * i))
        assert not watch.ended
        watch.tick(10 * i)
    assert watch.ended
    assert watch.measurement() == (30, 3.0, 21.0)
