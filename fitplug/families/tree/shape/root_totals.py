"""Root totals: the public sums of the counts at a tree's root, by class of dense cells.

Where neighbours replace a record, the sums of some classes of dense cells over all leaves are
public. One class of each such sum is its reference. It need not be measured, as it is the sum minus
its other classes. So let G have a row for each class and a column for each measured class. The
classes' counts are x = G x' + the public sums at their references, and a query w of the classes is
w G over the measured classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitplug.numeric import IntArray, frozen_property
from fitplug.workload import CellClasses


@dataclass(frozen=True, eq=False)
class RootTotals:
    """The public sums of the classes of a block at the root.

    Attributes:
        of_class: The public sum to which each class belongs, shape (r,); -1 for none.
        references: The reference class of each public sum, its first, shape (R,).
    """

    of_class: IntArray
    references: IntArray

    @property
    def count(self) -> int:
        """R, the number of public sums."""
        return len(self.references)

    @frozen_property
    def measured(self) -> IntArray:
        """The measured classes, ascending, shape (n,)."""
        is_measured = np.ones(len(self.of_class), dtype=bool)
        is_measured[self.references] = False
        return np.flatnonzero(is_measured)

    @frozen_property
    def reduction(self) -> IntArray:
        """G, shape (r, n)."""
        G = np.zeros((len(self.of_class), len(self.measured)), dtype=np.int64)
        at = np.arange(len(self.measured))
        G[self.measured, at] = 1
        sums = self.of_class[self.measured]
        G[self.references[sums[sums >= 0]], at[sums >= 0]] = -1
        return G


def find_no_totals(classes: int) -> RootTotals:
    """Make root totals without public sums."""
    return RootTotals(np.full(classes, -1), np.zeros(0, dtype=np.int64))


def find_root_totals(classes: CellClasses, regions: IntArray) -> RootTotals:
    """Find the sums of classes that the totals of regions of dense cells make public.

    A sum of classes is public if it consists of complete regions: it is a component of the graph
    that joins each class with the regions of its cells, and every cell of these regions is in a
    class.

    Args:
        classes: The classes of the dense cells.
        regions: The region of each dense cell, shape (D,).

    Returns:
        The public sums.
    """
    label = np.arange(int(regions.max()) + 1)  # the least region joined with each region
    of_cell = classes.of_cell
    while True:
        least = np.full(classes.size, len(label))
        counted = of_cell >= 0
        np.minimum.at(least, of_cell[counted], label[regions[counted]])
        joined = label.copy()
        np.minimum.at(joined, regions[counted], least[of_cell[counted]])
        if np.array_equal(joined, label):
            break
        label = joined
    is_complete = np.ones(len(label), dtype=bool)
    is_complete[label[regions[~counted]]] = False
    complete = np.where(is_complete[least], least, -1)
    different, first, numbers = np.unique(complete, return_index=True, return_inverse=True)
    shift = int(len(different) > 0 and different[0] < 0)
    return RootTotals(numbers.ravel() - shift, first[shift:])
