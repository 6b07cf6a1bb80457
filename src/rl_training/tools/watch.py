"""Episodes in a window, as a person would see them."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np

from rl_training.errors import ConfigError
from rl_training.runtime.session import Session
from rl_training.tools.record import Frame, RenderedEnv, evaluation_spec, play_all

NOTHING = np.zeros((0, 0, 3), dtype=np.uint8)


class Window(RenderedEnv):
    """An environment that shows itself; it keeps the time of its own clock, or of the one that it is given."""

    render_mode = "human"
    pause = 0.0

    def frame(self) -> Frame:
        self._guard(self.env.render)
        time.sleep(self.pause)
        return NOTHING


def watch_episodes(
    session: Session,
    *,
    episodes: int = 1,
    fps: float | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> list[float]:
    """Plays episodes in a window and returns what they paid."""
    if fps is not None and fps <= 0:
        raise ConfigError(f"fps must be greater than 0, got {fps:g}")
    returns = [0.0] * episodes
    with session.kernels(), closing(Window(evaluation_spec(session))) as window:
        window.pause = 0.0 if fps is None else 1.0 / fps
        if fps is not None:
            window.env.unwrapped.metadata = {**window.env.metadata, "render_fps": max(round(fps), 1)}
        for shot in play_all(session, window, episodes, seed=seed, deterministic=deterministic, max_steps=max_steps):
            returns[shot.episode] += shot.reward
    return returns
