"""Reading text files with errors that name them, and replacing files atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fitplug.errors import FitplugError, InputError
from fitplug.files import replace_file as replace_durably

PUBLIC = 0o644
"""Permissions of a file that everyone may read."""

_CONFIDENTIAL = 0o600


class WriteError(FitplugError):
    """A file or folder could not be written."""


def read_text(path: Path, what: str, form: str, error: type[InputError]) -> str:
    """Read a text file in UTF-8.

    Args:
        path: The file.
        what: What the file is called in an error, such as "codebook".
        form: What the user should give if the file cannot be read, such as "a CSV file".
        error: The class of the error to raise.

    Returns:
        The text, without a byte order mark.

    Raises:
        InputError: An `error` if the file does not exist or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error(f"{path}: no such {what}. Check the path.") from None
    except IsADirectoryError:
        raise error(f"{path} is a folder. Give {form}.") from None
    except (OSError, ValueError):  # text that is not UTF-8, or a null character in the path
        raise error(f"{path} cannot be read. Give {form} in UTF-8.") from None


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a WriteError.

    Raises:
        WriteError: If the block raises OSError.
    """
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise WriteError(f"{path}: {why}. Free some space or name another file.") from None


@contextmanager
def replace_file(path: Path, mode: int = _CONFIDENTIAL) -> Iterator[Path]:
    """Replace `path` by the file that the block writes, if the block succeeds.

    Only this user may read the new file while it is written.

    Args:
        path: The file to create or replace.
        mode: The permissions of the finished file.

    Yields:
        The path of an empty file in the same folder, for the block to write.

    Raises:
        WriteError: If the file cannot be written. An earlier file at `path` is then unchanged.
    """
    with convert_write_errors(path), replace_durably(path, mode=_CONFIDENTIAL) as partial:
        yield partial
        if mode != _CONFIDENTIAL:
            partial.chmod(mode)


def check_target(path: Path, read: Callable[[Path], object]) -> None:
    """Check that a file can be written at a path without replacing a file of another kind.

    Args:
        path: The file to write.
        read: A function that reads files of this kind, and raises InputError for other files.

    Raises:
        InputError: If the path is a folder, its folder does not exist, or `read` refuses the file
            that is there.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file.")
    check_parent_folder(path)
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise InputError(f"{path} is not a regular file. Name another file.")
    if path.exists():
        try:
            read(path)
        except InputError:
            raise InputError(
                f"{path} already exists with other content. Name another file."
            ) from None


def check_parent_folder(path: Path) -> None:
    """Check that the folder of a new file exists.

    Raises:
        InputError: If there is no such folder.
    """
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: its folder does not exist. Create the folder first.")
