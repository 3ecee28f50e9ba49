"""The kinds of attributes, and how a spec file writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from fitplug.domain.bins import Bins
from fitplug.domain.categories import Categories
from fitplug.domain.dates import Dates
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.integers import Integers
from fitplug.domain.prefix import Prefix
from fitplug.errors import DomainError, suggest_nearest

Attribute: TypeAlias = Categories | Integers | Bins | Dates

KINDS = (Categories, Integers, Bins, Dates)


_SPEC_KEYS = {
    "integers": {"integers"},
    "bins": {"bins"},
    "dates": {"dates", "by"},
    "prefix": {"prefix", "categories", "other"},
    "categories": {"categories", "other"},
    "levels": {"levels", "leaves"},
    "leaves": {"levels", "leaves"},
}
"""What names a kind of attribute, the first that is there, and the keys it may have."""


def attribute_from_spec(value: Any) -> Attribute:
    if isinstance(value, KINDS):
        return value
    if isinstance(value, list):
        return Categories(value)
    if not isinstance(value, Mapping):
        raise DomainError(
            f"{value!r} is no attribute; write a list of categories, "
            "{ integers = [low, high] }, { bins = [...] }, { categories = [...], other = '...' }, "
            "{ prefix = length, categories = [...] }, { dates = [first, last], by = 'year' } "
            "or { levels = [...], leaves = [...] }"
        )
    for kind, allowed in _SPEC_KEYS.items():
        if kind in value:
            for key in value:
                if key not in allowed:
                    raise DomainError(
                        f"unknown key {key!r}; {suggest_nearest(key, sorted(allowed))}"
                    )
            return _made(kind, value)
    key = next(iter(value), "")
    raise DomainError(f"unknown key {key!r}; {suggest_nearest(key, _SPEC_KEYS)}")


def _made(kind: str, value: Mapping[str, Any]) -> Attribute:
    if kind == "integers":
        return Integers(*_ends(kind, value[kind], "numbers, [low, high]"))
    if kind == "dates":
        first, last = _ends(kind, value[kind], "dates, [first, last]")
        return Dates(first, last, by=value.get("by", "day"))
    if kind == "bins":
        return Bins(value["bins"])
    needed = {"prefix": ("categories",), "categories": ()}.get(kind, ("levels", "leaves"))
    for key in needed:
        if key not in value:
            raise DomainError(f"{key!r} is missing; write {_FORMS[kind]}")
    if kind == "prefix":
        return Prefix(value["categories"], value["prefix"], other=value.get("other"))
    if kind == "categories":
        return Categories(value["categories"], other=value.get("other"))
    return Hierarchy(value["levels"], value["leaves"])


_FORMS = {
    "prefix": "{ prefix = length, categories = [...] }",
    "levels": "{ levels = [...], leaves = [...] }",
    "leaves": "{ levels = [...], leaves = [...] }",
}


def _ends(kind: str, ends: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(ends, list) or len(ends) != 2:
        raise DomainError(f"{kind} = {ends!r} must be two {what}")
    return ends[0], ends[1]
