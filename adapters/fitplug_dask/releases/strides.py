"""Strides: which of the strategy's answers a part has, described in few numbers."""

from __future__ import annotations

import numpy as np

from fitplug.numeric import IntArray
from fitplug.release import Stride


def list_strides(place: slice | IntArray) -> tuple[Stride, ...]:
    """Describe the place of a part as strides, which have the answers in the part's order.

    Args:
        place: The numbers of the answers, as `PartedStrategy.place` gives them.
    """
    if isinstance(place, slice):
        return (Stride(place.start, (place.stop - place.start,), (1,)),)
    if not place.size:
        return ()
    breaks = np.flatnonzero(np.diff(place) != 1) + 1
    starts = place[np.append(0, breaks)]
    lengths = np.diff(np.concatenate([[0], breaks, [place.size]]))
    # Runs of one length whose starts are evenly spaced make one stride of two axes.
    strides, first = [], 0
    while first < len(starts):
        last = _find_last(starts, lengths, first)
        step = int(starts[first + 1] - starts[first]) if last > first + 1 else 1
        shape = (last - first, int(lengths[first]))
        strides.append(Stride(int(starts[first]), shape, (step, 1)))
        first = last
    return tuple(strides)


def _find_last(starts: IntArray, lengths: IntArray, first: int) -> int:
    """Find where runs end that have the length of the first one and are evenly spaced."""
    if first + 1 == len(starts):
        return first + 1
    step = starts[first + 1] - starts[first]
    fits = (np.diff(starts[first:]) == step) & (lengths[first + 1 :] == lengths[first])
    misfits = np.flatnonzero(~fits)
    return first + 1 + (int(misfits[0]) if misfits.size else len(fits))
