"""Domains: named attributes with their cells, and descriptions of them for people.

Domains are public. They are never read from records.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from fitplug.display import MOST_GROUPS, make_section, make_table
from fitplug.domain.attribute import CODECS, Attribute, Category, Codec, get_codec
from fitplug.domain.categories import Categories
from fitplug.domain.encoder import OUTSIDE
from fitplug.errors import DomainError, suggest_nearest

_KINDS_GROUP = "fitplug.attributes"
"""The group of entry points in which other packages name the modules of their attribute kinds."""


@dataclass(frozen=True, init=False, repr=False)
class Domain:
    """Named attributes in a fixed order.

    The cells of a domain are all combinations of the attributes' cells. In their order, the cell of
    the last attribute changes fastest.

        fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 115)})

    A domain is public: list the values that may occur, and never look them up in the rows. If a row
    has a value outside the domain in an attribute that the workload uses, no table counts the row.

    Args:
        attributes: The attributes by name. A plain list of values means `fp.Categories(values)`.
        value_labels: Readable labels of values, such as `{"sex": {"1": "Male", "2": "Female"}}`.
            The values are written as text; those of a tree may be nodes of any level. Tables get a
            column of labels. The noise and its cost do not depend on labels, and domains that
            differ only in labels are equal.

    Raises:
        DomainError: If there is no attribute, an attribute is invalid, or a label is for an unknown
            value.

    Attributes:
        attributes: The pairs (name, attribute), in order.
        value_labels: The labels of each attribute that has labels.
    """

    attributes: tuple[tuple[str, Attribute], ...]
    value_labels: Mapping[str, Mapping[str, str]] = field(compare=False)

    def __init__(
        self,
        attributes: Mapping[str, Attribute | Sequence[Category]],
        value_labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        if not isinstance(attributes, Mapping):
            raise DomainError(
                "the attributes of a domain must be a mapping of names, not "
                f"{type(attributes).__name__}"
            )
        if not attributes:
            raise DomainError("the domain is empty. Name at least one attribute.")
        pairs: list[tuple[str, Attribute]] = []
        for name, given in attributes.items():
            if not isinstance(name, str) or not name:
                raise DomainError(f"attribute name {name!r} must be a non-empty string")
            try:
                attribute = given if isinstance(given, Attribute) else Categories(given)
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
            pairs.append((name, attribute))
        object.__setattr__(self, "attributes", tuple(pairs))
        labels = {name: dict(given) for name, given in (value_labels or {}).items() if given}
        object.__setattr__(self, "value_labels", labels)
        for name in labels:
            self._check_labels(name)

    def __repr__(self) -> str:
        return (
            f"Domain({', '.join(f'{name}: {one.size:,} cells' for name, one in self.attributes)})"
        )

    def _check_labels(self, name: str) -> None:
        """Raise DomainError unless each label of an attribute is a text and belongs to a value."""
        column = name_label_column(name)
        if column in self:
            raise DomainError(
                f"attribute {column!r} has the same name as the column for the labels of "
                f"{name!r}. Rename the attribute."
            )
        unknown = set(self.value_labels[name])
        for kind in get_codec(self[name]).levels or ("identity",):
            unknown -= self._list_labelled_values(name, kind)
        if unknown:
            raise DomainError(
                f"attribute {name!r}: the labels name an unknown value {min(map(repr, unknown))}. "
                "Remove this label."
            )
        for label in self.value_labels[name].values():
            if not isinstance(label, str) or not label.strip():
                raise DomainError(f"attribute {name!r}: each label must be a string and not blank")

    def _list_labelled_values(self, name: str, kind: str) -> set[str]:
        attribute = get_codec(self[name])
        named = attribute.named_at(kind) if attribute.levels else attribute.column_values()
        return self.value_labels[name].keys() & set(map(str, named))

    @cached_property
    def _labelled_kinds(self) -> frozenset[tuple[str, str]]:
        """Pairs of an attribute and a kind of query whose rows have labels."""
        kinds = {
            (name, kind)
            for name in self.value_labels
            for kind in get_codec(self[name]).levels or ("identity",)
            if self._list_labelled_values(name, kind)
        }
        finest = {
            (name, "identity") for name, kind in kinds if kind in get_codec(self[name]).levels[-1:]
        }
        return frozenset(kinds | finest)

    def _repr_html_(self) -> str:
        return render_domain(self.attributes, self.size)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(name for name, _ in self.attributes)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each attribute, in order."""
        return tuple(attribute.size for _, attribute in self.attributes)

    @property
    def size(self) -> int:
        """Number of cells: a Python int, which may exceed 10**100."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._index

    def __getitem__(self, name: str) -> Attribute:
        if name not in self._index:
            raise DomainError(
                f"the domain has no attribute {name!r}. {suggest_nearest(name, self.names)}"
            )
        return self.attributes[self._index[name]][1]

    def ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """Sort names of attributes into the domain's order.

        Args:
            names: Names of attributes; a repeated name is returned once.

        Raises:
            DomainError: If an attribute is unknown.

        Example:
            >>> domain.ordered(["age", "sex"])
            ('sex', 'age')
        """
        for name in names:
            self[name]
        return tuple(sorted(set(names), key=self._index.__getitem__))

    def spec(self) -> dict[str, Any]:
        """Return the domain in the form of a spec file's [domain] table, for `from_spec`.

        Example:
            >>> domain.spec()
            {'sex': ['1', '2'], 'age': {'integers': [0, 3]}}
        """
        return {name: get_codec(attribute).spec() for name, attribute in self.attributes}

    @classmethod
    def from_spec(
        cls,
        spec: Mapping[str, Any],
        value_labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Domain:
        """Make a domain from the [domain] table of a spec file.

        Args:
            spec: For each name, an attribute or its description in the table. Categories may be
                given as a mapping from values to labels.
            value_labels: More labels of values; see `Domain`.

        Raises:
            DomainError: If an entry does not describe an attribute.

        Example:
            >>> fp.Domain.from_spec({"sex": ["1", "2"], "age": {"integers": [0, 3]}}) == domain
            True
        """
        attributes: dict[str, Attribute] = {}
        labels = dict(value_labels or {})
        for name, value in spec.items():
            try:
                if isinstance(value, Mapping) and isinstance(value.get("categories"), Mapping):
                    labels[name] = value["categories"]
                    value = {**value, "categories": list(labels[name])}
                attributes[name] = make_attribute(value)
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
        return cls(attributes, labels)


def label_values(domain: Domain, name: str, kind: str, values: Sequence[Any]) -> list[str] | None:
    """Look up the labels of values that stand for the rows of a query.

    Args:
        domain: The domain.
        name: The name of an attribute.
        kind: The kind of the query on it: "identity", or a level of a tree.
        values: Values or nodes, shape (n,).

    Returns:
        The labels (n,), with the value itself if it has none; None if no row of such a query has a
        label.
    """
    if (name, kind) not in domain._labelled_kinds:
        return None
    labels = domain.value_labels[name]
    return [labels.get(text, text) for text in map(str, values)]


def get_shape(domain: Domain, names: Iterable[str]) -> tuple[int, ...]:
    """Look up the number of cells of each attribute, in the order of `names`.

    Raises:
        DomainError: An attribute is unknown.
    """
    return tuple(domain[name].size for name in names)


def count_shares(domain: Domain, names: Iterable[str]) -> int:
    """Count the shares per row in a table over these attributes: the product of the `shares` of the
    measures among them, or 1 without measures.
    """
    return math.prod(get_codec(domain[name]).shares for name in names)


def list_names_without_other(domain: Domain, names: Collection[str]) -> tuple[str, ...]:
    """List the attributes without a cell for other values and null, in the domain's order.

    A row with such a value is left out of the tables that use the attribute.
    """
    return tuple(
        n for n in domain.names if n in names and get_codec(domain[n]).null_code == OUTSIDE
    )


def list_measures(domain: Domain, names: Iterable[str]) -> list[str]:
    """List the measures among some attributes, in the order of `names`."""
    return [name for name in names if get_codec(domain[name]).quantities]


def name_label_column(name: str) -> str:
    """Return the name of the column with the labels of an attribute's values."""
    return f"{name}_label"


