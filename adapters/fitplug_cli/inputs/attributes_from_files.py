"""Attributes whose values come from files of codes.

A codebook or list of leaves describes a tree, a column lists categories, and a crosswalk adds
levels to a tree:

    GEOID = { levels = { state = 2, county = 5, tract = 11 }, codebook = "tracts.csv" }
    PLACE = { levels = ["region", "city"], codebook = "places.parquet" }
    BLOCK = { levels = { state = 2, block = 15 }, leaves = "blocks.txt" }
    COUNTY = { codebook = "counties.csv", column = "FIPS", label = "NAME" }
    COUNTY = { codebook = "counties.csv", column = "FIPS", crosswalk = { region = "regions.csv" } }

A codebook has one line for each leaf or value; other columns are ignored. For a tree, `label` may
map levels to their columns of labels. The files are public: a file that lists a code twice is
refused, because it may be data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.domain import Attribute, Domain, Hierarchy, get_codec
from fitplug.errors import DomainError, suggest_nearest
from fitplug_cli.inputs.code_files import Code, CodeFile, read_code_list
from fitplug_cli.inputs.codebooks import (
    CODEBOOK_KEY,
    COLUMN_KEY,
    LABEL_KEY,
    Labels,
    fill_in_entry,
)
from fitplug_cli.inputs.crosswalks import CROSSWALK_KEY, add_levels_of_regions

_LIST_KEYS = ("leaves", "categories")

Locate: TypeAlias = Callable[[int], str]
"""A function that locates the i-th code in a file."""


def read_domain(table: Mapping[str, Any], folder: Path) -> Domain:
    """Make the domain of a spec, whose entries may name files.

    Args:
        table: The [domain] table of a spec.
        folder: The folder that the paths of files are relative to.

    Raises:
        DomainError: If an entry describes no attribute, or its file cannot be read or does not
            describe it.
    """
    filled, labels = {}, {}
    for name, value in table.items():
        try:
            if _names_code_file(value):
                filled[name], labels[name] = _build_attribute(name, value, folder)
            else:
                filled[name], labels[name] = fill_in_entry(name, value, folder)
        except DomainError as error:
            raise DomainError(f"attribute {name!r}: {error}") from None
    return Domain.from_spec(filled, labels)


def _names_code_file(value: Any) -> bool:
    """Return whether an entry of [domain] names a file of codes."""
    if not isinstance(value, Mapping):
        return False
    has_list = any(isinstance(value.get(key), str) for key in _LIST_KEYS)
    has_tree = CODEBOOK_KEY in value and "levels" in value
    return has_list or has_tree or COLUMN_KEY in value or CROSSWALK_KEY in value


def _build_attribute(name: str, value: Mapping[str, Any], folder: Path) -> tuple[Attribute, Labels]:
    """Build the attribute that an entry of [domain] describes by files of codes, and its labels."""
    given = {key: entry for key, entry in value.items() if key != CROSSWALK_KEY}
    attribute, labels = _build_without_regions(name, given, folder)
    if CROSSWALK_KEY in value:
        attribute = add_levels_of_regions(name, attribute, value[CROSSWALK_KEY], folder)
    return attribute, labels


def _build_without_regions(
    name: str, given: Mapping[str, Any], folder: Path
) -> tuple[Attribute, Labels]:
    """Build the attribute of an entry that has no crosswalk, and its labels."""
    if "levels" in given and (CODEBOOK_KEY in given or isinstance(given.get("leaves"), str)):
        return _build_tree(name, given, folder)
    listed = [key for key in _LIST_KEYS if isinstance(given.get(key), str)]
    if listed:
        path = folder / given[listed[0]]
        texts, lines = read_code_list(path, "list of codes", DomainError)
        _check_codes(texts, lambda i: f"{path}: line {lines[i]}", given.get("prefix"))
        return _build_from_entry(name, dict(given) | {listed[0]: texts}), {}
    if COLUMN_KEY in given:
        _check_keys(given, (CODEBOOK_KEY, COLUMN_KEY, LABEL_KEY, "other"))
        file = _open_codebook(given, folder)
        codes = file.read_column(_get_text(given, COLUMN_KEY))
        _check_codes(codes, file.locate)
        other = {"other": given["other"]} if "other" in given else {}
        labels = {} if LABEL_KEY not in given else _read_labels(file, given[LABEL_KEY], codes)
        return _build_from_entry(name, {"categories": codes} | other), labels
    entry, labels = fill_in_entry(name, given, folder)
    return _build_from_entry(name, entry), labels


def _build_from_entry(name: str, spec: Any) -> Attribute:
    """Build an attribute from an entry without files; errors do not repeat the name."""
    try:
        return Domain.from_spec({name: spec})[name]
    except DomainError as error:
        raise DomainError(str(error).removeprefix(f"attribute {name!r}: ")) from None


def _read_labels(file: CodeFile, column: Any, values: Sequence[Any]) -> Labels:
    """Read the labels of values (n,), one on each row; rows with one value must have one label."""
    if not isinstance(column, str):
        raise DomainError(f"{LABEL_KEY!r} must be the name of a column")
    labels: Labels = {}
    for i, (value, given) in enumerate(zip(values, file.read_labels(column), strict=True)):
        label = given.strip() if isinstance(given, str) else ""
        if label and labels.setdefault(str(value), label) != label:
            raise DomainError(
                f"{file.locate(i)}: the code has a different label on an earlier line. Use one "
                "label."
            )
    return labels


def _label_tree(tree: Hierarchy, given: Any, file: CodeFile, codes: Sequence[Code]) -> Labels:
    """Read the labels of a tree's nodes.

    Args:
        tree: The tree.
        given: The column of the leaves' labels; or, for each level with labels, its column.
        file: The codebook.
        codes: The leaf of each row of the file.
    """
    by_level = given if isinstance(given, Mapping) else {tree.levels[-1]: given}
    codec = get_codec(tree)
    cells = codec.codes(np.array(codes, dtype=object))
    labels: Labels = {}
    for level, column in by_level.items():
        nodes = np.searchsorted(codec.intervals(level)[:, 0], cells, side="right") - 1
        named = codec.named_at(level)
        read = _read_labels(file, column, [named[node] for node in nodes])
        if any(labels.setdefault(node, label) != label for node, label in read.items()):
            raise DomainError(
                f"a code of level {level!r} has a different label on another level. Remove one of "
                f"the two levels from {LABEL_KEY!r}."
            )
    return labels


def _build_tree(name: str, given: Mapping[str, Any], folder: Path) -> tuple[Hierarchy, Labels]:
    """Build a tree from a codebook, or from a list of leaves, and its labels."""
    _check_keys(given, ("levels", CODEBOOK_KEY, COLUMN_KEY, LABEL_KEY, "leaves", "other"))
    for key in (CODEBOOK_KEY, COLUMN_KEY, LABEL_KEY):
        if key in given and "leaves" in given:
            raise DomainError(f"{key!r} and 'leaves' cannot be combined. Remove one of them.")
    levels = given["levels"]
    _check_levels(levels)
    codes: list[Any]
    ancestors: list[list[Code]] = []
    if "leaves" in given:
        path = folder / given["leaves"]
        codes, lines = read_code_list(path, "list of leaves", DomainError)
        locate: Locate = lambda i: f"{path}: line {lines[i]}"  # noqa: E731
        if not isinstance(levels, Mapping) and len(levels) > 1:
            raise DomainError(
                f"{path}: for a list of leaves, 'levels' must give the length of each level's "
                "prefix, such as { state = 2, county = 5 }"
            )
        _check_codes(codes, locate)
    else:
        file = _open_codebook(given, folder)
        locate = file.locate
        codes = file.read_column(_find_leaf_column(name, given, file))
        _check_codes(codes, locate)
        if not isinstance(levels, Mapping):
            ancestors = [file.read_column(level) for level in levels[:-1]]
            for labels in ancestors:
                _check_sizes(labels, locate)
    if isinstance(levels, Mapping):
        _check_lengths(levels, codes, locate)
    other = given.get("other")
    try:
        if isinstance(levels, Mapping):
            tree = Hierarchy(levels, codes, other)
        else:
            columns = dict(zip(levels, [*ancestors, codes], strict=True))
            tree = Hierarchy.from_columns(columns, other)
    except DomainError:
        raise DomainError(
            "two nodes of one level would have the same label. Remove '/' from the codes"
            + ("." if other is None else ", or change 'other'.")
        ) from None
    return tree, _label_tree(tree, given[LABEL_KEY], file, codes) if LABEL_KEY in given else {}


def _find_leaf_column(name: str, given: Mapping[str, Any], file: CodeFile) -> str:
    """Return the name of the column that has the leaves of a tree."""
    if COLUMN_KEY in given:
        return _get_text(given, COLUMN_KEY)
    finest = list(given["levels"])[-1]
    known = [column for column in (finest, name) if column in file.names]
    if not known:
        raise DomainError(
            f"{file.path} has no column {finest!r}. Name the column of leaves: {COLUMN_KEY} = NAME"
        )
    # A tree by prefixes prefers the column named after the attribute to the finest level's.
    return known[-1] if isinstance(given["levels"], Mapping) else known[0]


def _check_levels(levels: Any) -> None:
    """Raise DomainError for invalid levels before the file is read."""
    if isinstance(levels, Mapping):
        longest = max((n for n in levels.values() if type(n) is int and n < 2**10), default=1)
        Hierarchy(levels, ["x" * longest])
    elif not isinstance(levels, Sequence) or isinstance(levels, str):
        Hierarchy(levels, [["x"]])
    else:
        Hierarchy(levels, [["x"] * len(levels)])


def _check_lengths(levels: Mapping[str, int], codes: Sequence[Code], locate: Locate) -> None:
    """Raise DomainError for a code whose length is not the finest level's."""
    finest, length = list(levels.items())[-1]
    if set(map(type, codes)) == {str} and set(map(len, map(str, codes))) == {length}:
        return
    for i, code in enumerate(codes):
        if not isinstance(code, str):
            raise DomainError(f"{locate(i)}: the code must be text, not an integer")
        if len(code) != length:
            raise DomainError(
                f"{locate(i)}: a code of level {finest!r} must have {length} characters, not "
                f"{len(code)}"
            )


