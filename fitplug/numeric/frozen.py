"""Frozen arrays: what a plan is made of cannot be changed in place once it is there.

A plan's cost and variances are computed from its arrays once. One that was changed after that would
release with noise that its rho does not tell of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import issparse

T = TypeVar("T")


def freeze(value: T) -> T:
    """The value itself, with every array within it read-only: in data classes, mappings, tuples and
    lists, and the arrays that they are views of, through which they might be written to.
    """
    _freeze(value, set())
    return value


def frozen_property(compute: Callable[[Any], T]) -> cached_property[T]:
    """A cached property whose arrays are read-only."""

    @wraps(compute)
    def computed(self: Any) -> T:
        return freeze(compute(self))

    return cached_property(computed)


def _freeze(value: Any, seen: set[int]) -> None:
    if value is None or isinstance(value, (str, bytes, int, float)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        _freeze(value.base, seen)
        return
    inside: Any = ()
    if issparse(value):
        inside = (part for part in vars(value).values() if isinstance(part, np.ndarray))
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (tuple, list)):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = list(vars(value).values())  # fields, and what is cached
    for part in inside:
        _freeze(part, seen)
