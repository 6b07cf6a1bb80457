"""Torsos: observation → features. The space decides which one, unless the user does, and how it becomes floats."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.data.trees import Tree, observation_buffers, to_tensors
from rl_training.envs.types import ImageLayout
from rl_training.errors import ConfigError, did_you_mean
from rl_training.models.grids import GridTorso, is_grid
from rl_training.models.images import SMALLEST_SIDE, any_part, image_format, is_all_images, is_image
from rl_training.models.mlp import HIDDEN_GAIN, MLP, LayerNormMLP, orthogonal
from rl_training.models.precision import Precision, in_precision
from rl_training.models.seams import is_own, make_own, own_name, refuse_missing

CNN = Literal["nature", "impala", "shallow"]
FEATURES: dict[CNN, int] = {"nature": 512, "impala": 256, "shallow": 256}
# Channels, kernel and stride of each layer: Mnih et al. (2015), and Mnih et al. (2013), which A3C has too.
CONVOLUTIONS: dict[CNN, Sequence[tuple[int, int, int]]] = {
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "shallow": ((16, 8, 4), (32, 4, 2)),
}


@dataclass(frozen=True)
class TorsoOptions:
    hidden_sizes: Sequence[int]
    activation: str
    cnn: CNN
    image_layout: ImageLayout
    precision: Precision
    torso: Any  # a name, the user's own, a mapping with one of either for each key; None: the space decides
    torso_kwargs: Mapping[str, Any]


def idle_beside_cnn(space: gym.Space, *names: str) -> dict[str, str]:
    """The names of MLPs' options with why they have no effect, where there are only images."""
    return dict.fromkeys(names, "on pictures, which go through a CNN") if is_all_images(space) else {}


def idle_without_cnn(space: gym.Space) -> dict[str, str]:
    has_cnn = any_part(space, lambda part: is_image(part) or is_grid(part))
    return {} if has_cnn else {"precision": "without pictures, which alone go through a CNN"}


class Torso(nn.Module):
    out_features: int


def make_torso(space: gym.Space, options: TorsoOptions) -> Any:
    """The torso that takes batches of observations of the space: a module with `out_features`."""
    chosen = options.torso
    if is_own(chosen) and not isinstance(chosen, Mapping):
        return _own_torso(space, options)
    if isinstance(space, spaces.Dict):
        return DictTorso(space, options)
    if isinstance(chosen, Mapping):
        raise ConfigError(f"torso names a network for each key of a Dict, and the observation is {space}")
    if chosen is not None:
        return _named_torso(space, options)
    if options.torso_kwargs:
        raise ConfigError("torso_kwargs go to the torso, and none was named; set torso")
    if is_grid(space):
        return _grid(space, options)
    if is_image(space):
        return ImageTorso(space, options)
    torso, shape = VectorTorso(space, options), space.shape or ()
    if not torso.classes and len(shape) > 1 and torso.in_features >= SMALLEST_SIDE**2:
        cure = "an image has two or three axes, and is uint8 or bounded alike everywhere"
        warnings.warn(f"observations of shape {shape} are flattened for an MLP; {cure}", stacklevel=2)
    return torso


def _named_torso(space: gym.Space, options: TorsoOptions) -> Any:
    name = options.torso
    if name not in TORSOS:
        raise ConfigError(f"unknown torso {name!r}; {did_you_mean(name, TORSOS)}, or write module:Class for your own")
    try:
        return TORSOS[name](space, options, **options.torso_kwargs)
    except TypeError as error:
        raise ConfigError(f"torso {name} cannot be made with {dict(options.torso_kwargs)}: {error}") from error


def _own_torso(space: gym.Space, options: TorsoOptions) -> Any:
    """Tried once on two observations of zeros, so that what does not fit is told before anything is trained."""
    torso = make_own("torso", options.torso, space, **options.torso_kwargs)
    refuse_missing("torso", options.torso, torso, ["out_features"])
    if torch.get_default_device().type == "meta":  # it is made to be measured, and holds no numbers
        return torso
    name, width, trained = own_name(options.torso), torso.out_features, torso.training
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            features = torso.eval()(to_tensors(observation_buffers(space, (2,))))
    except Exception as error:
        raise ConfigError(f"torso: {name} cannot take {space}: {type(error).__name__}: {error}") from error
    if not isinstance(features, Tensor) or features.shape != (2, width):
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(f"torso: {name} turns two observations into {found}; by out_features it must be (2, {width})")
    return torso.train(trained)


