"""Videos of a policy at play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.blame import told
from rl_training.data.trees import batch_of_one, to_observations
from rl_training.envs.factory import EnvSpec, choose_backend, make_env, make_envs
from rl_training.envs.sources import is_instance
from rl_training.errors import ConfigError, EnvironmentFault, import_extra
from rl_training.experiment.files import refuse_unwritable
from rl_training.runtime.policy import Policy
from rl_training.runtime.session import EVALUATION, Session, derive_seed

DEFAULT_FPS = 30
ATARI_HZ, ATARI_FRAME_SKIP = 60, 4
ATARI_ZOOM = 4  # its observations are 84 × 84

Frame = NDArray[np.uint8]


class Moved(NamedTuple):
    obs: Any  # with a batch axis of one, as policies take them
    reward: float
    done: bool


class Screen(Protocol):
    """One environment that can be watched."""

    fps: float

    def reset(self, seed: int) -> Any: ...

    def step(self, actions: NDArray[Any]) -> Moved: ...

    def frame(self) -> Frame: ...

    def close(self) -> None: ...


class RenderedEnv:
    """A single environment that draws itself."""

    render_mode = "rgb_array"

    def __init__(self, spec: EnvSpec) -> None:
        self.name = spec.name
        self._is_ours = not is_instance(spec.source)
        wanted = self.render_mode
        try:
            self.env = make_env(spec, render_mode=wanted) if self._is_ours else make_env(spec)
        except EnvironmentFault as error:
            raise EnvironmentFault(f"{self.name} cannot be made with render_mode={wanted!r}: {error}") from error
        if not self._is_ours and self.env.render_mode != wanted:
            mode = self.env.render_mode
            raise EnvironmentFault(f"{self.name} has render_mode={mode!r}; make it with render_mode={wanted!r}")
        self.fps = float(self.env.metadata.get("render_fps") or DEFAULT_FPS)

    def reset(self, seed: int) -> Any:
        return batch_of_one(self._guard(partial(self.env.reset, seed=seed))[0])

    def step(self, actions: NDArray[Any]) -> Moved:
        obs, reward, terminated, truncated, _ = self._guard(partial(self.env.step, actions[0]))
        return Moved(batch_of_one(obs), float(reward), bool(terminated or truncated))

    def frame(self) -> Frame:
        image = self._guard(self.env.render)
        if not (isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3):
            raise EnvironmentFault(f"{self.name} cannot render: it gave {type(image).__name__}, not an RGB image")
        return image.astype(np.uint8, copy=False)

    def close(self) -> None:
        if self._is_ours:
            self.env.close()

    def _guard(self, call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            raise EnvironmentFault(f"{self.name}: {told(error)}") from error


class AtariScreen:
    """ALE's C++ vector environment does not render: the last frame of what the policy sees is the picture."""

    def __init__(self, spec: EnvSpec) -> None:
        self.fps = ATARI_HZ / spec.kwargs.get("frameskip", ATARI_FRAME_SKIP)
        self.envs = make_envs(spec, 1)

    def reset(self, seed: int) -> Any:
        self._obs = self.envs.reset(seed)
        return self._obs

    def step(self, actions: NDArray[Any]) -> Moved:
        step = self.envs.step(actions)
        self._obs = step.obs
        return Moved(step.obs, float(step.rewards[0]), bool(step.terminated[0] or step.truncated[0]))

    def frame(self) -> Frame:
        newest = np.asarray(self._obs)[0, -1]
        rgb = newest if newest.ndim == 3 else np.repeat(newest[:, :, None], 3, axis=2)
        return rgb.repeat(ATARI_ZOOM, axis=0).repeat(ATARI_ZOOM, axis=1)

    def close(self) -> None:
        self.envs.close()


class Shot(NamedTuple):
    frame: Frame
    episode: int
    reward: float  # of the step that led here; 0 at the start of an episode


@dataclass(frozen=True)
class Recording:
    output: Path
    returns: tuple[float, ...]
    frames: int

    def summary(self) -> dict[str, Any]:
        scores = {"episodes": len(self.returns), "return_mean": float(np.mean(self.returns))}
        return {"output": str(self.output), "frames": self.frames} | scores


def record_episodes(
    session: Session,
    output: Path | str,
    *,
    episodes: int = 1,
    fps: float | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> Recording:
    """Plays episodes, each at most `max_steps` long, on an environment of its own, into an mp4 or a gif."""
    output = Path(output)
    open_writer = video_writer(output)
    refuse_unwritable(output)
    returns, frames = [0.0] * episodes, 0
    with session.kernels(), closing(open_screen(evaluation_spec(session))) as screen:
        shots = play_all(session, screen, episodes, seed=seed, deterministic=deterministic, max_steps=max_steps)
        first = next(shots)  # an environment that cannot render fails here, before there is a file
        with closing(open_writer(fps or screen.fps)) as writer:
            for shot in chain([first], shots):
                writer.append_data(shot.frame)
                returns[shot.episode] += shot.reward
                frames += 1
    return Recording(output, tuple(returns), frames)


def evaluation_spec(session: Session) -> EnvSpec:
    session.lend_envs()
    return session.config.env_spec(session.env, evaluation=True)


def play_all(
    session: Session, screen: Screen, episodes: int, *, seed: int | None, deterministic: bool, max_steps: int | None
) -> Iterator[Shot]:
    """Episodes on a screen, shot by shot; without a seed as evaluations at this step are."""
    if episodes < 1:
        raise ConfigError(f"episodes: at least 1, got {episodes}")
    first = derive_seed(session.config.seed, EVALUATION, session.progress.global_step) if seed is None else seed
    for episode in range(episodes):
        player = play(session.policy, screen, episode=episode, seed=first + episode, deterministic=deterministic)
        yield from islice(player, max_steps and max_steps + 1)


def play(policy: Policy, screen: Screen, *, episode: int, seed: int, deterministic: bool) -> Iterator[Shot]:
    """One episode, shot by shot."""
    generator = torch.Generator(policy.device).manual_seed(seed)
    moved, state = Moved(screen.reset(seed), 0.0, False), policy.initial_state(1)
    yield Shot(screen.frame(), episode, 0.0)
    while not moved.done:
        with torch.inference_mode():
            obs = to_observations(moved.obs, policy.device)
            acted = policy.act(obs, state, generator=generator, deterministic=deterministic)
        state = acted.state
        moved = screen.step(policy.env_actions(acted.actions.cpu().numpy()))
        yield Shot(screen.frame(), episode, moved.reward)


def open_screen(spec: EnvSpec) -> Screen:
    return AtariScreen(spec) if choose_backend(spec) == "atari" else RenderedEnv(spec)


def video_writer(output: Path) -> Callable[[float], Any]:
    """Makes the writer, given frames per second; what is missing for the format is missed at once."""
    imageio = import_extra("imageio.v2", "video")
    if output.suffix.lower() == ".gif":
        return lambda fps: imageio.get_writer(output, mode="I", duration=1000 / fps, loop=0)
    if output.suffix.lower() == ".mp4":
        import_extra("imageio_ffmpeg", "video")
        # Even sizes are all that H.264 asks for; imageio would stretch frames to multiples of 16.
        return lambda fps: imageio.get_writer(output, fps=fps, macro_block_size=2)
    raise ConfigError(f"cannot record to {output}: the name must end in .mp4 or .gif")
