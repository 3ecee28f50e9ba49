"""Domains: which attributes there are and which cells each has. Public, never read from rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fitplug.domain.attribute import Category
from fitplug.domain.categories import Categories
from fitplug.domain.kinds import KINDS, Attribute, attribute_from_spec
from fitplug.domain.notebook import domain_html
from fitplug.errors import DomainError, suggest_nearest


@dataclass(frozen=True, init=False)
class Domain:
    """Named attributes in a fixed order; its cells are all combinations, in C order.

    Raises DomainError for anything that leaves a value without one well-defined cell.
    """

    attributes: tuple[tuple[str, Attribute], ...]

    def __init__(self, attributes: Mapping[str, Attribute | Sequence[Category]]) -> None:
        if not isinstance(attributes, Mapping):
            raise DomainError(
                f"a domain is a mapping of names to attributes, not {type(attributes).__name__}"
            )
        if not attributes:
            raise DomainError("the domain is empty; name at least one attribute")
        pairs: list[tuple[str, Attribute]] = []
        for name, given in attributes.items():
            if not isinstance(name, str) or not name:
                raise DomainError(f"attribute name {name!r} must be a non-empty string")
            try:
                attribute = given if isinstance(given, KINDS) else Categories(given)
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
            pairs.append((name, attribute))
        object.__setattr__(self, "attributes", tuple(pairs))

    def _repr_html_(self) -> str:
        return domain_html(self.attributes, self.size)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.attributes)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(attribute.size for _, attribute in self.attributes)

    @property
    def size(self) -> int:
        """Number of cells, a Python int (it may exceed 10**100)."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._position

    def __getitem__(self, name: str) -> Attribute:
        if name not in self._position:
            raise DomainError(
                f"the domain has no attribute {name!r}; {suggest_nearest(name, self.names)}"
            )
        return self.attributes[self._position[name]][1]

    def ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """`names` in the domain's own order."""
        for name in names:
            self[name]
        return tuple(sorted(set(names), key=self._position.__getitem__))

    def shape_of(self, names: Sequence[str]) -> tuple[int, ...]:
        """Sizes of the attributes named, in the order named."""
        return tuple(self[name].size for name in names)

    def spec(self) -> dict[str, Any]:
        """As the [domain] table of a spec file writes it; `from_spec` reads it back."""
        return {name: attribute.spec() for name, attribute in self.attributes}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Domain:
        """The domain that a spec file's [domain] table describes; entries may be attributes that
        are made already. Raises DomainError.
        """
        attributes: dict[str, Attribute] = {}
        for name, value in spec.items():
            try:
                attributes[name] = attribute_from_spec(value)
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
        return cls(attributes)