def _check_codes(codes: Sequence[Code], locate: Locate, shortest: Any = None) -> None:
    """Raise DomainError for a code that is listed twice, too large or too short."""
    least = shortest if type(shortest) is int else 0
    if _are_all_right(codes, least):
        return
    seen: set[Code] = set()
    for i, code in enumerate(codes):
        if code in seen:
            raise DomainError(
                f"{locate(i)}: an earlier line has the same code. Keep one line per code."
            )
        if isinstance(code, int) and abs(code) >= 2**62:
            _check_sizes(codes, locate)
        if isinstance(code, str) and len(code) < least:
            raise DomainError(
                f"{locate(i)}: for 'prefix' = {least}, the code must have at least {least} "
                "characters"
            )
        seen.add(code)


def _check_sizes(codes: Sequence[Code], locate: Locate) -> None:
    """Raise DomainError for the first integer that is too large."""
    for i, code in enumerate(codes):
        if isinstance(code, int) and abs(code) >= 2**62:
            raise DomainError(f"{locate(i)}: the code must be between -2**62 and 2**62")


def _are_all_right(codes: Sequence[Code], least: int) -> bool:
    """Return whether codes are distinct, not too large and at least `least` characters long.

    A million codes take a tenth of a second; the loop that finds the wrong one takes longer.
    """
    texts = [code for code in codes if isinstance(code, str)]
    numbers = [code for code in codes if isinstance(code, int)]
    fit = not numbers or max(map(abs, numbers)) < 2**62
    return fit and len(set(codes)) == len(codes) and min(map(len, texts), default=least) >= least


def _open_codebook(given: Mapping[str, Any], folder: Path) -> CodeFile:
    path = folder / _get_text(given, CODEBOOK_KEY)
    if path.suffix.lower() == ".json":
        raise DomainError(
            f"{path}: a codebook with 'column' or 'levels' must be CSV or Parquet, not JSON"
        )
    return CodeFile(path, "codebook", DomainError)


def _get_text(given: Mapping[str, Any], key: str) -> str:
    """Return the text of a key; raise DomainError if it is missing."""
    text = given.get(key)
    if not isinstance(text, str) or not text:
        what = "the path of a file" if key == CODEBOOK_KEY else "the name of a column"
        raise DomainError(f"{key!r} must be {what}")
    return text


def _check_keys(given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in given:
        if key not in allowed:
            raise DomainError(
                f"unknown key {key!r}. {suggest_nearest(key, [*allowed, CROSSWALK_KEY])}"
            )