def make_attribute(given: Any) -> Attribute:
    """Make an attribute from its description in a spec file.

    Args:
        given: A list of categories, a table in the `spec_form` of a kind, or an attribute, which is
            returned as it is.

    Raises:
        DomainError: If it does not describe an attribute.
    """
    if isinstance(given, Attribute):
        return given
    if isinstance(given, list):
        return Categories(given)
    if not isinstance(given, Mapping):
        raise DomainError(
            f"{given!r} must be a list of categories, or a table such as {{ integers = [0, 99] }}"
        )
    codec = _find_codec(given)
    if codec is None:
        for module in entry_points(group=_KINDS_GROUP):
            module.load()
        codec = _find_codec(given)
    if codec is not None:
        codec.spec_form.check(given)
        return codec.from_spec(given)
    key = next(iter(given), "")
    names = [name for codec in CODECS.values() for name in codec.spec_form.names]
    raise DomainError(f"unknown key {key!r}. {suggest_nearest(key, names)}")


def _find_codec(spec: Mapping[str, Any]) -> type[Codec] | None:
    """Find the imported kind of attribute that a table of a spec file describes."""
    for codec in reversed(CODECS.values()):  # a table of CodePrefix also has the key `categories`
        if any(name in spec for name in codec.spec_form.names):
            return codec
    return None


