"""A look into a world model: what it expects, with its eyes closed, against what happened."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.trees import to_tensors, tree_map
from rl_training.envs.factory import make_envs
from rl_training.errors import ConfigError, import_extra
from rl_training.models.dreamer import DreamerModel
from rl_training.models.observation_codec import Seen
from rl_training.models.rssm import Latent
from rl_training.ops.transforms import symexp
from rl_training.runtime.session import EVALUATION, Session, derive_seed
from rl_training.tools.plot import FORMATS, check_format
from rl_training.tools.record import video_writer

FILM_SIDE = 192  # pixels that a frame of a film has at least, of what happened and of what was expected each
FILM_FPS = 5.0
MAX_PANELS = 12
STRIP_COLUMNS = 16


@dataclass(frozen=True)
class Dream:
    """Rows `[T, …]` of one episode; the model saw the first `context` observations, and all actions."""

    happened: Seen
    expected: Seen
    rewards: NDArray[np.float32]
    expected_rewards: NDArray[np.float32]
    context: int

    def summary(self) -> dict[str, Any]:
        """Mean absolute errors of what was predicted open loop."""
        after = slice(self.context, None)
        happened, expected = ([seen.vector, *seen.images] for seen in (self.happened, self.expected))
        pairs = zip(happened, expected, strict=True)
        errors = [float((a[after] - b[after]).abs().mean()) for a, b in pairs if a.numel()]
        return {
            "steps": len(self.rewards),
            "context": self.context,
            "observation_error": float(np.mean(errors)),
            "reward_error": float(np.abs(self.rewards[after] - self.expected_rewards[after]).mean()),
        }


@torch.inference_mode()
def dream(session: Session, *, context: int = 5, steps: int = 50, seed: int | None = None) -> Dream:
    """Plays up to `steps` steps of an episode greedily, and predicts all of it after `context` observations."""
    model = session.policy
    if not isinstance(model, DreamerModel):
        raise ConfigError(f"a dream needs a world model; the run's algorithm is {session.config.algo}")
    if not 1 <= context < steps:
        raise ConfigError(f"context: at least 1 and less than the {steps} steps, got {context}")
    with session.kernels():
        obs, actions, rewards = _play(session, model, steps, seed)
    if len(rewards) <= context:
        raise ConfigError(f"the episode ended after {len(rewards)} observations; use a smaller context or another seed")
    obs = to_tensors(obs, model.device)
    seen = model.reader(obs)
    features = _open_loop(model, model.encode(obs, seen), actions, context)
    expected = model.decoder(features)
    return Dream(
        _readable(seen), _readable(expected), rewards, model.expected(model.reward(features)).cpu().numpy(), context
    )


def _play(session: Session, model: DreamerModel, steps: int, seed: int | None) -> tuple[Any, Tensor, Any]:
    """Observations, the action before each, the reward that came with each."""
    chosen = derive_seed(session.config.seed, EVALUATION, session.progress.global_step) if seed is None else seed
    with closing(make_envs(session.config.env_spec(session.env, evaluation=True), 1)) as envs:
        obs, state = tree_map(np.copy, envs.reset(chosen)), model.initial_state(1)
        seen, actions, rewards = [obs], [torch.zeros(1, model.action_size, device=model.device)], [0.0]
        while len(rewards) < steps:
            acted = model.act(to_tensors(obs, model.device), state, deterministic=True)
            state = acted.state
            step = envs.step(model.env_actions(acted.actions.cpu().numpy()))
            if step.terminated[0] or step.truncated[0]:
                break
            obs = tree_map(np.copy, step.obs)
            seen.append(obs)
            actions.append(model.encode_actions(acted.actions))
            rewards.append(float(step.rewards[0]))
    return tree_map(lambda *rows: np.concatenate(rows), *seen), torch.stack(actions), np.array(rewards, np.float32)


def _open_loop(model: DreamerModel, tokens: Tensor, actions: Tensor, context: int) -> Tensor:
    """Features of every state: after the observation while there is one, of the likeliest expectation then."""
    latent, features = model.rssm.initial(1), []
    for t, action in enumerate(actions):
        deter = model.rssm.advance(latent, action)
        probs = model.rssm.posterior(deter, tokens[t : t + 1]) if t < context else model.rssm.prior(deter)
        latent = Latent(deter, model.rssm.sample(probs, None))
        features.append(latent.features)
    return torch.cat(features)


def _readable(seen: Seen) -> Seen:
    return Seen(symexp(seen.vector).cpu(), tuple(image.cpu() for image in seen.images))


def write_dream(dreamt: Dream, output: Path | str) -> None:
    """Writes a film (.gif) of images, or a plot of images and numbers, by what the file is called."""
    if Path(output).suffix.lower() == ".gif":
        film_dream(dreamt, Path(output))
    else:
        plot_dream(dreamt, output)


def film_dream(dreamt: Dream, output: Path) -> None:
    """Shows what happened on the left, what was expected on the right, and a line between them while the model sees."""
    if not dreamt.happened.images:
        raise ConfigError(f"{output}: a film needs observations with an image; plot to {', '.join(FORMATS)}")
    frames = film_frames(dreamt)
    make_writer = video_writer(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with make_writer(FILM_FPS) as writer:
        for frame in frames:
            writer.append_data(frame)


def film_frames(dreamt: Dream) -> NDArray[np.uint8]:
    """`[T, H, W, 3]`"""
    sides = [_colours(seen.images[0]).clamp(0.0, 1.0) for seen in (dreamt.happened, dreamt.expected)]
    steps, _, height, width = sides[0].shape
    scale = -(-FILM_SIDE // max(height, width))
    line = torch.zeros(steps, 3, height, 1)
    line[: dreamt.context] = 1.0
    film = torch.cat([sides[0], line, sides[1]], dim=-1)
    film = film.repeat_interleave(scale, dim=-1).repeat_interleave(scale, dim=-2)
    return (film.movedim(1, -1) * 255.0).round().to(torch.uint8).numpy()


def plot_dream(dreamt: Dream, output: Path | str) -> None:
    """Numbers as curves, the first image as a strip: what happened, what was expected, the difference."""
    output = check_format(output)
    import_extra("matplotlib", "plot")
    from matplotlib.figure import Figure

    output.parent.mkdir(parents=True, exist_ok=True)
    curves = _curves(dreamt)
    strips = 3 if dreamt.happened.images else 0
    figure = Figure(figsize=(10.0, 1.3 * strips + 1.2 * len(curves)), layout="constrained")
    panels = figure.subplots(strips + len(curves), 1, squeeze=False)[:, 0]
    if strips:
        _draw_strips(panels[:strips], dreamt)
    for axes, (name, happened, expected) in zip(panels[strips:], curves, strict=True):
        axes.plot(happened, color="0.3", label="happened")
        axes.plot(expected, color="C1", label="expected")
        axes.axvline(dreamt.context - 0.5, color="0.6", linestyle=":")
        axes.set_ylabel(name)
    panels[-1].legend(fontsize=9)
    panels[-1].set_xlabel(f"step; the model's eyes close after {dreamt.context}")
    figure.savefig(output)


def _curves(dreamt: Dream) -> list[tuple[str, Any, Any]]:
    """(name, what happened, what was expected) of the first numbers of the observation, and of the reward."""
    numbers = min(dreamt.happened.vector.shape[1], MAX_PANELS)
    columns = [(f"obs {i}", dreamt.happened.vector[:, i], dreamt.expected.vector[:, i]) for i in range(numbers)]
    return [*columns, ("reward", dreamt.rewards, dreamt.expected_rewards)]


def _draw_strips(panels: Any, dreamt: Dream) -> None:
    happened, expected = dreamt.happened.images[0], dreamt.expected.images[0]
    chosen = np.unique(np.linspace(0, len(happened) - 1, STRIP_COLUMNS).astype(int))
    strips = (happened, expected, (happened - expected).abs())
    for axes, name, images in zip(panels, ("happened", "expected", "difference"), strips, strict=True):
        axes.imshow(torch.cat([*_colours(images[chosen])], dim=-1).movedim(0, -1).numpy(), interpolation="nearest")
        axes.set_yticks([])
        axes.set_xticks([])
        axes.set_ylabel(name)
    panels[0].set_title(f"steps {', '.join(map(str, chosen))}; eyes closed after {dreamt.context}", fontsize=9)


def _colours(images: Tensor) -> Tensor:
    """Images `[T, C, H, W]` with three channels. Stacked frames are no colours: of those the newest is shown."""
    return images if images.shape[1] == 3 else images[:, -1:].expand(-1, 3, -1, -1)
