"""Replacement: a file is written completely or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fitplug.files.folders import sync


@contextmanager
def replace_file(
    path: str | os.PathLike[str], *, mode: int = 0o666, partial_name: str | None = None
) -> Iterator[Path]:
    """Write a file beside its place, and move it there if the block succeeds.

    The content is on the disk before the file is moved. A reader sees the former file or the new
    one, never a part of either, also if the process is killed.

    Args:
        path: Where the file goes; a file that is there is replaced.
        mode: The permissions of the new file, less those that the umask takes away.
        partial_name: The name of the partial file. It must be one that no other thread writes;
            by default it is made of the file's name and the system's number of this thread.

    Yields:
        The path of a new empty file in the same folder, to be opened and written.

    Raises:
        OSError: The file cannot be made, written or moved. The partial file is then removed.
    """
    target = Path(path)
    partial = target.with_name(
        partial_name or f".{target.name}.{threading.get_native_id()}.partial"
    )
    # A process that was killed may have left a file of this name, with other permissions.
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield partial
        sync(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
