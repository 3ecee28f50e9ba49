"""Files that appear whole or not at all, and errors that name them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fitplug.errors import FitplugError, InputError


class WriteError(FitplugError):
    """A file or folder could not be written."""


def text_of(path: Path, what: str, form: str, error: type[InputError]) -> str:
    """A text file's content. Raises an `error` that calls it `what`, and says to give `form`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error(f"{path}: there is no such {what}") from None
    except (OSError, UnicodeDecodeError):
        raise error(f"{path}: cannot be read; give {form} in UTF-8") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError in the block into a WriteError that names the path."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise WriteError(f"{path}: {why}; make room or name another place") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty file beside `path`, readable by this user only, that takes its place if the
    block succeeds. Raises WriteError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def check_target(path: Path, read: Callable[[Path], object]) -> None:
    """Raise InputError if a file should not be written here: no folder for it, or a file that
    `read` refuses, which is therefore of another kind.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no such folder; make it first")
    if path.exists():
        try:
            read(path)
        except InputError:
            raise InputError(f"{path} holds something else; name another file") from None
