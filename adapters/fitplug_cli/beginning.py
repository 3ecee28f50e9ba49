"""`fitplug init`: a spec to fill in, from the names and types of the columns alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitplug.domain import Domain
from fitplug.errors import DomainError, InputError
from fitplug_cli import codebooks
from fitplug_cli.files import replacing
from fitplug_dask.schema import FOLDER, list_columns

_HEAD = """\
# What is published about the people in {path}, and how accurate it must be.
# Made from the names and types of the columns: no row was read, and no value is here.
#
#     fitplug report {spec}    what the targets cost; reads no data
#     fitplug run {spec}       counts, charges the ledger and releases

[data]
path = {path}
contributions = 1               # rows that one person may have; k rows cost k^2 times the rho
# person = "..."                # if one may have more: the column that identifies persons, to
#                               # count at most that many rows of each
# weight = "..."                # if rows are aggregates: the column of how many records each is
# where = {{ COLUMN = ["..."] }}  # count only the rows that hold one of these values

[domain]                        # what exists, from a codebook and never from the rows
"""

_TAIL = """
[[query]]                       # a table: "identity" lists an attribute, what is not named is
name = "total"                  # summed out; others: "prefix", {{ ranges = [[18, 64]] }}, a level
std = 10.0                      # or moe = 20.0 with confidence = 0.90, or targets = "targets.csv"
{more}
[privacy]
# max_rho = 0.5                 # refuse if the targets cost more
delta = 1e-9                    # at which epsilon is reported

[ledger]
path = "budget.db"
rho = 1.0                       # the whole budget for these people, for ever

[output]
path = "release/"

[about]                         # what only you know, for the reviewers of a release
# name = "..."
# curators = ["..."]
# intended_use = "..."
"""

_MORE = """
# [[query]]
# name = {name}
# {table}
# std = 20.0
"""

_HINTS = {
    "integers": "{ integers = [0, 120] }, { bins = [0, 18, 65, 121] } or a list of codes, [1, 2]",
    "floats": "{ bins = [0, 10000, 50000] }",
    "strings": '["...", "..."], { codebook = "codes.csv" } or { prefix = 2, categories = [...] }',
    "text": '["...", "..."], { integers = [0, 120] }, { bins = [...] }, { dates = [...] }',
    "booleans": "[false, true]",
    "dates": '{ dates = ["1920-01-01", "2026-12-31"], by = "year" }',
    "folder": 'the folders\' values: ["...", "..."]',
    "null": "a column without values cannot be counted",
}


def begin(data: str, output: Path, codebook: Path | None, *, header: bool = False) -> Path:
    """Write a spec for this data. header: that the first line of a CSV file names its columns,
    whatever it looks like. Raises InputError, DataError, WriteError.
    """
    _check_target(output)
    folder = output.absolute().parent
    path = data if "://" in data else os.path.relpath(data, folder)
    content = text(path, list_columns(data, header=header), output.name, codebook, folder)
    with replacing(output) as partial:
        partial.write_text(content, encoding="utf-8")
        partial.chmod(0o644)
    return output


def text(path: str, held: Mapping[str, str], spec: str, codebook: Path | None, folder: Path) -> str:
    """The spec's text. A codebook's attributes are filled in; the others are comments.

    path: of the data, and folder: that of the spec, both as the spec is to have them. Raises
    DomainError for a codebook that is none, and InputError for columns that it has none of.
    """
    known = {} if codebook is None else codebooks.read(codebook)
    if codebook is not None and not known.keys() & held.keys():
        raise InputError(
            f"{codebook} names none of the {len(held)} columns of the data; check that it is their "
            "codebook, and that the first line of a CSV file names its columns"
        )
    lines = [
        _known(name, _fitting(known[name], kind), known[name], codebook, folder)
        if name in known
        else _unknown(name, kind)
        for name, kind in held.items()
    ]
    first = next((name for name in held if name in known), "ATTRIBUTE")
    more = _MORE.format(name=_string(f"by {first}"), table=f'{_key(first)} = "identity"')
    head = _HEAD.format(path=_string(path), spec=spec)
    return head + "\n".join(lines) + "\n" + _TAIL.format(more=more)


def _fitting(value: Any, held: str) -> Any:
    """A codebook's values as a column of this type has them: codebooks often take codes of digits
    for numbers, and the other way round.
    """
    if not isinstance(value, list):
        return value
    if held in ("strings", "text", FOLDER):
        return [str(v) if type(v) is int else v for v in value]
    if held == "integers" and all(
        isinstance(v, str) and re.fullmatch("-?[0-9]+", v) for v in value
    ):
        return [int(v) for v in value]
    return value


def _known(name: str, value: Any, given: Any, codebook: Path | None, folder: Path) -> str:
    try:
        size = Domain.from_spec({name: value})[name].size
    except DomainError:
        return f"# {_key(name)} = ...  # in {codebook}, but its values there make no attribute"
    shown = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        shown = f"{{ integers = {value['integers']} }}"
    elif value == given and len(shown) > 60:
        assert codebook is not None
        path = codebook if codebook.is_absolute() else _relative(codebook, folder)
        shown = f"{{ codebook = {_string(str(path))} }}"
    return f"{_key(name)} = {shown}  # {size:,} cells"


def _unknown(name: str, held: str) -> str:
    hint = _HINTS.get(held, "columns of this type cannot be counted: convert it")
    return f"# {_key(name)} = ...  # {held}: {hint}"


def _relative(path: Path, folder: Path) -> Path:
    try:
        return path.resolve().relative_to(folder.resolve())
    except ValueError:
        return path.absolute()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)


def _string(value: str) -> str:
    """A TOML basic string, which JSON's escapes are valid in."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_target(target: Path) -> None:
    if target.exists():
        raise InputError(f"{target} exists already; name another with --output")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target}: there is no such folder; make it first")
