"""Attributes whose values come from files of codes.

A codebook or list of leaves describes a tree, a column lists categories, and a crosswalk adds
levels to a tree:

    GEOID = { levels = { state = 2, county = 5, tract = 11 }, codebook = "tracts.csv" }
    PLACE = { levels = ["region", "city"], codebook = "places.parquet" }
    BLOCK = { levels = { state = 2, block = 15 }, leaves = "blocks.txt" }
    COUNTY = { codebook = "counties.csv", column = "FIPS", crosswalk = { region = "regions.csv" } }

A codebook has one line for each leaf or value; other columns are ignored. The files are public: a
file that lists a code twice is refused, because it may be data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.domain import Attribute, Domain, Hierarchy
from fitplug.errors import DomainError, suggest_nearest
from fitplug_cli.inputs.code_files import Code, CodeFile, read_code_list
from fitplug_cli.inputs.codebooks import CODEBOOK_KEY, COLUMN_KEY, fill_in_entry
from fitplug_cli.inputs.crosswalks import CROSSWALK_KEY, add_levels_of_regions

_LIST_KEYS = ("leaves", "categories")

Locate: TypeAlias = Callable[[int], str]
"""A function that locates the i-th code in a file."""


def fill_in_codebooks(domain: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Replace each entry of [domain] that names a file by the file's content for its attribute.

    Args:
        domain: The [domain] table of a spec.
        folder: The folder that the paths of files are relative to.

    Returns:
        The table, with entries for `fitplug.Domain.from_spec`.

    Raises:
        DomainError: If a file cannot be read or does not describe its attribute.
    """
    filled = {}
    for name, value in domain.items():
        try:
            if _names_code_file(value):
                filled[name] = _build_attribute(name, value, folder)
            else:
                filled[name] = fill_in_entry(name, value, folder)
        except DomainError as error:
            raise DomainError(f"attribute {name!r}: {error}") from None
    return filled


def _names_code_file(value: Any) -> bool:
    """Return whether an entry of [domain] names a file of codes."""
    if not isinstance(value, Mapping):
        return False
    has_list = any(isinstance(value.get(key), str) for key in _LIST_KEYS)
    has_tree = CODEBOOK_KEY in value and "levels" in value
    return has_list or has_tree or COLUMN_KEY in value or CROSSWALK_KEY in value


def _build_attribute(name: str, value: Mapping[str, Any], folder: Path) -> Attribute:
    """Build the attribute of an entry of [domain] from its files of codes."""
    given = {key: entry for key, entry in value.items() if key != CROSSWALK_KEY}
    attribute = _build_without_regions(name, given, folder)
    if CROSSWALK_KEY in value:
        return add_levels_of_regions(name, attribute, value[CROSSWALK_KEY], folder)
    return attribute


def _build_without_regions(name: str, given: Mapping[str, Any], folder: Path) -> Attribute:
    """Build the attribute of an entry without its crosswalk."""
    if "levels" in given and (CODEBOOK_KEY in given or isinstance(given.get("leaves"), str)):
        return _build_tree(name, given, folder)
    listed = [key for key in _LIST_KEYS if isinstance(given.get(key), str)]
    if listed:
        path = folder / given[listed[0]]
        texts, lines = read_code_list(path, "list of codes", DomainError)
        _check_codes(texts, lambda i: f"{path}: line {lines[i]}", given.get("prefix"))
        return _build_from_entry(name, dict(given) | {listed[0]: texts})
    if COLUMN_KEY in given:
        _check_keys(given, (CODEBOOK_KEY, COLUMN_KEY, "other"))
        file = _open_codebook(given, folder)
        codes = file.read_column(_get_text(given, COLUMN_KEY))
        _check_codes(codes, file.locate)
        other = {"other": given["other"]} if "other" in given else {}
        return _build_from_entry(name, {"categories": codes} | other)
    return _build_from_entry(name, fill_in_entry(name, given, folder))


def _build_from_entry(name: str, spec: Any) -> Attribute:
    """Build an attribute from an entry without files; errors do not repeat the name."""
    try:
        return Domain.from_spec({name: spec})[name]
    except DomainError as error:
        raise DomainError(str(error).removeprefix(f"attribute {name!r}: ")) from None


def _build_tree(name: str, given: Mapping[str, Any], folder: Path) -> Hierarchy:
    """Build a tree from a codebook, or from a list of leaves."""
    _check_keys(given, ("levels", CODEBOOK_KEY, COLUMN_KEY, "leaves"))
    if CODEBOOK_KEY in given and "leaves" in given:
        raise DomainError(
            "a tree takes its leaves from codebook or leaves, not both. Give one of them."
        )
    levels = given["levels"]
    _check_levels(levels)
    codes: list[Any]
    ancestors: list[list[Code]] = []
    if "leaves" in given:
        if COLUMN_KEY in given:
            raise DomainError(
                f"{COLUMN_KEY} needs {CODEBOOK_KEY}. Remove it, or replace leaves by a codebook."
            )
        path = folder / given["leaves"]
        codes, lines = read_code_list(path, "list of leaves", DomainError)
        locate: Locate = lambda i: f"{path}: line {lines[i]}"  # noqa: E731
        if not isinstance(levels, Mapping) and len(levels) > 1:
            raise DomainError(
                f"{path}: a list of leaves does not show how levels nest. Give the length of each "
                "level's prefix, levels = { state = 2, county = 5 }, or a codebook with a column "
                "for each level."
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
    try:
        if isinstance(levels, Mapping):
            return Hierarchy(levels, codes)
        return Hierarchy.from_columns(dict(zip(levels, [*ancestors, codes], strict=True)))
    except DomainError:
        raise DomainError(
            "two nodes of one level would have the same label. Use labels without '/'."
        ) from None


def _find_leaf_column(name: str, given: Mapping[str, Any], file: CodeFile) -> str:
    """Return the name of the column that has the leaves of a tree."""
    if COLUMN_KEY in given:
        return _get_text(given, COLUMN_KEY)
    finest = list(given["levels"])[-1]
    known = [column for column in (finest, name) if column in file.names]
    if not known:
        raise DomainError(
            f"{file.path} has no column {name!r} or {finest!r}. Name the column of leaves: "
            f"{COLUMN_KEY} = NAME"
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
            raise DomainError(
                f"{locate(i)}: the code is not text, so it has no prefixes. Store codes as text."
            )
        if len(code) != length:
            raise DomainError(
                f"{locate(i)}: the code has {len(code)} characters, but level {finest!r} has "
                f"{length}. Correct the code or the level."
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
                f"{locate(i)}: the code is listed twice. Give a codebook with one line per code, "
                "not a data file."
            )
        if isinstance(code, int) and abs(code) >= 2**62:
            _check_sizes(codes, locate)
        if isinstance(code, str) and len(code) < least:
            raise DomainError(
                f"{locate(i)}: the code must have at least the {least} characters of its prefix"
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
            f"{path}: column needs a CSV or Parquet file, not JSON. Convert the file."
        )
    return CodeFile(path, "codebook", DomainError)


def _get_text(given: Mapping[str, Any], key: str) -> str:
    """Return the text of a key; raise DomainError if it is missing."""
    text = given.get(key)
    if not isinstance(text, str) or not text:
        what = "the path of a file" if key == CODEBOOK_KEY else "the name of a column"
        raise DomainError(f"{key} must be {what}")
    return text


def _check_keys(given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in given:
        if key not in allowed:
            raise DomainError(
                f"unknown key {key!r}. {suggest_nearest(key, [*allowed, CROSSWALK_KEY])}"
            )
