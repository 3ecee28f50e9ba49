"""Paths: rows of a factor that together count a run of cells, added and subtracted.

A row that counts the cells a..b is an edge between the boundaries a and b + 1, so a path from one
boundary to another counts the cells between them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from fitplug.numeric import IntArray


class Step(NamedTuple):
    """A row that counts the cells between two boundaries, added or subtracted.

    Attributes:
        start: A boundary, named by the cell after it.
        end: Another boundary.
        row: The row of the factor.
        sign: 1, or -1 if the end is before the start.
    """

    start: int
    end: int
    row: int
    sign: int


Edges: TypeAlias = dict[int, list[Step]]
"""The steps of one row from each boundary to others."""


def build_edges(intervals: IntArray) -> Edges:
    """Build the steps of rows, given by their first and last cells, (rows, 2).

    A path that takes an edge forwards adds its row; backwards, it subtracts the row.
    """
    edges: Edges = {}
    for row, (first, last) in enumerate(intervals.tolist()):
        edges.setdefault(first, []).append(Step(first, last + 1, row, 1))
        edges.setdefault(last + 1, []).append(Step(last + 1, first, row, -1))
    return edges


def search_paths(edges: Edges, first: int, end: int | None = None) -> dict[int, Step]:
    """Find the last step of a shortest path to each boundary, stopping at `end` if given."""
    last: dict[int, Step] = {}
    waiting = deque([first])
    while waiting and end not in last:
        for step in edges.get(waiting.popleft(), ()):
            if step.end != first and step.end not in last:
                last[step.end] = step
                waiting.append(step.end)
    return last


def find_path(edges: Edges, first: int, end: int) -> list[Step] | None:
    """Find the steps of a shortest path: the fewest rows that count first..end - 1."""
    last = search_paths(edges, first, end)
    if end not in last:
        return None
    path = [last[end]]
    while path[-1].start != first:
        path.append(last[path[-1].start])
    return path
