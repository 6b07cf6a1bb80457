"""Images: what counts as one, which axis has its channels, and that its pixels arrive between 0 and 1."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import PPO, MuZero
from rl_training.envs.types import Spaces, channels_last
from rl_training.envs.wrappers import FrameStack
from rl_training.errors import ConfigError
from rl_training.models import precision
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.grids import GridTorso
from rl_training.models.images import is_image
from rl_training.models.normalization import ObsNormalizer
from rl_training.models.observation_codec import ObsReader
from rl_training.models.torsos import ImageTorso, VectorTorso, make_torso
from rl_training.runtime.threads import default_threads
from support import DictEnv, IdentityImageEnv, policy_options, torso_options

PICTURES = {
    "uint8": spaces.Box(0, 255, (20, 20, 3), np.uint8),
    "uint8 up to 1": spaces.Box(0, 1, (20, 20, 3), np.uint8),
    "uint8 from 10 to 20": spaces.Box(10, 20, (20, 20, 3), np.uint8),
    "float": spaces.Box(0.0, 1.0, (20, 20, 3), np.float32),
    "float up to 4": spaces.Box(0.0, 4.0, (20, 20, 3), np.float32),
    "float from -1": spaces.Box(-1.0, 1.0, (3, 20, 20), np.float32),
    "no channels": spaces.Box(0, 255, (20, 24), np.uint8),
    "bits": spaces.MultiBinary([20, 20]),
    "booleans": spaces.Box(0, 1, (20, 20, 3), np.bool_),
}


def extremes(space: gym.Space) -> tuple[torch.Tensor, torch.Tensor]:
    """An observation that is all low, and one that is all high."""
    if isinstance(space, spaces.MultiBinary):
        return torch.zeros(1, *space.shape, dtype=torch.int8), torch.ones(1, *space.shape, dtype=torch.int8)
    assert isinstance(space, spaces.Box)
    return torch.from_numpy(np.stack([space.low])), torch.from_numpy(np.stack([space.high]))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_goes_through_a_cnn_scaled_by_the_bounds_of_its_space(name: str) -> None:
    space = PICTURES[name]
    torso = make_torso(space, torso_options())
    assert isinstance(torso, ImageTorso)
    for obs, shade in zip(extremes(space), (0.0, 1.0), strict=True):
        kept = obs.clone()
        channels = 3 if len(space.shape or ()) == 3 else 1
        plain = torch.full((1, channels, 20, 24 if name == "no channels" else 20), shade)
        torch.testing.assert_close(torso(obs), torch.relu(torso.project(torso.cnn(plain))))
        assert torch.equal(obs, kept)
        (seen,) = ObsReader(space, "auto")(obs).images
        assert (seen == shade).all()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3, 2), np.float32),
        spaces.Box(0, 255, (4,), np.uint8),
        spaces.Box(0, 1, (15, 15, 3), np.float32),
        spaces.Box(-np.inf, np.inf, (30, 20), np.float32),
        spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (30, 20), np.float32),
        spaces.Box(0, 1, (2, 20, 20, 3), np.float32),
    ],
    ids=str,
)
def test_small_or_unbounded_numbers_are_no_picture(space: gym.Space) -> None:
    """A table of numbers has no neighbours; only three axes of bytes are a picture at any size."""
    assert not is_image(space)
    assert is_image(spaces.Box(0, 255, (5, 5, 3), np.uint8))


def test_a_large_array_that_is_flattened_is_said_to_be() -> None:
    with pytest.warns(UserWarning, match=r"\(30, 20\) are flattened.*bounded"):
        assert isinstance(make_torso(spaces.Box(-np.inf, np.inf, (30, 20), np.float32), torso_options()), VectorTorso)


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        ((84, 84, 3), True),
        ((4, 84, 84), False),
        ((210, 160, 3), True),
        ((3, 210, 160), False),
        ((8, 8, 12), True),
        ((16, 16, 18), True),
        ((12, 8, 8), False),
        ((7, 5, 2), True),
        ((8, 8, 8), True),
    ],
)
def test_the_sides_of_a_picture_are_alike_and_channels_are_the_other_axis(shape: tuple[int, ...], last: bool) -> None:
    assert channels_last(shape) == last
    assert channels_last(shape, "channels_first") is False
    assert channels_last(shape, "channels_last") is True


@pytest.mark.parametrize("shape", [(8, 8, 12), (8, 8, 8), (12, 8, 8)])
def test_a_guess_is_said_to_be_one_and_can_be_overridden(shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    with pytest.warns(UserWarning, match=rf"\({shape[0]}, {shape[1]}, {shape[2]}\).*image_layout"):
        make_torso(space, torso_options())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = make_torso(space, torso_options(image_layout="channels_first"))
        last = make_torso(space, torso_options(image_layout="channels_last"))
        make_torso(spaces.Box(0, 255, (8, 8, 3), np.uint8), torso_options())
    assert isinstance(first, GridTorso)
    assert isinstance(last, GridTorso)
    assert (first.format.shape[0], last.format.shape[0]) == (shape[0], shape[2])
    assert ObsReader(space, "channels_first").image_shapes[0][0] == shape[0]


def test_frames_are_stacked_along_the_channels_that_the_user_names() -> None:
    env = PictureEnv((8, 8, 8))
    assert FrameStack(env, 2).observation_space.shape == (8, 8, 16)
    assert FrameStack(env, 2, layout="channels_first").observation_space.shape == (16, 8, 8)


class PictureEnv(gym.Env):
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2)


def test_a_picture_of_zeros_and_ones_is_learned_from() -> None:
    """Divided by 255, whatever the bounds, its pixels would be all but 0."""
    agent = PPO(OnesImageEnv, num_envs=8, rollout_steps=32, learning_rate=1e-3, eval_episodes=0, threads=1, seed=1)
    agent.train(3_000)
    assert agent.evaluate(episodes=20, seed=0)["return_mean"] > 7.0  # chance 2, perfect 8


class OnesImageEnv(IdentityImageEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 1, (36, 36, 1), np.uint8)

    def ask(self) -> np.ndarray:
        return super().ask() // 255


# ---- what has no effect on images


@pytest.mark.parametrize(
    "options", [{"hidden_sizes": [32]}, {"activation": "relu"}], ids=lambda options: next(iter(options))
)
def test_options_of_an_mlp_are_refused_where_there_are_only_pictures(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} has no effect .*pictures"):
        PPO(IdentityImageEnv, **options)
    PPO(DictEnv, **options).close()
    default = policy_options()
    PPO(IdentityImageEnv, hidden_sizes=list(default.torso.hidden_sizes)).close()  # as a resolved config says


def test_a_planners_hidden_sizes_are_refused_too() -> None:
    with pytest.raises(ConfigError, match="hidden_sizes has no effect"):
        MuZero(IdentityImageEnv, hidden_sizes=[32])


# ---- normalisation


def test_integers_are_normalised_and_pictures_are_not() -> None:
    normalizer = ObsNormalizer(spaces.Box(0, 1000, (2,), np.int64))
    obs = torch.tensor([[0, 100], [200, 300], [400, 800]])
    normalizer.update(obs)
    torch.testing.assert_close(normalizer(obs).mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(normalizer(obs).std(0, correction=0), torch.ones(2))
    for space in PICTURES.values():
        assert ObsNormalizer(space).stats is None


def test_a_policy_with_integers_acts_after_their_statistics_moved() -> None:
    space = Spaces(spaces.Box(0, 1000, (3,), np.int32), spaces.Discrete(2))
    policy = ActorCritic(space, policy_options(normalize_obs=True))
    obs = torch.randint(1000, (32, 3), dtype=torch.int32)
    policy.update_statistics(obs)
    assert policy.act(obs, policy.initial_state(32)).actions.shape == (32,)
    assert policy.normalizer(obs).abs().max() < 5.0


# ---- threads


@pytest.mark.parametrize(("allowed", "threads"), [("1", 1), ("3", 3), ("99", 4), ("2,1", 2), (None, 4), ("", 4)])
def test_pictures_take_no_more_threads_than_omp_num_threads_allows(
    allowed: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if allowed is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", allowed)
    envs: Any = SimpleNamespace(spaces=Spaces(PICTURES["uint8"], spaces.Discrete(2)))
    assert default_threads(envs) == threads


PICTURE = spaces.Box(0, 255, (4, 36, 36), np.uint8)
PLANES = spaces.Box(0, 1, (10, 10, 4), np.bool_)


def torso_in(wanted: str, space: gym.Space = PICTURE) -> ImageTorso | GridTorso:
    torch.manual_seed(0)
    torso = make_torso(space, torso_options(precision=wanted))
    assert isinstance(torso, ImageTorso if space is PICTURE else GridTorso)
    return torso


@pytest.mark.parametrize("space", [PICTURE, PLANES])
def test_bfloat16_is_nearly_float32_and_leaves_weights_and_what_follows_in_float32(space: spaces.Box) -> None:
    highest = int(space.high.max())
    obs = torch.randint(0, highest + 1, (8, *space.shape), generator=torch.Generator().manual_seed(0))
    obs = obs.to(torch.uint8 if space is PICTURE else torch.bool)
    features = {}
    for wanted in ("float32", "bfloat16"):
        torso = torso_in(wanted, space)
        features[wanted] = torso(obs)
        features[wanted].sum().backward()
        assert {p.dtype for p in torso.parameters()} == {p.grad.dtype for p in torso.parameters()} == {torch.float32}
    assert features["bfloat16"].dtype == torch.float32
    assert not torch.equal(features["bfloat16"], features["float32"])
    torch.testing.assert_close(features["bfloat16"], features["float32"], atol=0.02, rtol=0.05)


@pytest.mark.parametrize("is_there", [True, False])
def test_precision_auto_is_bfloat16_where_the_processor_has_it(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda _: is_there)
    obs = torch.full((1, 4, 36, 36), 77, dtype=torch.uint8)
    expected = torso_in("bfloat16" if is_there else "float32")
    assert torch.equal(torso_in("auto")(obs), expected(obs))


def test_precision_is_refused_where_there_is_no_picture() -> None:
    with pytest.raises(ConfigError, match="precision has no effect without pictures"):
        PPO("CartPole-v1", precision="bfloat16")
