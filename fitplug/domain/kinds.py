"""The kinds of attributes, and how a spec file tells them from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fitplug.domain.attribute import Attribute
from fitplug.domain.bins import Bins
from fitplug.domain.categories import Categories
from fitplug.domain.dates import Dates
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.integers import Integers
from fitplug.domain.measure import Measure
from fitplug.domain.prefix import Prefix
from fitplug.errors import DomainError, suggest_nearest

KINDS: tuple[type[Attribute], ...] = (
    Integers,
    Bins,
    Dates,
    Prefix,  # before Categories, as its tables have the key `categories`, too
    Categories,
    Hierarchy,
    Measure,
)
"""The kinds that a spec file may describe. The first whose name is among the keys is taken."""


def make_attribute(given: Any) -> Attribute:
    """Make an attribute from what a spec file says of it.

    Args:
        given: A list of categories, a table of one of the KINDS, or an attribute, which is kept.

    Raises:
        DomainError: If it describes no attribute.
    """
    if isinstance(given, Attribute):
        return given
    if isinstance(given, list):
        return Categories(given)
    if not isinstance(given, Mapping):
        forms = [kind.spec_form.example for kind in KINDS]
        raise DomainError(
            f"{given!r} is no attribute; write a list of categories, "
            f"{', '.join(forms[:-1])} or {forms[-1]}"
        )
    for kind in KINDS:
        if any(name in given for name in kind.spec_form.names):
            kind.spec_form.check(given)
            return kind.from_spec(given)
    key = next(iter(given), "")
    names = [name for kind in KINDS for name in kind.spec_form.names]
    raise DomainError(f"unknown key {key!r}; {suggest_nearest(key, names)}")
