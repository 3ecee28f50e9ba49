"""Job: what every task counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fitplug.counts import Filters, is_measure
from fitplug.domain import Attribute, get_codec


@dataclass(frozen=True)
class Job:
    """What to count.

    Attributes:
        attributes: The attributes that are counted, by name.
        joints: The attribute sets of the joint tables, as `choose_joint_tables` orders them.
        weight: The column that says how many records a row stands for, None if each is one.
        filters: What rows must hold to be counted.
        outside: The attributes by which records in no table are counted; empty if they are not.
    """

    attributes: dict[str, Attribute]
    joints: tuple[tuple[str, ...], ...]
    weight: str | None = None
    filters: Filters = field(default_factory=dict)
    outside: tuple[str, ...] = ()

    def count_cells(self, joint: Sequence[str]) -> int:
        """Return the number of cells of a joint table."""
        return math.prod(self.attributes[name].size for name in joint)

    def count_shares(self, joint: Sequence[str]) -> int:
        """Return the number of shares that a joint table counts of each record."""
        return math.prod(get_codec(self.attributes[name]).shares for name in joint)

    def find_strides(self, joint: Sequence[str]) -> dict[str, int]:
        """Return by how much the cell of a joint table grows with each of its attributes."""
        sizes = [self.attributes[name].size for name in joint]
        return {name: math.prod(sizes[i + 1 :]) for i, name in enumerate(joint)}

    @property
    def measures(self) -> tuple[str, ...]:
        """The attributes that are measures, whose codes are no cells."""
        return tuple(name for name, one in self.attributes.items() if is_measure(one))

    @property
    def shares(self) -> int:
        """The most shares that a joint table counts of each record: 1 without measures."""
        return max(map(self.count_shares, self.joints), default=1)

    @property
    def total_cells(self) -> int:
        """The number of cells of all joint tables."""
        return sum(map(self.count_cells, self.joints))