def render_domain(attributes: Sequence[tuple[str, Attribute]], size: int) -> str:
    """Write a table of the attributes, with the number of cells of each."""
    rows = [
        (name, type(attribute).__name__, f"{attribute.size:,}")
        for name, attribute in attributes[: MOST_GROUPS + 1]
    ]
    cells = f"{size:,}" if size < 10**15 else f"about 10^{len(str(size)) - 1}"
    headings = ("attribute", "kind", "cells")
    listed = make_table("attributes", headings, rows, MOST_GROUPS, len(attributes))
    return make_section("Domain", [f"{cells} cells"], listed)


_NOT_COVERED = (
    "The bounds are public; fitplug did not read them from the rows. Bounds and rounding change "
    "sums and means, and no margin of error covers that change."
)


def describe_measures(domain: Domain, names: Collection[str]) -> tuple[str, ...]:
    """Describe in sentences how values of measures are clamped and rounded.

    Args:
        domain: The domain.
        names: Names of attributes, of which some may be measures.

    Returns:
        A sentence for each measure, and one on what no margin of error covers; empty without
        measures.
    """
    measures = [name for name in domain.ordered(tuple(names)) if get_codec(domain[name]).rule]
    if not measures:
        return ()
    return *(f"Measure {name}: {get_codec(domain[name]).rule}." for name in measures), _NOT_COVERED


_MOST_NAMED = 4


def suggest_fewer_cells(domain: Domain, names: Sequence[str]) -> str:
    """Suggest how to get fewer cells, such as "coarser bins of AGE, or a tree GEOID that ends at
    county".

    Args:
        domain: The domain of the attributes.
        names: Attributes that together have too many cells. Only the largest few are named.

    Returns:
        A list of noun phrases. Attributes with the same remedy share one.
    """
    largest = sorted(names, key=lambda name: -domain[name].size)[:_MOST_NAMED]
    # Ordered attributes come first, because merging adjacent values loses the least detail.
    by_remedy: dict[str, list[str]] = {}
    for name in sorted(largest, key=lambda name: not get_codec(domain[name]).is_ordered):
        by_remedy.setdefault(get_codec(domain[name]).remedy("them"), []).append(name)
    phrases = [get_codec(domain[same[0]]).remedy(", ".join(same)) for same in by_remedy.values()]
    return ", or ".join(phrases) or "fewer attributes"
