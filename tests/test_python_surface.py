"""What a user can do from Python: presets, plain functions, histories, and objects where a config has names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from conformance import differences, small_config, train_state, training_rows
from rl_training import A2C, PPO, Callback, TrainConfig, evaluate_checkpoint, resume_run
from rl_training.cli import main
from rl_training.errors import ConfigError, MissingExtraError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.runtime.manager import train_run
from rl_training.runtime.opening import load_policy
from support import ContextualBandit, ScriptedEnv

SMALL: dict[str, Any] = {"rollout_steps": 8, "num_minibatches": 1, "num_envs": 2, "log_interval": 1, "eval_episodes": 2}


def agent_on_scripts(**keys: Any) -> PPO:
    return PPO(ScriptedEnv, **{**SMALL, **keys})


# Presets and plain functions


def test_an_agent_comes_from_a_preset_with_changes() -> None:
    agent = PPO.from_preset("ppo/cartpole", seed=3, clip_coef=0.123)
    preset = rl_training.make_config("ppo/cartpole")
    assert agent.config.env_id == "CartPole-v1"
    assert agent.config.seed == 3
    assert agent.config.algo_kwargs == {**preset.algo_kwargs, "clip_coef": 0.123}
    assert agent.config.num_envs == preset.num_envs


def test_a_preset_may_have_another_environment() -> None:
    assert PPO.from_preset("ppo/cartpole", env=ScriptedEnv, num_envs=2).config.env_id == "python:ScriptedEnv"


def test_a_preset_of_another_algorithm_names_its_class() -> None:
    with pytest.raises(ConfigError, match=r"is for 'ppo'; use PPO\.from_preset"):
        A2C.from_preset("ppo/cartpole")


def test_a_config_is_made_of_an_algorithm_a_preset_a_file_a_mapping_or_another_config(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algo: ppo\nenv_id: CartPole-v1\nseed: 5\n")
    keys = {"env": "CartPole-v1", "seed": 5}
    config = rl_training.make_config({"algo": "ppo"}, **keys, clip_coef=0.1)
    assert config.algo_kwargs == {"clip_coef": 0.1}
    assert rl_training.make_config(tmp_path / "mine.yaml", clip_coef=0.1) == config
    assert rl_training.make_config(config) == config
    # An algorithm alone begins with settings for the environment, as on the command line.
    assert rl_training.make_config("ppo", **keys, clip_coef=0.1) == config.changed(defaults="environment")


def test_train_and_evaluate_are_plain_functions(tmp_path: Path) -> None:
    result = rl_training.train("ppo", env=ScriptedEnv, total_timesteps=32, output_dir=tmp_path, **SMALL)
    assert rl_training.evaluate(result.run_dir, 3, env=ScriptedEnv)["return_mean"] == 6
    assert rl_training.evaluate(agent_on_scripts(), 3)["episodes"] == 3


def test_a_result_is_one_line(tmp_path: Path) -> None:
    result = rl_training.train("ppo", env=ScriptedEnv, total_timesteps=32, output_dir=tmp_path, **SMALL)
    line = f"32 steps: return 6.0 ± 0.0, worst 6.0, 2 episodes; run: {result.run_dir}"
    assert str(result) == repr(result) == line


def test_the_history_has_the_rows_of_training_and_of_evaluations() -> None:
    agent = agent_on_scripts()
    agent.train(32)
    agent.train(16)
    steps = [row["global_step"] for row in agent.history if "gradient_steps" in row]
    assert steps == [16, 32, 48]
    assert [row["eval_return_mean"] for row in agent.history if "eval_return_mean" in row] == [6, 6]


def test_the_history_is_a_table_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_on_scripts()
    agent.train(32)
    pandas = pytest.importorskip("pandas")
    assert isinstance(agent.history.to_pandas(), pandas.DataFrame)
    assert len(agent.history.to_pandas()) == len(agent.history)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"rl-training\[pandas\]"):
        agent.history.to_pandas()


class PaintedEnv(ScriptedEnv):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> np.ndarray:
        return np.full((16, 16, 3), 50 * self.t, dtype=np.uint8)


def test_an_agent_records_itself(tmp_path: Path) -> None:
    pytest.importorskip("imageio")
    assert PPO(PaintedEnv, **SMALL).record(tmp_path / "play.gif", episodes=2).returns == (6.0, 6.0)
    only_one = {**SMALL, "num_envs": 1}
    assert PPO(PaintedEnv("rgb_array"), **only_one).record(tmp_path / "one.gif").frames == 4
    with pytest.raises(rl_training.errors.EnvironmentFault, match="make it with render_mode='rgb_array'"):
        PPO(PaintedEnv(), **only_one).record(tmp_path / "none.gif")


@pytest.mark.parametrize("steps", [0, -5])
def test_a_budget_below_one_is_refused(steps: int) -> None:
    with pytest.raises(ConfigError, match=f"at least 1, got {steps}"):
        agent_on_scripts().train(steps)


def test_a_misspelt_key_of_the_config_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown config key 'num_env'; did you mean 'num_envs'"):
        TrainConfig(algo="ppo", env_id="CartPole-v1", num_env=3)  # type: ignore[call-arg]


# Schedules as functions


def test_a_schedule_may_be_a_function_of_progress() -> None:
    agent = agent_on_scripts(total_timesteps=64, clip_coef_schedule=lambda progress: 0.4 - 0.2 * progress)
    agent.train()
    used = [row["clip_coef"] for row in agent.history if "clip_coef" in row]
    np.testing.assert_allclose(used, [0.4, 0.35, 0.3, 0.25])


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda progress: 0.5 - progress, "clip_coef_schedule.* is not a finite number of at least 0"),
        (
            lambda progress: 1 / (1 - progress),
            r"at progress 1 it raised ZeroDivisionError.*test_python_surface\.py:\d+",
        ),
        (lambda progress: "much", "clip_coef_schedule.* at progress 0: expected a finite number, got 'much'"),
    ],
)
def test_a_function_that_gives_no_value_is_refused_before_the_run(function: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        agent_on_scripts(clip_coef_schedule=function)


def falling(progress: float) -> float:
    return 0.3 * (1.0 - progress) ** 3


def test_resume_asks_for_a_function_by_name_and_is_exact_with_it(tmp_path: Path) -> None:
    config = small_config("ppo", tmp_path, algo_kwargs={"clip_range_schedule": falling}, backend="sync")
    whole = train_state(config.changed(total_timesteps=512, schedule_horizon=256))[1]
    half, state = train_state(config)
    assert state["config"]["algo_kwargs"]["clip_range_schedule"] == "python:falling"
    with pytest.raises(ConfigError, match=r"clip_coef_schedule.*the Python object 'falling'.*pass it again"):
        resume_run(half, total_timesteps=512)
    resume_run(half, total_timesteps=512, algo_kwargs={"clip_range_schedule": falling})
    assert differences(load_checkpoint(half), whole) == []


def test_what_does_not_train_needs_no_function(tmp_path: Path) -> None:
    path = agent_on_scripts(clip_coef_schedule=falling).save(tmp_path / "model")
    evaluate_checkpoint(path, env=ScriptedEnv, episodes=1)
    load_policy(path)
    with pytest.raises(ConfigError, match="falling"):
        PPO.load(path, env=ScriptedEnv)
    PPO.load(path, env=ScriptedEnv, clip_coef_schedule=falling).train(16)


# Wrappers, callbacks and loggers


def shifted(env: gym.Env, by: float = 100.0) -> gym.Env:
    return gym.wrappers.TransformReward(env, lambda reward: float(reward) + by)


WRAPPERS = [shifted, "test_python_surface:shifted", {"test_python_surface:shifted": 100}]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=["object", "name", "options"])
def test_a_wrapper_may_be_an_object_or_the_name_of_one(wrapper: Any, tmp_path: Path) -> None:
    agent = agent_on_scripts(wrappers=[wrapper])
    assert agent.evaluate(1)["return_mean"] == 306
    path = agent.save(tmp_path / "model")
    if wrapper is shifted:
        with pytest.raises(ConfigError, match=r"'shifted'.*pass it again as wrappers="):
            evaluate_checkpoint(path, env=ScriptedEnv)
    assert evaluate_checkpoint(path, env=ScriptedEnv, wrappers=[wrapper]).return_mean == 306


def test_a_wrapper_that_fails_is_named_with_its_line() -> None:
    def broken(env: gym.Env) -> gym.Env:
        raise KeyError("gears")

    with pytest.raises(ConfigError, match=r"wrapper 'python:broken'.*KeyError: 'gears' .*raise KeyError"):
        agent_on_scripts(wrappers=[broken])
    with pytest.raises(ConfigError, match=r"gave NoneType, which is not a gymnasium\.Env"):
        agent_on_scripts(wrappers=[lambda env: None])


@pytest.mark.parametrize("wrapper", [[], 3, None, {"a": 1, "b": 2}, "flaten"], ids=str)
def test_what_is_no_wrapper_is_refused(wrapper: Any) -> None:
    with pytest.raises(ConfigError, match="wrapper"):
        agent_on_scripts(wrappers=[wrapper])


class Marking(Callback):
    def on_log(self, session: Any, row: dict[str, Any]) -> None:
        row["mark"] = 7.0


@pytest.mark.parametrize(
    "callback", [Marking(), Marking, "test_python_surface:Marking"], ids=["object", "class", "name"]
)
def test_a_callback_may_be_an_object_a_class_or_a_name(callback: Any, tmp_path: Path) -> None:
    agent = agent_on_scripts(callbacks=[callback])
    agent.train(16)
    assert agent.history[0]["mark"] == 7.0
    run, _ = train_state(small_config("ppo", tmp_path, callbacks=[callback]))
    assert training_rows(run)[-1]["mark"] == 7.0


def test_resume_asks_for_a_callback_by_name(tmp_path: Path) -> None:
    run, _ = train_state(small_config("ppo", tmp_path, callbacks=[Marking()]))
    with pytest.raises(ConfigError, match=r"the callback was the Python object 'Marking'.*callbacks="):
        resume_run(run, total_timesteps=320)
    resume_run(run, total_timesteps=320, callbacks=[Marking()])
    assert training_rows(run)[-1]["mark"] == 7.0


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is no rl_training\.Callback"):
        agent_on_scripts(callbacks=["test_python_surface:shifted"]).train(16)


class Keeping:
    """A logger that keeps what it gets."""

    def __init__(self, run_dir: Path | None = None) -> None:
        self.run_dir, self.rows, self.is_closed = run_dir, [], False
        Keeping.last = self

    def log(self, row: Any, step: int) -> None:
        self.rows.append((step, dict(row)))

    def close(self) -> None:
        self.is_closed = True


def test_an_agent_hands_its_rows_to_the_users_loggers() -> None:
    logger = Keeping()
    agent = agent_on_scripts(loggers=[logger])
    agent.train(32)
    assert [row for _, row in logger.rows] == list(agent.history)
    agent.close()
    assert logger.is_closed


def test_an_agent_in_memory_refuses_loggers_that_need_a_directory() -> None:
    with pytest.raises(ConfigError, match=r"tensorboard would write to a run directory.*agent\.history"):
        agent_on_scripts(loggers=["tensorboard"])


@pytest.mark.parametrize("named", [True, False])
def test_a_run_has_the_users_loggers_beside_its_files(named: bool, tmp_path: Path) -> None:
    logger = "test_python_surface:Keeping" if named else Keeping()
    run, _ = train_state(small_config("ppo", tmp_path, loggers=["jsonl", logger]))
    kept = __import__("test_python_surface").Keeping.last if named else logger
    assert len(kept.rows) == len((run / "metrics.jsonl").read_text().splitlines())
    assert kept.is_closed
    assert kept.run_dir == (run if named else None)


@pytest.mark.parametrize("logger", ["jsnol", "no.such:Logger", 3])
def test_an_unknown_logger_leaves_no_run_behind(logger: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="logger"):
        train_run(small_config("ppo", tmp_path, loggers=[logger]))
    assert list(tmp_path.iterdir()) == []


def test_an_object_among_the_arguments_of_an_environment_is_asked_for_again(tmp_path: Path) -> None:
    def make(best: Any) -> gym.Env:
        return ContextualBandit()

    path = A2C(make, env_kwargs={"best": Keeping()}).save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"env_kwargs\.best was the Python object 'Keeping'"):
        A2C.load(path, env=make)
    A2C.load(path, env=make, env_kwargs={"best": Keeping()})


# Errors of user code


BROKEN = """
import gymnasium as gym
from rl_training import Callback
class Env(gym.Wrapper):
    def step(self, action):
        return 1 / 0
