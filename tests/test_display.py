"""What the terminal shows, at a clock that the tests move."""

import io
from typing import Any

import pytest

from rl_training.errors import ConfigError
from rl_training.runtime.display import (
    Display,
    LiveDisplay,
    PlainDisplay,
    Speed,
    duration_text,
    group_metrics,
    number_text,
    open_display,
)


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
    display = open_display(10, "title", stream=stream, mode="plain")
    display.update({"return_mean": float("nan"), "eval_return_mean": 7.0}, 1)
    assert stream.getvalue().splitlines()[1] == "step 1/10 (10%) eval_return 7"


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
    assert group_metrics({**ROW, "episode_length": 9, "loss_coef": 1}, ("ent_coef", "loss_coef")) == {
        "returns": {"return_mean": "123.4", "return_std": "20.1", "episode_length": "9"},
        "losses": {"policy_loss": "-0.012"},
        "controls": {"ent_coef": "0.01", "loss_coef": "1"},
        "diagnostics": {"approx_kl": "0.003"},
    }


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
        drawn = stream.getvalue().count("return_mean")
    # two seconds, at 0, 0.25, …, 1.75
    assert drawn == 8
