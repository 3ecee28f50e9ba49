"""Key files: the secrets for later runs, each in a file apart from the counts.

Large releases and series store encrypted exact counts for a later run, so their secret must outlive
the process. It is in a file that the publisher names, or in a file of the user's account. It is
never in a folder together with the counts, because one backup would then hold both. The first run
makes the file. The last one removes it once nothing needs it, so that remaining copies of the
counts can never be read again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Any

from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, is_url
from fitplug.ledger import hash_values
from fitplug_opendp.folder_release import FolderPublication

KEY_BYTES = 32

_KIND, _FORMAT = "key of fitplug, CONFIDENTIAL", 1
_ELSEWHERE = "Set key_file (in a spec, [output] key_file) to a file elsewhere."


@dataclass(frozen=True, repr=False)
class KeyFile:
    """The file of one secret. `KeyFile.locate` makes it.

    Attributes:
        path: The absolute path of the file.
        subject: The purpose of the secret, in words.
        owner: The digest of the release or series, which the file must contain.
        is_named: Whether the publisher named the file.
    """

    path: Path
    subject: str
    owner: str
    is_named: bool

    def __repr__(self) -> str:
        return f"KeyFile({str(self.path)!r})"

    @classmethod
    def locate(
        cls,
        named: str | PathLike[str] | None,
        subject: str,
        owner: str,
        *,
        beside: Sequence[Path],
        name: str | None = None,
    ) -> KeyFile:
        """Choose the file of a secret, without reading it.

        Args:
            named: The file that the publisher names; None for one in the user's account.
            subject: The purpose of the secret, in words.
            owner: The digest of the release or series.
            beside: The absolute folders in or beside which the counts are.
            name: The name of the file in the user's account; None for the owner.

        Raises:
            InputError: The file would lie together with the counts, or is in a store.
            FitplugError: This user has no account folder.
        """
        if named is None:
            path = _find_account_folder(subject) / f"{name or owner}.key"
        elif is_url(named):
            raise InputError(f"key_file = {named} is a URL. Name a local file.")
        else:
            path = Path(named).absolute()
        for folder in beside:
            if _is_together(path, folder):
                raise InputError(
                    f"the key of {subject} cannot be in {path}, next to the encrypted counts in "
                    f"{folder}. {_ELSEWHERE}"
                )
        return cls(path, subject, owner, named is not None)

    def keep(self) -> bytes:
        """Return the secret; draw it and make it durable if there is none.

        Raises:
            InputError: The file is damaged, or contains something else.
            FitplugError: The file cannot be read or written.
        """
        secret = self.find()
        if secret is not None:
            return secret
        content = {"kind": _KIND, "format": _FORMAT, "subject": self.subject, "owner": self.owner}
        drawn = secrets.token_bytes(KEY_BYTES).hex()
        content |= {"secret": drawn, "digest": hash_values(self.owner, drawn)}
        with self._open_folder() as place:
            place.create(self.path.name, json.dumps(content, indent=1).encode() + b"\n")
        secret = self.find()  # another process may have been first
        if secret is None:
            raise FitplugError(
                f"the key of {self.subject} was removed from {self.path} by another process. "
                "Run again."
            )
        return secret

    def check_writable(self) -> None:
        """Raise FitplugError unless a file can be created there that no second writer replaces."""
        with self._open_folder() as place:
            place.check_exclusive()

    def find(self) -> bytes | None:
        """Return the secret of 32 bytes; None if there is no file.

        Raises:
            InputError: The file is damaged, or contains something else.
            FitplugError: The file cannot be read.
        """
        try:
            said = json.loads(self.path.read_bytes())
            is_known = (said["kind"], said["format"]) == (_KIND, _FORMAT)
            owner, secret, digest = said["owner"], said["secret"], said["digest"]
            is_known = is_known and digest == hash_values(owner, secret)
            decoded = bytes.fromhex(secret)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._make_error(error, "Make the file readable.") from None
        except (ValueError, TypeError, KeyError):
            is_known, owner, decoded = False, "", b""
        if not is_known or len(decoded) != KEY_BYTES:
            raise InputError(
                f"{self.path} is damaged or not a fitplug key. Restore the key of "
                f"{self.subject}, or set key_file to another file."
            )
        if owner != self.owner:
            raise InputError(
                f"{self.path} is not the key of {self.subject}. Set key_file to another file."
            )
        return decoded

    def read(self) -> bytes:
        """Return the secret of an unfinished release or series.

        Raises:
            InputError: There is no file, or as for `find`.
            FitplugError: As for `find`.
        """
        secret = self.find()
        if secret is None:
            raise InputError(
                f"the key of {self.subject} is missing from {self.path}. Restore the file, or "
                "set key_file to the file that was used at the start."
            )
        return secret

    def remove(self) -> None:
        """Remove the file, and partial files of killed processes."""
        try:
            self.find()
        except FitplugError:
            return  # the file is the key of something else now
        try:
            for left in self.path.parent.glob(f".{escape(self.path.name)}.*.partial"):
                left.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        except OSError:
            warnings.warn(
                f"cannot remove the key {self.path}, which is no longer needed. Remove this file.",
                RuntimeWarning,
                stacklevel=2,
            )

    @contextmanager
    def _open_folder(self) -> Iterator[LocalPlace]:
        """Open the folder of the file to write there, and name the file in errors.

        The folder of a named file is not created: it may be on a disk that is not mounted.
        """
        folder = self.path.parent
        try:
            if not self.is_named:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif not folder.is_dir():
                raise InputError(f"the folder of key_file {self.path} does not exist. Create it.")
            yield LocalPlace(folder, 0o600)
        except OSError as error:
            raise self._make_error(error, _ELSEWHERE) from None

    def _make_error(self, error: OSError, remedy: str) -> FitplugError:
        why = (error.strerror or "cannot be read or written").lower()
        return FitplugError(f"the key of {self.subject}, {self.path}: {why}. {remedy}")


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive a key of 32 bytes for one purpose from a secret."""
    return hmac.new(secret, purpose.encode(), hashlib.sha256).digest()


