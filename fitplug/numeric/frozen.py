"""Frozen arrays: the arrays of a plan cannot be changed in place.

A plan's cost and variances are computed from its arrays once. If an array were changed after that,
the release would have other noise than the reported rho says.
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
    """Make every array in a value read-only, and return the value itself.

    Arrays are found in data classes, mappings, tuples and lists. An array of which another is a
    view is made read-only, too, because the view could be changed through it.
    """
    _freeze(value, set())
    return value


def frozen_property(compute: Callable[[Any], T]) -> cached_property[T]:
    """Make a cached property whose arrays are read-only."""

    @wraps(compute)
    def compute_frozen(self: Any) -> T:
        return freeze(compute(self))

    return cached_property(compute_frozen)


def _freeze(value: Any, seen: set[int]) -> None:
    """Freeze the arrays in a value, except in objects whose id is in `seen`."""
    if value is None or isinstance(value, (str, bytes, int, float)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        _freeze(value.base, seen)
        return
    inside: Any = ()
    if issparse(value):
        inside = (item for item in vars(value).values() if isinstance(item, np.ndarray))
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (tuple, list)):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = list(vars(value).values())  # the fields and the cached properties
    for item in inside:
        _freeze(item, seen)
