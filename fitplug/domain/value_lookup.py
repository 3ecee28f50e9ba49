"""Value lookups: the cells that a value names, as people and files write it.

A value is one of the attribute's own values, or the text that tables show for it. In a tree it may
also be a node of any level, which names all leaves in it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fitplug.domain.attribute import Attribute, get_codec


class ValueLookup:
    """Finds the cells that values of one attribute name, with a cached index of a tree's nodes.

    Args:
        attribute: The attribute that has the values.
    """

    def __init__(self, attribute: Attribute) -> None:
        self.codec = get_codec(attribute)

    @cached_property
    def nodes(self) -> dict[str, list[tuple[int, int]]]:
        """First and last cell of the nodes of a tree with each label, the coarsest node first.
        Attributes that are not trees have no nodes.
        """
        nodes: dict[str, list[tuple[int, int]]] = {}
        for level in self.codec.levels:
            intervals = self.codec.intervals(level).tolist()
            for label, (first, last) in zip(self.codec.labels_at(level), intervals, strict=True):
                nodes.setdefault(label, []).append((first, last))
        return nodes

    def find_end(self, text: str) -> int | None:
        """Find the cell that the text of a comparison names.

        Args:
            text: A value as written, such as the 18 of `age < 18`; of bins, an edge.

        Returns:
            The cell, or the cell that starts at the edge; None if there is no such value.
        """
        return self.codec.find_end(self.codec.parse(text))

    def find(self, value: Any) -> set[tuple[int, int]]:
        """Find the cells that a value or its label names.

        Args:
            value: A value, or text: bins are named by their labels, not by edges.

        Returns:
            Pairs of the first and the last named cell: none if the value is unknown, several if
            nodes of different levels have the same label.
        """
        if self.codec.levels:
            text = str(value) if type(value) in (int, str) else ""
            return set(self.nodes.get(text, ()))
        cell = self.codec.find_cell(value)
        return set() if cell is None else {(cell, cell)}

    def describe_unknown(self, value: Any, name: str, *, end: bool = False) -> str:
        """Say that an attribute has no such value, and which values it has.

        Args:
            value: The value that was not found.
            name: The name of the attribute.
            end: Whether the value stood in a comparison, where bins are named by their edges.
        """
        return f"{name} has no value {value!r}. {self.codec.suggest(value, end=end)}"
