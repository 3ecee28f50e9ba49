"""Members: which cells of an attribute a value names, as people and files write it.

A value is one of the attribute's own, or the text that tables show for it; of a hierarchy also a
node of any level, which names all the leaves in it.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from fitplug.domain.bins import Bins
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.integers import Integers
from fitplug.domain.kinds import Attribute
from fitplug.errors import quote, suggest_nearest


class Members:
    """The cells that values of one attribute name. What it looks up is kept."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute

    @cached_property
    def own(self) -> dict[str, int]:
        """The cells by the labels that tables show."""
        return {label: cell for cell, label in enumerate(self.attribute.labels)}

    @cached_property
    def nodes(self) -> dict[str, list[tuple[int, int]]]:
        """First and last cell of the nodes of a hierarchy with each label, the coarsest first."""
        found: dict[str, list[tuple[int, int]]] = {}
        if isinstance(self.attribute, Hierarchy):
            for level in self.attribute.levels:
                ends = self.attribute.intervals(level).tolist()
                labels = self.attribute.labels_at(level)
                for label, (first, last) in zip(labels, ends, strict=True):
                    found.setdefault(label, []).append((first, last))
        return found

    def position(self, text: str) -> int | None:
        """The cell of a value as written; of bins, the one that starts at this edge."""
        attribute = self.attribute
        if isinstance(attribute, Integers):
            return attribute.position(int(text)) if re.fullmatch(r"-?\d{1,20}", text) else None
        if isinstance(attribute, Bins):
            try:
                return attribute.position(float(text))
            except ValueError:
                return None
        return self._cell(text)

    def _cell(self, text: str) -> int | None:
        """The cell with a label; of booleans also as other programs write them, true and false."""
        at = self.own.get(text)
        return self.own.get(text.title()) if at is None and self._boolean else at

    @cached_property
    def _boolean(self) -> bool:
        return getattr(self.attribute, "value_type", None) is bool

    def find(self, value: Any) -> set[tuple[int, int]]:
        """First and last cell of all that a value or its label names: none if it is unknown, and
        several if nodes of different levels have the same label. Bins are named by their labels.
        """
        attribute = self.attribute
        if isinstance(attribute, Hierarchy):
            text = str(value) if type(value) in (int, str) else ""
            return set(self.nodes.get(text, ()))
        if isinstance(value, str) and not isinstance(attribute, Integers):
            at = self._cell(value)
        elif isinstance(value, str):
            at = self.position(value)
        else:
            at = None if isinstance(attribute, Bins) else attribute.position(value)
        return set() if at is None else {(at, at)}

    def unknown(self, value: Any, name: str, *, edges: bool = False) -> str:
        """Why a value of the attribute `name` cannot be found; for bins, edges or labels."""
        attribute = self.attribute
        if isinstance(attribute, Integers):
            return f"{value!r} is no value of {name}; they are {attribute.low} to {attribute.high}"
        labels = list(self.nodes if isinstance(attribute, Hierarchy) else self.own)
        if isinstance(attribute, Bins) and edges:
            labels = [f"{edge:g}" for edge in attribute.edges]
        hint = suggest_nearest(str(value), labels)
        if hint.startswith("known") and len(labels) > 8:
            hint = f"known: {', '.join(map(quote, labels[:8]))} and {len(labels) - 8} more"
        return f"{value!r} is no value of {name}; {hint}"
