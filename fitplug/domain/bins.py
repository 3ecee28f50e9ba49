"""Bins: half-open intervals of numbers, one ordered cell each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import OUTSIDE, Codes, as_int64, wrong_type
from fitplug.errors import DataError, DomainError


@dataclass(frozen=True, init=False)
class Bins:
    """Half-open intervals [edges[i], edges[i+1]), one ordered cell each."""

    edges: tuple[float, ...]
    value_type: ClassVar[type] = float
    null_code: ClassVar[int] = OUTSIDE

    def __init__(self, edges: Sequence[float]) -> None:
        if isinstance(edges, str) or not isinstance(edges, Sequence):
            raise DomainError(f"bins must be a list of edges, not {edges!r}")
        for edge in edges:
            if type(edge) not in (int, float) or not math.isfinite(edge) or abs(edge) >= 2**53:
                raise DomainError(f"bin edge {edge!r} must be a finite number below 2**53 in size")
        if len(edges) < 2:
            raise DomainError("bins need at least two edges")
        for low, high in itertools.pairwise(edges):
            if high <= low:
                raise DomainError(
                    f"bin edges must increase, but {high!r} follows {low!r}: "
                    "bins would overlap or be empty"
                )
        object.__setattr__(self, "edges", tuple(edges))

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"[{a}, {b})" for a, b in itertools.pairwise(self.edges))

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError on anything but numbers and nulls.
        """
        array = np.asarray(values)
        if array.dtype.kind == "O":
            return self.codes(np.array([_number(v) for v in array.tolist()], dtype=np.float64))
        if array.dtype.kind not in "iuf":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(wrong_type(float, str(array.dtype)))
        # Edges are below 2**53 in size, so clipping wide integers there moves none across an edge
        # and makes their conversion to float exact.
        if array.dtype.kind in "iu":
            numbers = np.clip(as_int64(array), -(2**53), 2**53).astype(np.float64)
        else:
            numbers = array.astype(np.float64)
        cell = np.searchsorted(np.asarray(self.edges, dtype=np.float64), numbers, side="right") - 1
        # NaN sorts last, so it falls into the same "beyond the last edge" as large values.
        return np.where((cell >= 0) & (cell < self.size), cell, OUTSIDE).astype(np.int64)

    def position(self, value: Any) -> int | None:
        """The cell that starts at `value`; the last edge gives `size`. None for no edge."""
        return self.edges.index(value) if value in self.edges else None

    def spec(self) -> Any:
        """As a spec file writes it."""
        return {"bins": list(self.edges)}


def _number(value: Any) -> float:
    """A number or null as a float; integers beyond any edge stay beyond it."""
    if value is None or value != value:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(wrong_type(float, type(value).__name__))
    return float(max(-(2**53), min(2**53, value)))
