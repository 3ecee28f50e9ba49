"""Sources: which files a path, folder, glob or URL means, and what the folders on the way say.

Hive folders (`state=01/`) carry a key and a value, both percent-encoded.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from fitplug.errors import DataError
from fitplug_dask.formats import DELTA, PASSED_OVER, SUFFIX_TEXT, SUFFIXES, Format, format_of
from fitplug_dask.places import Options, Place, is_url, local_path, shown
from fitplug_dask.stores import files_at

Source: TypeAlias = str | Path | Sequence[str | Path]

_NULL = "__HIVE_DEFAULT_PARTITION__"


class Key(NamedTuple):
    """One folder `name=value` on the way to a file; value None is null."""

    name: str
    value: str | None
    folder: str


class Found(NamedTuple):
    """A file: its path as it was given or met, without credentials; the keys of the folders it
    lies in; the place it is opened at; and its format.
    """

    path: str
    keys: tuple[Key, ...]
    place: Place
    format: Format


def find(source: Source, options: Options | None = None) -> list[Found]:
    """The files that `source` means, in a fixed order.

    source: a file, a folder (all files of known suffixes below it; names that start with "_" or
    "." are passed over), a glob of files or folders, or a sequence of these; each a local path or
    a URL of fsspec, opened with `options`. Raises DataError if one of them means no file, if a
    file is met twice (its rows would count twice), or if the files are of several formats.
    """
    if isinstance(source, (str, Path)):
        given: list[str | Path] = [source]
    elif isinstance(source, Sequence) and all(isinstance(s, (str, Path)) for s in source):
        given = list(source)
    else:
        raise DataError(f"the data must be a path or a list of paths, not {type(source).__name__}")
    if not given:
        raise DataError("the list of data files is empty; name at least one file or folder")
    files = [file for entry in given for file in _found(str(entry), options)]
    _check_each_once(files)
    _check_one_format(files)
    return files


def _found(given: str, options: Options | None) -> Iterator[Found]:
    if is_url(given):
        for url in files_at(given, options or {}):
            scheme, _, path = url.partition("://")
            keys = (k._replace(folder=shown(f"{scheme}://{k.folder}")) for k in _keys(path))
            yield Found(shown(url), tuple(keys), Place(url, options or {}), format_of(url))
        return
    for path in _files(local_path(given)):
        place = Place(str(Path(path).absolute()))
        yield Found(path, _keys(path), place, format_of(path))


def _check_each_once(files: Sequence[Found]) -> None:
    """Raise DataError if a file is met twice, also by links: its rows would count twice."""
    met: dict[object, Found] = {}
    for file in files:
        for identity in _identities(file.place):
            if identity in met:
                raise DataError(
                    f"{file.path} is the same file as {met[identity].path}, named before or under "
                    "another name (a link), so its rows would count twice; name every file once"
                )
            met[identity] = file


def _identities(place: Place) -> Iterator[object]:
    """What tells a file from all others: where it lies, and what it is whatever its names are."""
    if place.options is not None:
        yield place.path
        return
    yield os.path.realpath(place.path)
    with suppress(OSError):  # what cannot be looked at cannot be read, which is told later
        now = os.stat(place.path)  # noqa: PTH116 (a plain path)
        if now.st_ino:
            # With size and times, as some mounts number several files alike.
            yield now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _check_one_format(files: Sequence[Found]) -> None:
    first = files[0]
    for file in files:
        if file.format is not first.format:
            raise DataError(
                f"the data mix {first.format.value} ({first.path}) and {file.format.value} "
                f"({file.path}), perhaps the same rows twice; name the files of one format, for "
                "instance by a glob"
            )


def _files(given: str) -> list[str]:
    path = Path(given)
    if path.is_dir():
        return _below_checked(given)
    if path.exists():
        return [given]
    if not glob.has_magic(given):
        raise DataError(f"{given} does not exist; check the path")
    files: list[str] = []
    for match in _matches(given):
        if Path(match).is_dir():
            files += _below(match, ())
        elif match.endswith(SUFFIXES):
            files.append(match)
    if not files:
        raise DataError(f"{given} matches no {SUFFIX_TEXT} file; check the pattern")
    return files


def _matches(pattern: str) -> list[str]:
    fixed = list(itertools.takewhile(lambda p: not glob.has_magic(p), PurePath(pattern).parts))
    matches = [
        match
        for match in sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not any(part.startswith(PASSED_OVER) for part in PurePath(match).parts[len(fixed) :])
    ]
    # `**` matches folders and what lies in them; a folder already stands for all of it.
    folders = {PurePath(match) for match in matches if Path(match).is_dir()}
    return [match for match in matches if folders.isdisjoint(PurePath(match).parents)]


def _below_checked(folder: str) -> list[str]:
    files = list(_below(folder, ()))
    if not files:
        raise DataError(f"the folder {folder} holds no {SUFFIX_TEXT} file; check the path")
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
        raise DataError(f"{folder} {DELTA}")
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118 (keeps a leading "./" as it was given)
        if name.startswith(PASSED_OVER):
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