class VectorTorso(Torso):
    """Box (flattened), Discrete (one-hot), MultiDiscrete (one-hot of each) and MultiBinary, through an MLP."""

    _starts: Tensor

    def __init__(self, space: gym.Space, options: TorsoOptions, *, kind: type[MLP] = MLP) -> None:
        super().__init__()
        self.classes = _classes(space)
        self.in_features = sum(self.classes) if self.classes else int(np.prod(space.shape or ()))
        self.mlp = kind(self.in_features, options.hidden_sizes, options.activation)
        self.out_features = self.mlp.out_features
        start = space.start if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else 0
        self.register_buffer("_starts", torch.tensor(np.reshape(start, -1).tolist()), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        if self.classes:
            columns = (obs.reshape(obs.shape[0], len(self.classes)) - self._starts).unbind(-1)
            obs = torch.cat([F.one_hot(c.long(), n) for c, n in zip(columns, self.classes, strict=True)], dim=-1)
        elif obs.dim() != 2:
            obs = obs.reshape(obs.shape[0], -1)
        if obs.dtype != torch.float32:
            obs = obs.float()
        return self.mlp(obs)


def _classes(space: gym.Space) -> tuple[int, ...]:
    """The number of classes of each discrete coordinate; empty for a space of numbers."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.reshape(-1))
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return ()
    raise ConfigError(
        f"observation space {space} is not supported; use Box, Discrete, MultiDiscrete, MultiBinary or Dict"
    )


class ImageTorso(Torso):
    """Images of any layout, scaled to [0, 1] by the bounds of their space, through a CNN."""

    def __init__(self, space: gym.Space, options: TorsoOptions) -> None:
        super().__init__()
        self.format = image_format(space, options.image_layout)
        channels, height, width = self.format.shape
        self.cnn = impala_cnn(channels) if options.cnn == "impala" else plain_cnn(options.cnn, channels, height, width)
        self.precision = options.precision
        with torch.no_grad():
            flat = self.cnn(torch.zeros(1, channels, height, width)).shape[-1]
        self.out_features = FEATURES[options.cnn]
        self.project = orthogonal(nn.Linear(flat, self.out_features), HIDDEN_GAIN)

    def forward(self, obs: Tensor) -> Tensor:
        pixels = self.format.pixels(obs)
        with in_precision(self.precision, pixels.device.type):
            features = F.relu(self.project(self.cnn(pixels)))
        return features.float()


def plain_cnn(kind: CNN, channels: int, height: int, width: int) -> nn.Sequential:
    """The `CONVOLUTIONS` of a kind; images under 36 pixels get kernels that fit them."""
    fits = min(height, width) >= 36
    layers: list[nn.Module] = []
    for out_channels, kernel, stride in CONVOLUTIONS[kind]:
        window = (kernel, stride, 0) if fits else (3, min(stride, 2), 1)
        layers += [orthogonal(nn.Conv2d(channels, out_channels, *window), HIDDEN_GAIN), nn.ReLU()]
        channels = out_channels
    return nn.Sequential(*layers, nn.Flatten())


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))


def impala_cnn(channels: int) -> nn.Sequential:
    """The residual network of Espeholt et al. (2018)."""
    layers: list[nn.Module] = []
    for out_channels in (16, 32, 32):
        layers += [
            nn.Conv2d(channels, out_channels, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(out_channels),
            ResidualBlock(out_channels),
        ]
        channels = out_channels
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


class DictTorso(Torso):
    """One MLP over vectors alone; beside pictures or networks of the user's a torso for each key, and a layer over all.

    Heads are linear: were keys not joined, a goal could not change what a position means.
    """

    def __init__(self, space: spaces.Dict, options: TorsoOptions) -> None:
        super().__init__()
        of_keys = {key: _of_key(key, sub, options) for key, sub in space.items()}
        are_vectors = [_is_plain_vector(sub, of_keys[key]) for key, sub in space.items()]
        joint = options.hidden_sizes if any(are_vectors) else ()
        if all(are_vectors):
            of_keys = {key: replace(chosen, hidden_sizes=()) for key, chosen in of_keys.items()}
        else:
            joint = joint[-1:]
        torsos = [make_torso(sub, of_keys[key]) for key, sub in space.items()]
        if isinstance(options.torso, Mapping) and (unknown := options.torso.keys() - space.keys()):
            raise ConfigError(f"torso: the observation has no {sorted(unknown)}; it has {sorted(space.keys())}")
        self.keys = tuple(space.keys())
        self.torsos = nn.ModuleList(torsos)  # not a ModuleDict, which refuses keys such as "type"
        self.mlp = MLP(sum(torso.out_features for torso in torsos), joint, options.activation)
        self.out_features = self.mlp.out_features

    def forward(self, obs: Mapping[str, Tree]) -> Tensor:
        parts = [torso(obs[key]) for key, torso in zip(self.keys, self.torsos, strict=True)]
        return self.mlp(torch.cat(parts, dim=-1))


def _is_plain_vector(space: gym.Space, options: TorsoOptions) -> bool:
    """Tells of numbers or classes for which the user chose no network."""
    return options.torso is None and not (isinstance(space, spaces.Dict) or is_grid(space) or is_image(space))


def _of_key(key: str, space: gym.Space, options: TorsoOptions) -> TorsoOptions:
    """The options of one key's torso: its own where there is one for each key, or else the one for all."""
    if isinstance(options.torso, Mapping):
        return replace(options, torso=options.torso.get(key), torso_kwargs=options.torso_kwargs.get(key, {}))
    if options.torso is not None and not isinstance(space, spaces.Dict):
        cure = f"name one for each key, as torso: {{{key}: {options.torso}}}"
        raise ConfigError(f"torso {options.torso} takes one array, and the observation is a mapping; {cure}")
    return options


def _mlp(space: gym.Space, options: TorsoOptions, kind: type[MLP], **kwargs: Any) -> Torso:
    return VectorTorso(space, replace(options, **kwargs), kind=kind)


def _cnn(space: gym.Space, options: TorsoOptions, cnn: CNN) -> Torso:
    if len(space.shape or ()) not in (2, 3):
        raise ConfigError(f"torso {cnn}_cnn takes images, not {space}")
    return ImageTorso(space, replace(options, cnn=cnn))


def _grid(space: gym.Space, options: TorsoOptions, **kwargs: Any) -> GridTorso:
    return GridTorso(space, image_layout=options.image_layout, precision=options.precision, **kwargs)


TORSOS: dict[str, Callable[..., Any]] = {
    "mlp": partial(_mlp, kind=MLP),
    "layer_norm_mlp": partial(_mlp, kind=LayerNormMLP),
    "nature_cnn": partial(_cnn, cnn="nature"),
    "impala_cnn": partial(_cnn, cnn="impala"),
    "shallow_cnn": partial(_cnn, cnn="shallow"),
    "grid_cnn": _grid,
}
