"""What the terminal shows, at a clock that the tests move."""

import io
import re
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.runtime.display import Display, LiveDisplay, PlainDisplay, Speed, open_display, shelves
from rl_training.runtime.readings import Readings, duration_text, number_text, progress_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


ROW = {
    "global_step": 20_480,
    "return_mean": 123.4,
    "return_std": 20.1,
    "policy_loss": -0.012,
    "approx_kl": 0.003,
    "ent_coef": 0.01,
}


def test_a_plain_line_says_it_all() -> None:
    stream, clock = io.StringIO(), ManualClock()
    with open_display(100_000, "PPO on CartPole-v1", controls=("ent_coef",), stream=stream, clock=clock) as display:
        display.update({}, 2_280)
        clock.now = 1.0
        display.update(ROW, 20_480)
        display.message("saved [step-20480]")
    assert stream.getvalue().splitlines() == [
        "PPO on CartPole-v1",
        "step 2,280/100,000 (2%)",
        # 79,520 steps are left, at 18,200 a second: 4.4 s
        "step 20,480/100,000 (20%) 18,200 steps/s ETA 0:04 return 123.4 ± 20.1 policy_loss -0.012 ent_coef 0.01",
        "saved [step-20480]",
    ]


def test_a_return_that_is_not_known_is_not_shown() -> None:
    stream = io.StringIO()
    display = open_display(10, "title", stream=stream, mode="plain", clock=ManualClock())
    display.update({"eval_return_mean": float("nan")}, 1)
    display.update({"eval_return_mean": 7.0}, 2)
    assert stream.getvalue().splitlines()[1:] == ["step 1/10 (10%)", "step 2/10 (20%) evaluation 7 at 2"]


def test_speed_begins_at_the_step_where_a_run_resumes() -> None:
    clock = ManualClock()
    speed = Speed(clock)
    assert speed.update(1_000_000) is None
    clock.now = 2.0
    assert speed.update(1_000_100) == 50.0


def test_speed_forgets_the_distant_past() -> None:
    clock = ManualClock()
    speed = Speed(clock)
    steps = 0
    for second in range(100):
        clock.now, steps = float(second), steps + (1 if second < 50 else 10)
        latest = speed.update(steps)
    assert latest == 10.0
    clock.now = 1099.0
    assert speed.update(steps + 500) == 0.5


def test_metrics_are_grouped_by_what_they_tell() -> None:
    readings = Readings(controls=("ent_coef", "loss_coef"), constants=("gamma",))
    extremes = {"return_min": 9.0, "return_max": 500.0}
    readings.take({**ROW, **extremes, "episode_length_mean": 9.0, "loss_coef": 1, "gamma": 0.98}, 20_480)
    assert readings.groups() == {
        "returns": {"return": "123.4 ± 20.1, 9 to 500", "length": "9"},
        "losses": {"policy_loss": "-0.012"},
        "controls": {"ent_coef": "0.01", "loss_coef": "1"},
        "diagnostics": {"approx_kl": "0.003"},
    }


def test_the_last_and_the_best_evaluation_stay_in_view() -> None:
    readings = Readings()
    for step, score in ((100, 7.0), (200, 90.0), (300, 8.0)):
        readings.take({"eval_return_mean": score, "eval_return_std": 0.5}, step)
        readings.take({"return_mean": 1.0}, step)
    assert readings.groups()["returns"] == {"return": "1", "evaluation": "8 ± 0.5 at 300", "best": "90 ± 0.5 at 200"}


def test_a_run_is_never_more_than_done() -> None:
    assert progress_text(148, 100, None) == "step 148/100 (100%)"


def test_groups_that_do_not_fit_beside_each_other_stand_below() -> None:
    groups = {"a": {"x" * 30: "1"}, "b": {"y" * 30: "2.5e-05"}, "c": {"z" * 30: "3"}}
    assert [list(row) for row in shelves(groups, 80)] == [["a", "b"], ["c"]]
    assert [list(row) for row in shelves(groups, 140)] == [["a", "b", "c"]]


@pytest.mark.parametrize("width", [80, 140])
def test_nothing_is_cut_and_no_number_loses_its_exponent(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row = {f"a_rather_long_metric_{i}": 1.234e-05 for i in range(4)} | {f"loss_{i}": -2.5e-07 for i in range(3)}
    row |= {"return_mean": 123456.7, "return_std": 2345.6, "return_min": -1.0, "return_max": 9e5, "learning_rate": 3e-5}
    stream = Terminal()
    with open_display(10**7, "title", controls=("learning_rate",), stream=stream, clock=ManualClock()) as display:
        display.update(row, 5 * 10**6)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= width
    shown = "\n".join(lines)
    assert "…" not in shown
    assert shown.count("1.234e-05") >= 4
    assert shown.count("-2.5e-07") >= 3
    assert "3e-05" in shown


def test_what_never_moves_is_told_once() -> None:
    stream = io.StringIO()
    constants = {"gamma": 0.98, "vf_coef": 0.5}
    display = open_display(10, "title", controls=("ent_coef",), constants=constants, stream=stream, mode="plain")
    display.update({"gamma": 0.98, "vf_coef": 0.5, "ent_coef": 0.1}, 1)
    assert stream.getvalue().splitlines()[1:] == ["constant: gamma 0.98, vf_coef 0.5", "step 1/10 (10%) ent_coef 0.1"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456, "0.1235"), (3e-5, "3e-05"), (12_345.6, "12,346"), (10**6, "1,000,000"), (None, "-"), ("aux", "aux")],
)
def test_numbers_are_short(value: object, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (3.2, "0:03"), (61, "1:01"), (3723, "1:02:03"), (-5, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_the_stream_decides_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_display(1, "t", stream=io.StringIO()), PlainDisplay)
    with open_display(1, "t", stream=Terminal()) as display:
        assert isinstance(display, LiveDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_display(1, "t", stream=Terminal()), PlainDisplay)


def test_an_unknown_mode_is_refused() -> None:
    unknown: Any = "fancy"
    with pytest.raises(ConfigError, match="fancy"):
        open_display(1, "t", mode=unknown)


def test_none_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open_display(1, "t", mode="none") as display:
        display.update(ROW, 1)
        display.message("text")
    assert type(display) is Display
    assert capsys.readouterr() == ("", "")


def test_the_default_stream_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    open_display(1, "title", mode="plain")
    assert capsys.readouterr().err == "title\n"


def test_the_live_table_ends_with_the_last_row() -> None:
    stream, clock = Terminal(), ManualClock()
    with open_display(100_000, "PPO", controls=("ent_coef",), stream=stream, clock=clock) as display:
        display.message("saved [step-1]")
        display.update(ROW, 20_480)
        clock.now = 0.01
        display.update({**ROW, "return_mean": 321.5}, 20_980)
    shown = stream.getvalue()
    for text in ("PPO", "saved [step-1]", "returns", "losses", "controls", "diagnostics", "321.5", "50,000 steps/s"):
        assert text in shown


def test_the_live_table_is_drawn_at_most_four_times_a_second() -> None:
    stream, clock = Terminal(), ManualClock()
    with open_display(100, "PPO", stream=stream, clock=clock) as display:
        for tick in range(64):
            clock.now = tick / 32
            display.update({"return_mean": 1000 + tick}, tick + 1)
        drawn = stream.getvalue().count("(")
    # two seconds, at 0, 0.25, …, 1.75
    assert drawn == 8
