"""Domains whose values come from files of codes: trees by a codebook or a list of leaves,
categories by a column, and levels by a crosswalk.

    GEOID = { levels = { state = 2, county = 5, tract = 11 }, codebook = "tracts.csv" }
    PLACE = { levels = ["region", "city"], codebook = "places.parquet" }
    BLOCK = { levels = { state = 2, block = 15 }, leaves = "blocks.txt" }
    COUNTY = { codebook = "counties.csv", column = "FIPS", crosswalk = { region = "regions.csv" } }

A codebook has a line for each leaf or value; other columns are passed over. The files are public:
one that lists a code twice is refused, as it may be data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.domain import Attribute, Domain, Hierarchy
from fitplug.errors import DomainError, suggest_nearest
from fitplug_cli import crosswalks
from fitplug_cli.codefiles import Code, CodeFile, codes_of_lines

CODEBOOK, COLUMN = "codebook", "column"
_LISTS = ("leaves", "categories")
Where: TypeAlias = Callable[[int], str]
"""The place of a code in a file."""


def is_here(value: Any) -> bool:
    """Whether an entry of [domain] takes its values from a file of codes."""
    if not isinstance(value, Mapping):
        return False
    listed = any(isinstance(value.get(key), str) for key in _LISTS)
    of_tree = CODEBOOK in value and "levels" in value
    return listed or of_tree or COLUMN in value or crosswalks.KEY in value


def attribute(name: str, value: Mapping[str, Any], folder: Path, plain: Any) -> Attribute:
    """The attribute that such an entry describes; paths are relative to the folder.

    plain: what gives an entry of [domain] for `{ codebook = FILE }`. Raises DomainError.
    """
    given = {key: part for key, part in value.items() if key != crosswalks.KEY}
    made = _values(name, given, folder, plain)
    if crosswalks.KEY in value:
        return crosswalks.with_levels(name, made, value[crosswalks.KEY], folder)
    return made


def _values(name: str, given: Mapping[str, Any], folder: Path, plain: Any) -> Attribute:
    if "levels" in given and (CODEBOOK in given or isinstance(given.get("leaves"), str)):
        return _tree(name, given, folder)
    listed = [key for key in _LISTS if isinstance(given.get(key), str)]
    if listed:
        path = folder / given[listed[0]]
        texts, lines = codes_of_lines(path, "list of codes", DomainError)
        _check_codes(texts, lambda i: f"{path}: line {lines[i]}", given.get("prefix"))
        return _made(name, dict(given) | {listed[0]: texts})
    if COLUMN in given:
        _check_keys(given, (CODEBOOK, COLUMN, "other"))
        file = _codebook(given, folder)
        codes = file.column(_text(given, COLUMN))
        _check_codes(codes, file.where)
        other = {"other": given["other"]} if "other" in given else {}
        return _made(name, {"categories": codes} | other)
    return _made(name, plain(given))


def _made(name: str, spec: Any) -> Attribute:
    try:
        return Domain.from_spec({name: spec})[name]
    except DomainError as error:
        raise DomainError(str(error).removeprefix(f"attribute {name!r}: ")) from None


def _tree(name: str, given: Mapping[str, Any], folder: Path) -> Hierarchy:
    _check_keys(given, ("levels", CODEBOOK, COLUMN, "leaves"))
    if CODEBOOK in given and "leaves" in given:
        raise DomainError("a tree has its leaves from codebook or from leaves; give one of them")
    levels = given["levels"]
    _check_levels(levels)
    leaves: list[Any]
    if "leaves" in given:
        if COLUMN in given:
            raise DomainError(f"{COLUMN} goes with {CODEBOOK}, not with a list of leaves")
        path = folder / given["leaves"]
        leaves, lines = codes_of_lines(path, "list of leaves", DomainError)
        where: Where = lambda i: f"{path}: line {lines[i]}"  # noqa: E731
        if not isinstance(levels, Mapping) and len(levels) > 1:
            raise DomainError(
                f"{path}: a list of leaves does not say what lies in what; give the lengths of "
                "the levels' prefixes, levels = { state = 2, county = 5 }, or a codebook with a "
                "column for each level"
            )
    else:
        file = _codebook(given, folder)
        where = file.where
        leaves = file.column(_leaf_column(name, given, file))
    codes = list(leaves)
    _check_codes(codes, where)
    if isinstance(levels, Mapping):
        _check_lengths(levels, codes, where)
    else:
        if "leaves" not in given:
            above = [file.column(level) for level in levels[:-1]]
            leaves = list(zip(*above, codes, strict=True))
        else:
            leaves = [[code] for code in codes]
    try:
        return Hierarchy(levels, leaves)
    except DomainError:
        raise DomainError(
            "two nodes of one level would be shown by the same text; use labels without '/'"
        ) from None


def _leaf_column(name: str, given: Mapping[str, Any], file: CodeFile) -> str:
    if COLUMN in given:
        return _text(given, COLUMN)
    finest = list(given["levels"])[-1]
    known = [column for column in (finest, name) if column in file.names]
    if not known:
        raise DomainError(
            f"{file.path}: the file has no column {name!r} or {finest!r}; name that of the leaves "
            f"by {COLUMN} = NAME"
        )
    # Of a tree by prefixes, the column has the attribute's codes, whatever its finest level is.
    return known[-1] if isinstance(given["levels"], Mapping) else known[0]


def _check_levels(levels: Any) -> None:
    """Raise DomainError for levels that no tree may have, whatever the file says."""
    if isinstance(levels, Mapping):
        longest = max((n for n in levels.values() if type(n) is int and n < 2**10), default=1)
        Hierarchy(levels, ["x" * longest])
    elif not isinstance(levels, Sequence) or isinstance(levels, str):
        Hierarchy(levels, [["x"]])
    else:
        Hierarchy(levels, [["x"] * len(levels)])


def _check_lengths(levels: Mapping[str, int], codes: Sequence[Code], where: Where) -> None:
    finest, length = list(levels.items())[-1]
    for i, code in enumerate(codes):
        if not isinstance(code, str):
            raise DomainError(f"{where(i)}: the code is no text, so that it has no prefixes")
        if len(code) != length:
            raise DomainError(
                f"{where(i)}: the code has {len(code)} characters; those of level {finest!r} have "
                f"{length}"
            )


def _check_codes(codes: Sequence[Code], where: Where, shortest: Any = None) -> None:
    """Raise DomainError for a code that is listed twice, or is none; by its place alone."""
    least = shortest if type(shortest) is int else 0
    seen: set[Code] = set()
    for i, code in enumerate(codes):
        if code in seen:
            raise DomainError(
                f"{where(i)}: the code is listed twice; a codebook has one line for each code, "
                "unlike a file of data"
            )
        if isinstance(code, int) and abs(code) >= 2**62:
            raise DomainError(f"{where(i)}: the code must be below 2**62 in size, to fit 64 bits")
        if isinstance(code, str) and len(code) < least:
            raise DomainError(f"{where(i)}: the code is shorter than its prefix of {least}")
        seen.add(code)


def _codebook(given: Mapping[str, Any], folder: Path) -> CodeFile:
    path = folder / _text(given, CODEBOOK)
    if path.suffix.lower() == ".json":
        raise DomainError(f"{path}: codes by column are read from CSV or Parquet; give one of them")
    return CodeFile(path, "codebook", DomainError)


def _text(given: Mapping[str, Any], key: str) -> str:
    text = given.get(key)
    if not isinstance(text, str) or not text:
        what = "the path of a file" if key == CODEBOOK else "the name of a column"
        raise DomainError(f"{key} must be {what}")
    return text


def _check_keys(given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in given:
        if key not in allowed:
            raise DomainError(
                f"unknown key {key!r}; {suggest_nearest(key, [*allowed, crosswalks.KEY])}"
            )
