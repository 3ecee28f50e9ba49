"""Job: what every task of a count counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fitplug.counts import Filters
from fitplug.domain import Attribute


@dataclass(frozen=True)
class Job:
    """What to count.

    Attributes:
        attributes: The attributes that are counted, by name.
        joints: The attribute sets of the joint tables, as `choose_joint_tables` orders them.
        weight: The column that says how many records a row stands for, None if each is one.
        filters: What rows must hold to be counted.
    """

    attributes: dict[str, Attribute]
    joints: tuple[tuple[str, ...], ...]
    weight: str | None = None
    filters: Filters = field(default_factory=dict)

    def count_cells(self, joint: Sequence[str]) -> int:
        """Return the number of cells of a joint table."""
        return math.prod(self.attributes[name].size for name in joint)

    @property
    def total_cells(self) -> int:
        """The number of cells of all joint tables."""
        return sum(map(self.count_cells, self.joints))
