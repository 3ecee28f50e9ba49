"""Checkpoint key: the key of a checkpoint, kept apart from the folder that it encrypts.

A checkpoint outlives its process, and so must its key. A publisher may give it. Otherwise it is
drawn, and kept in a file of this user on the machine of the client, for one folder. The folder may
be on a disk that many machines and backups see; it cannot be read without that file. The file is
removed when the count has finished: what copies of the folder remain can never be read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from fitplug.errors import FitplugError, InputError
from fitplug_dask.encryption import KEY_BYTES, can_encrypt

_SHORTEST_KEY = 16


def open_key(folder: Path, given: bytes | None) -> bytes:
    """Return the key of a checkpoint, which is drawn and kept if there is none.

    Args:
        folder: The folder of the checkpoint. The caller has locked it.
        given: The publisher's key, at least 16 secret bytes, or None.

    Returns:
        A key of 32 bytes.

    Raises:
        TypeError: The given key is no key.
        InputError: The package that encrypts is missing.
        FitplugError: The key cannot be kept.
    """
    if given is not None and (not isinstance(given, bytes) or len(given) < _SHORTEST_KEY):
        raise TypeError(f"checkpoint_key must be at least {_SHORTEST_KEY} secret bytes")
    check_encryption(folder)
    if given is not None:
        return hashlib.sha256(b"fitplug checkpoint\n" + given).digest()
    path = _find_file(folder)
    with contextlib.suppress(OSError):
        kept = path.read_bytes()
        if len(kept) == KEY_BYTES:
            return kept
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = secrets.token_bytes(KEY_BYTES)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        return key
    except OSError as error:
        reason = error.strerror or "it cannot be written"
    raise FitplugError(
        f"the key of checkpoint {folder} cannot be kept in {path.parent} ({reason}); give a key of "
        "your own by checkpoint_key, or set XDG_STATE_HOME to a folder that can be written"
    )


def forget_key(folder: Path) -> None:
    """Remove the key that was kept for a folder, if there is one."""
    with contextlib.suppress(OSError):
        _find_file(folder).unlink(missing_ok=True)


def check_encryption(folder: Path) -> None:
    """Raise InputError if the package that encrypts is missing."""
    if not can_encrypt():
        raise InputError(
            f"checkpoint {folder} cannot be kept: exact counts are written encrypted only; install "
            'what that takes with: pip install "fitplug[dask]", or count without'
        )


def _find_file(folder: Path) -> Path:
    """Return where the key for a folder is kept: where programs of this user keep their state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return Path(state, "fitplug", "checkpoint-keys", name)