def _find_account_folder(subject: str) -> Path:
    """Find the folder of keys in the user's folder for program state."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        home = state if state.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise FitplugError(
            f"cannot store the key of {subject}: this user has no home folder. {_ELSEWHERE}"
        ) from None
    return home / "fitplug" / "keys"


def _is_together(path: Path, folder: Path) -> bool:
    """Return whether a file is in a folder, beside it, or in a hidden folder beside it."""
    hidden = f".{folder.name}."
    files = path.resolve(), path.parent.resolve() / path.name
    for parent, name in ((folder.parent.resolve(), folder.name), (folder.resolve(), None)):
        for file in files:
            if not file.is_relative_to(parent):
                continue
            first, *rest = file.relative_to(parent).parts or ("",)
            if name is None or not rest or first == name or first.startswith(hidden):
                return True
    return False


@dataclass(frozen=True, repr=False)
class RunSecret:
    """The secrets of one release, shared by all runs that work on it and derived from one secret.

    With the nonce, the same exact counts have the same seal in each run, and nobody else can test a
    guess of the counts against the seal. The person key decides which rows of a person are counted.

    Attributes:
        nonce: The nonce that hides the exact counts in their seal.
        person_key: The key of the hash that chooses the rows of a person.
        key_file: The file with the secret. It is created before the data are counted and removed
            when the release is published. None if no later run needs it.
    """

    nonce: bytes
    person_key: bytes
    key_file: KeyFile | None = None

    def __repr__(self) -> str:
        return "RunSecret()"

    @classmethod
    def keep(
        cls, release: FolderPublication[Any], named: str | PathLike[str] | None = None
    ) -> RunSecret:
        """Find the secrets of a release, or draw them and make them durable before its charge.

        Without a ledger no run is resumed, and nothing is written.

        Args:
            release: The prepared release.
            named: The key file that the publisher names, if any.

        Raises:
            InputError: The key file would lie beside the counts, is damaged or belongs to something
                else, or it is missing although the release was begun.
            FitplugError: A file cannot be written or read.
        """
        request, output, ledger = release.request, release.output, release.request.ledger
        if ledger is None:
            return cls._derive(secrets.token_bytes(KEY_BYTES))
        owner = hash_values("release in parts", request.plan.digest, request.key, output.text)
        key_file = KeyFile.locate(
            named,
            f"the release into {output}",
            owner,
            beside=output.list_local(),
            # Another ledger may have a release of the same plan, key and output.
            name=hash_values(owner, str(ledger.path.absolute())),
        )
        secret = None
        if not release.needs_counts:
            with suppress(FitplugError):  # nothing encrypted is read any more
                secret = key_file.find()
        elif release.charged_seal is not None:
            secret = key_file.read()
        else:
            secret = key_file.keep()
        return cls._derive(secret or secrets.token_bytes(KEY_BYTES), key_file)

    @classmethod
    def _derive(cls, secret: bytes, key_file: KeyFile | None = None) -> RunSecret:
        """Derive the secrets of a release from the secret of its key file."""
        nonce = derive_key(secret, "the nonce of the seals of a release")
        return cls(nonce, derive_key(secret, "the rows of persons in a release"), key_file)

    def remove(self) -> None:
        """Remove the file after the release is published."""
        if self.key_file is not None:
            self.key_file.remove()
