"""Dreamer in training: schedules and their aliases, how many updates there are, what a checkpoint holds, dreams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from conformance import (
    assert_schedule_is_applied_and_logged,
    differences,
    small_config,
    train_state,
    training_rows,
)
from rl_training import Dreamer
from rl_training.cli import main
from rl_training.envs.catch import Catch
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config, merge
from rl_training.experiment.presets import load_preset
from rl_training.models.observation_codec import Seen
from rl_training.runtime.manager import resume_run
from rl_training.tools.dream import Dream, dream, film_frames, plot_dream, write_dream
from support import DictEnv, HiddenWalk, IdentityEnv, IdentityImageEnv, TargetEnv

TINY = {
    "size": "nano",
    "num_bins": 41,
    "rollout_steps": 8,
    "batch_size": 4,
    "sequence_length": 8,
    "learning_starts": 32,
    "train_ratio": 1,
    "horizon": 5,
}


def agent(env: Callable[..., gym.Env] | str, **options: Any) -> Dreamer:
    return Dreamer(env, **{"num_envs": 2, "eval_episodes": 0, "threads": 1, **TINY, **options})


@pytest.mark.parametrize(("control", "start", "end"), [("entropy_coef", 0.02, 0.0), ("train_ratio", 2.0, 1.0)])
def test_the_schedule_is_applied_and_logged(control: str, start: float, end: float, tmp_path: Path) -> None:
    assert_schedule_is_applied_and_logged("dreamer", control, tmp_path, start=start, end=end)


def test_the_other_spelling_schedules_and_warms_up_the_same_control(tmp_path: Path) -> None:
    schedule = {"kind": "linear", "start": 0.02, "end": 0.0}
    states = []
    for spelling in ("entropy_coef", "ent_coef"):
        kwargs = {f"{spelling}_schedule": schedule, f"{spelling}_warmup_steps": 128}
        run_dir, state = train_state(small_config("dreamer", tmp_path, algo_kwargs=kwargs))
        rows = training_rows(run_dir)
        assert rows[0]["entropy_coef"] == pytest.approx(0.02 / 128)
        step = rows[0]["global_step"]
        assert rows[1]["entropy_coef"] == pytest.approx(0.02 * (1 - step / 256) * (step + 1) / 128)
        assert "ent_coef" not in rows[0]
        states.append(state["learner"]["algorithm"])
    assert differences(*states) == []
    with pytest.raises(ConfigError, match="entropy_coef"):
        small_config("dreamer", tmp_path, algo_kwargs={"ent_coef": 0.1, "entropy_coef": 0.1})


def test_updates_replay_so_many_observations_for_each_step() -> None:
    """256 steps and 32 observations to an update: 0.5 · 256 / 32 = 4, all of which are made or owed."""
    trained = agent(IdentityEnv, train_ratio=0.5, learning_starts=0)
    trained.train(256)
    learner = trained._session.learner
    replayed = trained._session.progress.gradient_steps + learner.ratio.state_dict()["owed"]
    assert replayed == pytest.approx(0.5 * trained.num_timesteps / 32)


def test_a_checkpoint_has_the_rows_of_the_replay_or_none(tmp_path: Path) -> None:
    _, state = train_state(small_config("dreamer", tmp_path, algo_kwargs={"replay_capacity": 100_000}))
    columns = state["learner"]["stored_replay"]["columns"]
    steps = state["progress"]["global_step"]
    assert steps <= len(columns["rewards"]) <= steps + state["progress"]["episodes"] + 2
    run_dir, without = train_state(small_config("dreamer", tmp_path, algo_kwargs={"store_replay": False}))
    assert "stored_replay" not in without["learner"]
    resumed = resume_run(run_dir, total_timesteps=512)
    assert resumed.global_step >= 512


@pytest.mark.parametrize("env", [IdentityImageEnv, DictEnv, TargetEnv, HiddenWalk])
def test_it_trains_evaluates_and_predicts_on_images_mappings_and_boxes(env: Callable[..., gym.Env]) -> None:
    trained = agent(env)
    trained.train(96)
    assert trained._session.progress.gradient_steps > 0
    assert trained.evaluate(episodes=2)["episodes"] == 2
    space = trained._session.spaces
    action, state = trained.predict(space.observation.sample())
    assert space.action.contains(action)
    _, other = trained.predict(space.observation.sample(), state)
    assert not np.array_equal(state, other)


def test_catch_is_won_under_the_ball_and_its_state_is_all_of_it() -> None:
    """A paddle that begins at 4 and follows the ball is there in time: it falls seven rows."""
    env = Catch()
    env.reset(seed=0)
    twin = Catch()
    twin.reset(seed=1)
    twin.load_state_dict(env.state_dict())
    for row in range(1, 8):
        action = np.sign(env.column - env.paddle) + 1
        image, reward, terminated, truncated, _ = env.step(action)
        other, *rest = twin.step(action)
        assert np.array_equal(image, other)
        assert rest[:3] == [reward, terminated, truncated]
        assert (reward, terminated, truncated) == ((1.0, True, False) if row == 7 else (0.0, False, False))
    assert image[14:, 2 * env.column : 2 * env.column + 2].min() == 255


def test_the_image_preset_trains(tmp_path: Path) -> None:
    preset = load_preset("dreamer/catch")
    changes = {"output_dir": str(tmp_path), "total_timesteps": 128, "eval_episodes": 2, "num_envs": 2}
    config = make_config(
        merge(preset, changes, {"algo_kwargs": {"batch_size": 2, "train_ratio": 2, "learning_starts": 64}})
    )
    _, state = train_state(config)
    assert state["progress"]["gradient_steps"] > 0


def test_too_small_a_replay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="replay_capacity"):
        train_state(small_config("dreamer", tmp_path, algo_kwargs={"replay_capacity": 10}))


def test_a_dream_begins_with_what_was_seen_and_needs_a_world_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    run_dir, _ = train_state(small_config("dreamer", tmp_path))
    capsys.readouterr()
    output = tmp_path / "dream.png"
    command = ["dream", str(run_dir), "--output", str(output), "--context", "3", "--steps", "8", "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["context"], answer["steps"]) == (3, 8)
    assert output.stat().st_size > 1000
    assert main([*command[:3], str(tmp_path / "dream.txt")]) == 2
    other, _ = train_state(small_config("ppo", tmp_path))
    assert main(["dream", str(other), "--output", str(output)]) == 2
    assert "needs a world model" in capsys.readouterr().err


def test_a_dream_of_images_is_a_strip(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trained = agent(IdentityImageEnv)
    dreamt = dream(trained._session, context=2, steps=6)
    assert dreamt.expected.images[0].shape == dreamt.happened.images[0].shape == (6, 1, 32, 32)
    plot_dream(dreamt, tmp_path / "dream.svg")
    assert (tmp_path / "dream.svg").stat().st_size > 1000
    write_dream(dreamt, tmp_path / "dream.gif")
    with pytest.importorskip("imageio.v2").get_reader(tmp_path / "dream.gif") as film:
        assert len(film) == 6
    frames = film_frames(dreamt)
    assert frames.shape == (6, 192, 390, 3)  # two images of 32 pixels and a line between them, six times as large
    happened = (dreamt.happened.images[0][3, 0] * 255.0).round().numpy()
    np.testing.assert_array_equal(frames[3, ::6, :192:6, 0], happened)
    assert frames[1, :, 192:198].min() == 255  # the model sees two observations
    assert frames[2, :, 192:198].max() == 0


def test_a_film_needs_images(tmp_path: Path) -> None:
    numbers = Seen(torch.zeros(3, 2), ())
    with pytest.raises(ConfigError, match="a film needs observations with an image"):
        write_dream(Dream(numbers, numbers, np.zeros(3), np.zeros(3), 1), tmp_path / "dream.gif")
