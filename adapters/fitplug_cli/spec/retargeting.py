"""Specs with other targets: as a document to design for, and as text that keeps its comments."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fitplug_cli.files import read_text
from fitplug_cli.inputs import TARGETS_KEY
from fitplug_cli.spec.errors import SpecError, tomllib
from fitplug_cli.spec.loading import TARGET_KEYS

FACTOR = "factor"
"""The key of a change that multiplies every std or margin of error of a group."""

_AMOUNTS = ("variance", "std", "moe")
_HEADER = re.compile(r"""[ \t]*\[\[[ \t]*["']?query["']?[ \t]*\]\]""")
_KEY = re.compile(r"""([ \t]*)["']?(\w+)["']?[ \t]*=[ \t]*""")


def has_many_targets(entry: Mapping[str, Any]) -> bool:
    """Return whether a [[query]] table has a target for each query, which only a factor changes."""
    return TARGETS_KEY in entry or any(isinstance(entry.get(key), list) for key in _AMOUNTS)


def replace_target(entry: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [[query]] table with another target.

    Args:
        entry: The table.
        change: The keys of its target; or FACTOR, which is left to the caller for a file of
            targets.
    """
    if FACTOR not in change:
        rest = {key: value for key, value in entry.items() if key not in TARGET_KEYS}
        return {**rest, **change}
    return dict(entry) | {
        key: _multiply(entry[key], _power(key, change[FACTOR])) for key in _AMOUNTS if key in entry
    }


def _power(kind: str, factor: float) -> float:
    return factor**2 if kind == "variance" else factor


def _multiply(value: Any, factor: float) -> Any:
    """Multiply a number or nested lists of numbers, to six digits."""
    if isinstance(value, list):
        return [_multiply(v, factor) for v in value]
    return value if factor == 1 else float(f"{value * factor:.6g}")


def rewrite_spec(
    path: Path, name: str, changes: Sequence[Mapping[str, Any] | None]
) -> dict[str, str]:
    """Rewrite the targets of a spec and leave everything else as it is, with all comments.

    Args:
        path: The spec.
        name: The name of the new spec, in the same folder.
        changes: For each [[query]] the change for `replace_target`, or None for no change.

    Returns:
        The text of each new file, by name: files of targets, and last the spec.

    Raises:
        SpecError: If the spec is not written in a way that can be edited.
    """
    text = path.read_bytes().decode("utf-8")
    expected = tomllib.loads(text.removeprefix("\ufeff"))
    files: dict[str, str] = {}
    for at, change in enumerate(changes):
        if change is None:
            continue
        entry = expected["query"][at]
        new = replace_target(entry, change)
        if TARGETS_KEY in entry:
            source = entry[TARGETS_KEY]
            new[TARGETS_KEY] = f"{Path(name).stem}.{Path(source).name}"
            base = files.get(new[TARGETS_KEY]) or read_text(
                path.parent / source, "file of targets", "a CSV file", SpecError
            )
            files[new[TARGETS_KEY]] = _multiply_file(base, entry["name"], change[FACTOR])
        targets = {key: new[key] for key in (TARGETS_KEY, *TARGET_KEYS) if key in new}
        expected["query"][at] = new
        text = _edit(text, at, targets) or text
    if tomllib.loads(text.removeprefix("\ufeff")) != expected:
        raise SpecError(
            f"{path.name} cannot be edited here. Write each query as [[query]] with one key per "
            "line."
        )
    return files | {name: text}


def _edit(text: str, number: int, targets: Mapping[str, Any]) -> str | None:
    """Replace the target of a [[query]]; None if there is no such table in the text."""
    lines = text.splitlines(keepends=True)
    headers = [i for i, line in enumerate(lines) if _HEADER.match(line)]
    if number >= len(headers):
        return None
    start = headers[number] + 1
    statements = {
        key: (first, last)
        for key, first, last in _split_statements(lines, start)
        if key in (TARGETS_KEY, *TARGET_KEYS)
    }
    if not statements:
        return None
    ended = "\r\n" if lines[headers[number]].endswith("\r\n") else "\n"
    # A key that goes lends its line, with its comment, to one that comes.
    added = [key for key in targets if key not in statements]
    last = max(end for _, end in statements.values())
    edited: dict[int, tuple[int, str]] = {}
    indent = ""
    for key, (first, end) in statements.items():
        written = "".join(lines[first:end])
        new = key if key in targets else added.pop(0) if added else None
        if isinstance(targets.get(key), list):
            replaced = _replace_numbers(written, targets[key])
        else:
            value = None if new is None else _format_value(targets[new])
            indent, replaced = _replace_statement(written, new, value)
        edited[first] = (end, replaced)
    for first, (end, replaced) in sorted(edited.items(), reverse=True):
        more = "".join(f"{indent}{key} = {_format_value(targets[key])}{ended}" for key in added)
        if end == last and more:
            replaced = replaced if replaced.endswith("\n") else replaced + ended
            replaced += more
        lines[first:end] = [replaced]
    return "".join(lines)


def _split_statements(lines: Sequence[str], start: int) -> Iterator[tuple[str, int, int]]:
    """Split the lines of a table from `start` on into its keys and their first and last lines."""
    i = start
    while i < len(lines) and not lines[i].lstrip().startswith("["):
        end = i + 1
        if lines[i].strip() and not lines[i].lstrip().startswith("#"):
            while end < len(lines) and not _is_toml("".join(lines[i:end])):
                end += 1
            key = _KEY.match(lines[i])
            yield key[2] if key else "", i, end
        i = end


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _replace_statement(written: str, key: str | None, value: str | None) -> tuple[str, str]:
    """Replace the key and value of a statement, but not its comment; None leaves the comment."""
    begin = _KEY.match(written)
    assert begin is not None
    marks = [m.start() for m in re.finditer("#", written)]
    mark = next((i for i in marks if _is_toml(written[:i])), len(written.rstrip()))
    held, rest = written[:mark].rstrip(), written[mark:]
    spaces = written[len(held) : mark]
    if key is None:
        return begin[1], begin[1] + rest if rest.strip() else ""
    name = begin[0] if begin[2] == key else f"{begin[1]}{key} = "
    return begin[1], f"{name}{value}{spaces}{rest}"


def _replace_numbers(written: str, values: Any) -> str:
    """Replace the numbers of lists, and no comment or line break between them."""
    begin = _KEY.match(written)
    assert begin is not None
    left = iter(_flatten(values))

    def replace(token: re.Match[str]) -> str:
        return token[0] if token[0].startswith("#") else _format_value(next(left))

    return begin[0] + re.sub(r"#.*|[-+.\w]+", replace, written[begin.end() :])


def _flatten(values: Any) -> Iterator[Any]:
    if not isinstance(values, list):
        yield values
        return
    for value in values:
        yield from _flatten(value)


def _format_value(value: Any) -> str:
    """Format a value of a target as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
    return f"{value:_}" if 1e4 <= abs(value) < 1e15 else repr(value)


def _multiply_file(text: str, group: str, factor: float) -> str:
    """Multiply the targets of a group in a file of targets."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    heading = rows[0]
    kind = next(name for name in _AMOUNTS if name in heading)
    amount = heading.index(kind)
    for row in rows[1:]:
        if row and ("group" not in heading or row[heading.index("group")] == group):
            row[amount] = f"{_multiply(float(row[amount]), _power(kind, factor)):.12g}"
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()