class Talker(Callback):
    def on_update(self, session, result):
        raise KeyError("voice")
def make(): return Env(gym.make("CartPole-v1"))
"""


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--env", "broken.py:make"), 3, "broken.py:6 in step: return 1 / 0"),
        (("--env", "broken.py:make", "--backend", "async"), 3, "broken.py:6 in step: return 1 / 0"),
        (("--callbacks", "broken.py:Talker"), 1, 'broken.py:9 in on_update: raise KeyError("voice")'),
    ],
    ids=str,
)
def test_an_error_in_user_code_shows_its_own_line_and_all_of_it_on_demand(
    flags: tuple[str, ...],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    command = ["train", "a2c", "--env", "CartPole-v1", *flags, "--total-timesteps", "64", "--display", "none"]
    assert main(command) == code
    err = capsys.readouterr().err
    assert told in err
    assert len(err.strip().splitlines()) == 1
    assert main([*command, "--traceback"]) == code
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.strip().splitlines()[-1].startswith("error: ")


def test_an_agent_that_trains_on_at_a_learning_rate_of_0_says_so(caplog: pytest.LogCaptureFixture) -> None:
    agent = PPO("CartPole-v1", learning_rate_schedule="linear", num_envs=2, rollout_steps=8, seed=0)
    agent.train(32, display="none")
    agent.train(32, display="none", stretch_schedules=True)
    assert "NOTHING WILL BE LEARNED" not in caplog.text
    agent.train(32, display="none")
    assert "NOTHING WILL BE LEARNED" in caplog.text
