"""Observations as policies read them: text is left out, and the parts of a Tuple get names.

No network here reads text. A Text space inside a Dict is left out (MiniGrid's `mission`), and an observation that is
nothing but text is refused. A Tuple becomes a Dict with the keys "0", "1", …, which networks take part by part.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

_log = logging.getLogger(__name__)


def with_readable_observations(env: gym.Env) -> gym.Env:
    """The environment itself where its observations are readable, or else one that leaves out text and names parts."""
    space = env.observation_space
    if _is_text(space) or not _has_text_or_tuple(space):
        return env
    readable = readable_space(space)
    if left_out := _text_in(space):
        _log.info("the text %s is left out of observations", ", ".join(map(repr, left_out)))
    return gym.wrappers.TransformObservation(env, lambda obs: _readable(space, obs), readable)


def readable_space(space: gym.Space) -> gym.Space:
    """The space of what is left; a space that is nothing but text stays as it is."""
    if parts := _parts(space):
        return spaces.Dict({key: readable_space(part) for key, part in parts.items() if not _is_text(part)})
    return space


def without_keys(tree: Any, keys: Collection[str]) -> Any:
    """A Dict space, or a mapping of arrays, without some of its keys."""
    if not keys:
        return tree
    kept = {key: part for key, part in tree.items() if key not in keys}
    return spaces.Dict(kept) if isinstance(tree, spaces.Dict) else kept


def _readable(space: gym.Space, obs: Any) -> Any:
    parts = _parts(space)
    if not parts:
        return obs
    given: Mapping[str, Any] = obs if isinstance(space, spaces.Dict) else {str(i): part for i, part in enumerate(obs)}
    return {key: _readable(part, given[key]) for key, part in parts.items() if not _is_text(part)}


def _parts(space: gym.Space) -> dict[str, gym.Space]:
    """The named parts of a Dict or Tuple; empty for a space that has none."""
    if isinstance(space, spaces.Tuple):
        return {str(index): part for index, part in enumerate(space.spaces)}
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {}


def _is_text(space: gym.Space) -> bool:
    """Whether a space has no part but text; MiniGrid's missions have a space of their own, of strings."""
    if parts := _parts(space):
        return all(map(_is_text, parts.values()))
    return isinstance(space, gym.Space) and space.dtype is not None and np.dtype(space.dtype).kind == "U"


def _text_in(space: gym.Space) -> list[str]:
    return [key for key, part in _parts(space).items() if _is_text(part)]


def _has_text_or_tuple(space: gym.Space) -> bool:
    return isinstance(space, spaces.Tuple) or _is_text(space) or any(map(_has_text_or_tuple, _parts(space).values()))
