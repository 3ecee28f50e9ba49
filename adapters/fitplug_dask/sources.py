"""Sources: which files a path, folder or glob means, and what the folders on the way say.

Hive folders (`state=01/`) carry a key and a value, both percent-encoded.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from fitplug.errors import DataError

Source: TypeAlias = str | Path | Sequence[str | Path]

SUFFIXES = (".parquet", ".parq")
_SUFFIX_TEXT = " or ".join(SUFFIXES)
_PASSED_OVER = ("_", ".")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Key(NamedTuple):
    """One folder `name=value` on the way to a file; value None is null."""

    name: str
    value: str | None
    folder: str


class Found(NamedTuple):
    """A file, as its path was given or met, and the keys of the folders it lies in."""

    path: str
    keys: tuple[Key, ...]


def find(source: Source) -> list[Found]:
    """The files that `source` means, in a fixed order.

    source: a file, a folder (all .parquet and .parq files below it; names that start with "_" or
    "." are passed over), a glob of files or folders, or a sequence of these. Raises DataError if
    one of them means no file, or if a file is met twice: its rows would count twice.
    """
    if isinstance(source, (str, Path)):
        given: list[str | Path] = [source]
    elif isinstance(source, Sequence) and all(isinstance(s, (str, Path)) for s in source):
        given = list(source)
    else:
        raise DataError(f"the data must be a path or a list of paths, not {type(source).__name__}")
    if not given:
        raise DataError("the list of data files is empty; name at least one file or folder")
    paths = [path for entry in given for path in _files(str(entry))]
    met: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in met:
            raise DataError(
                f"{path} is the same file as {met[real]}, named before; name every file once"
            )
        met[real] = path
    return [Found(path, _keys(path)) for path in paths]


def _files(given: str) -> list[str]:
    path = Path(given)
    if path.is_dir():
        return _below_checked(given)
    if path.exists():
        return [given]
    if not glob.has_magic(given):
        hint = "; only local paths can be read" if "://" in given else "; check the path"
        raise DataError(f"{given} does not exist{hint}")
    files: list[str] = []
    for match in _matches(given):
        if Path(match).is_dir():
            files += _below(match, ())
        elif match.endswith(SUFFIXES):
            files.append(match)
    if not files:
        raise DataError(f"{given} matches no {_SUFFIX_TEXT} file; check the pattern")
    return files


def _matches(pattern: str) -> list[str]:
    fixed = list(itertools.takewhile(lambda p: not glob.has_magic(p), PurePath(pattern).parts))
    matches = [
        match
        for match in sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not any(part.startswith(_PASSED_OVER) for part in PurePath(match).parts[len(fixed) :])
    ]
    # `**` matches folders and what lies in them; a folder already stands for all of it.
    folders = {PurePath(match) for match in matches if Path(match).is_dir()}
    return [match for match in matches if folders.isdisjoint(PurePath(match).parents)]


def _below_checked(folder: str) -> list[str]:
    files = list(_below(folder, ()))
    if not files:
        raise DataError(f"the folder {folder} holds no {_SUFFIX_TEXT} file; check the path")
    return files


def _below(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in above:  # a link back up
        return
    try:
        names = sorted(path.name for path in Path(folder).iterdir())
    except OSError as error:
        reason = error.strerror
    else:
        reason = None
    if reason is not None:
        raise DataError(f"the folder {folder} cannot be read: {reason}")
    if "_delta_log" in names:
        raise DataError(
            f"{folder} is a Delta table, whose files also hold rows deleted from it; "
            "export it as plain Parquet"
        )
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118 (keeps a leading "./" as it was given)
        if name.startswith(_PASSED_OVER):
            continue
        if Path(path).is_dir():
            yield from _below(path, (*above, real))
        elif name.endswith(SUFFIXES):
            yield path


def _keys(path: str) -> tuple[Key, ...]:
    parent = PurePath(path).parent
    keys = []
    for folder in (*reversed(parent.parents), parent):
        name, equals, value = folder.name.partition("=")
        if equals and name:
            text = None if value == _NULL else unquote(value)
            keys.append(Key(unquote(name), text, str(folder)))
    return tuple(keys)
