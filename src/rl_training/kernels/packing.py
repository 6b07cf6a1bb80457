"""Copies of models' weights, laid out for compiled code, and made anew only when a weight has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

ModelT = TypeVar("ModelT", bound=nn.Module)
WeightsT = TypeVar("WeightsT")

Stamp = list[tuple[int, int]]


class _Copy(NamedTuple, Generic[WeightsT]):
    modules: tuple[nn.Module | None, ...]
    tensors: list[Tensor]
    stamp: Stamp
    weights: WeightsT


class Packed(Generic[ModelT, WeightsT]):
    """`pack` copies a model's weights; `tensors` are those that it reads.

    Every change of a tensor in place raises its version: torch does so itself, and `FlatOptimizer` for its views.
    """

    def __init__(self, pack: Callable[[ModelT], WeightsT], tensors: Callable[[ModelT], Iterable[Tensor]]) -> None:
        self._pack = pack
        self._tensors = tensors
        self._copies: WeakKeyDictionary[ModelT, _Copy[WeightsT]] = WeakKeyDictionary()

    def knows(self, model: ModelT) -> bool:
        """Tells whether it has copied the model, and the model still has the same modules."""
        known = self._copies.get(model)
        return known is not None and known.modules == tuple(model._modules.values())

    def __call__(self, model: ModelT) -> WeightsT:
        known = self._copies.get(model)
        if known is not None and _stamp(known.tensors) == known.stamp:
            return known.weights
        modules, tensors, weights = tuple(model._modules.values()), list(self._tensors(model)), self._pack(model)
        self._copies[model] = _Copy(modules, tensors, _stamp(tensors), weights)
        return weights


def _stamp(tensors: list[Tensor]) -> Stamp:
    return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
