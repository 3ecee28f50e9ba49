"""The [[query]] tables of a spec: each table describes a group of queries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.workload import UnboundQueryGroup, queries, ranges, rows
from fitplug_cli.inputs import CROSSWALK_KEY, TARGETS_KEY, build_region_rows, read_targets
from fitplug_cli.spec.errors import is_quoted_number

TARGET_KEYS = ("variance", "std", "moe", "confidence", "simultaneous")
"""The keys that give the target of a group."""


def build_group(
    number: int,
    entry: Mapping[str, Any],
    domain: Domain,
    folder: Path,
    names: Sequence[str],
) -> UnboundQueryGroup:
    """Build the group of queries of a [[query]] table.

    Args:
        number: The number of the table in the spec, from 1, for errors.
        entry: The table.
        domain: The domain.
        folder: The folder that paths are relative to.
        names: The names of all groups of the spec.

    Returns:
        The group.

    Raises:
        WorkloadError: If the table, or a file it names, is wrong.
    """
    name = entry.get("name")
    where = f"[[query]] {number}" if name is None else f"[[query]] {name!r}"
    factors: dict[str, Any] = {}
    for key, value in entry.items():
        if key in ("name", TARGETS_KEY, *TARGET_KEYS):
            continue
        if key not in domain:
            known = ("name", TARGETS_KEY, *TARGET_KEYS, *domain.names)
            raise WorkloadError(
                f"{where}: {key!r} is no attribute of the domain and no key of a query; "
                f"{suggest_nearest(key, known)}"
            )
        try:
            factors[key] = _build_factor(key, value, domain, folder)
        except WorkloadError as error:
            raise WorkloadError(f"{where}: {key}: {error}") from None
    target = {key: entry[key] for key in TARGET_KEYS if key in entry}
    for key, value in target.items():
        if is_quoted_number(value):
            raise WorkloadError(f"{where}: {key} = {value!r} is a text; remove the quotes")
    if TARGETS_KEY in entry:
        file = entry[TARGETS_KEY]
        if target or not isinstance(file, str) or not isinstance(name, str):
            raise WorkloadError(
                f"{where}: targets must be the path of a CSV file, the group must have a name, and "
                f"none of {', '.join(TARGET_KEYS)} goes with it"
            )
        target = read_targets(folder / file, name, factors, domain, names)
    try:
        return queries(factors, name=name, **target)
    except WorkloadError as error:
        raise WorkloadError(name_place(str(error), where)) from None


def name_place(message: str, where: str = "[[query]]") -> str:
    """Name the place of a query as a spec does, in a message that begins with it.

    Args:
        message: A message of the core, which calls the place "query 'NAME'".
        where: What the place is called if it is not known by a name.
    """
    if message.startswith(("query '", 'query "')):
        return f"[[query]] {message.removeprefix('query ')}"
    return re.sub(r"^query( \[[^:]*\])?(?=: )", where, message)


def _build_factor(name: str, value: Any, domain: Domain, folder: Path) -> Any:
    """Turn the value of an attribute's key into what `fitplug.queries` takes."""
    if isinstance(value, Mapping):
        kinds = ("ranges", "rows", CROSSWALK_KEY)
        for key in value:
            if key not in kinds:
                raise WorkloadError(f"unknown key {key!r}; {suggest_nearest(key, kinds)}")
        if len(value) != 1:
            found = " and ".join(value) or "{}"
            raise WorkloadError(f"{found} is no query; write one of {', '.join(kinds)}")
        if "ranges" in value:
            return ranges(value["ranges"])
        if "rows" in value:
            return rows(value["rows"])
        return build_region_rows(name, domain[name], value[CROSSWALK_KEY], folder)
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        raise WorkloadError(
            'a list here is a matrix of numbers; to ask for every value write "identity", and for '
            "sets of values { rows = { LABEL = [VALUE, ...] } }"
        )
    levels, quantities = domain[name].levels, domain[name].quantities
    if value == "mean" and "mean" not in levels:
        raise WorkloadError(
            '"mean" is no query, as a mean is a sum divided by a count: write "sum" for a measure, '
            'and use fitplug estimate "a / b" on the release'
        )
    if value == "sum" and "sum" not in (*levels, *quantities):
        raise WorkloadError(
            '"sum" is asked of a measure only; write one in [domain] as '
            f"{name} = {{ measure = [low, high], unit = ... }}"
        )
    return value  # the name of a kind, or the rows of a matrix
