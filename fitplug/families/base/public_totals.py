"""Public totals: the part of a release that gets no noise, where neighbours replace a record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fitplug.families.base.integers import SATURATION, ExactTotals, pack_integers, unpack_integers
from fitplug.families.base.pieces import Slab, sum_margin
from fitplug.families.base.structure import Structure
from fitplug.numeric import AnyArray, IntArray


class PublicTotals:
    """The totals that a unit of privacy makes public, from the slabs of one table.

    Args:
        structure: A structure that has public totals.
        slabs: The slabs of all tables.

    Attributes:
        names: The attributes of the totals, in the domain's order.
        slabs: The numbers of the slabs that they are summed from: of the smallest table that has
            their attributes.
    """

    def __init__(self, structure: Structure, slabs: Sequence[Slab]) -> None:
        assert structure.public_attributes is not None
        self.names = structure.public_attributes
        shape_of = structure.workload.domain.shape_of
        self._shape = shape_of(self.names)
        tables = {slab.names for slab in slabs if {*slab.names}.issuperset(self.names)}
        smallest = min(tables, key=lambda names: (math.prod(shape_of(names)), names))
        self.slabs = [number for number, slab in enumerate(slabs) if slab.names == smallest]

    def split_counts(self, slab: Slab, counts: AnyArray) -> IntArray:
        """Sum a slab's counts to the attributes of the totals, and pack them."""
        return pack_integers([sum_margin(counts, slab.names, self.names)])

    def add_pieces(self, slabs: Sequence[Slab], pieces: Mapping[int, IntArray]) -> IntArray:
        """Add up the pieces of slabs, by number: the totals, clamped, shape (public_size,)."""
        totals = ExactTotals([self._shape])
        for number, piece in pieces.items():
            own, values = slabs[number], unpack_integers(piece)
            totals.make_room(values)
            range_of = slice(own.start, own.stop)
            axes = (range_of if name == own.attribute else slice(None) for name in self.names)
            target = totals.totals[0][(*axes, ...)]
            target += values.reshape(target.shape)
        clamped = np.clip(totals.totals[0].ravel(), -SATURATION, SATURATION)
        return np.asarray(clamped, dtype=np.int64)
