"""Arrays by group: a mapping from the names of groups to arrays that are made when they are read.

A workload may have a million groups, of which a user reads a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fitplug.numeric import AnyArray
from fitplug.workload.workload import Workload


class ArraysByGroup(Mapping[str, AnyArray]):
    """An array of each group, by name.

    Args:
        workload: The workload.
        read: Returns the array of the group at a position, read-only.
    """

    def __init__(self, workload: Workload, read: Callable[[int], AnyArray]) -> None:
        self._workload, self._read = workload, read

    def __getitem__(self, name: str) -> AnyArray:
        return self._read(self._workload.position(name))

    def __contains__(self, name: object) -> bool:
        return name in self._workload.positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.names)

    def __len__(self) -> int:
        return len(self._workload.names)

    def __repr__(self) -> str:
        return f"<arrays of {len(self)} groups>"
