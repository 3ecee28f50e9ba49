"""Staging: the parts of a release until it is published.

On a file system they are in a hidden folder beside the output, which only its owner can read. In a
store, where no folder can be moved, they are in the output, which is no release until its record
is written. A mark says which charge the parts belong to: parts of another charge are never taken.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, Place, open_place
from fitplug.release import ANSWER_PARTS, name_part, publish_folder, read_digest
from fitplug_opendp.staging import encode_path, find_held_release, report_write_errors

MARK = ".unfinished-release"
_STAGED = ".parts"
_LONGEST_LABEL = 40
"""As many characters as `label_files` makes, for charges of up to 18 digits."""


@dataclass(frozen=True)
class Output:
    """Where a release goes.

    Attributes:
        place: The folder.
    """

    place: Place

    @classmethod
    def open(cls, location: str | os.PathLike[str], options: Mapping[str, Any] | None) -> Output:
        """Open an output.

        Raises:
            InputError: It is in a store that cannot hold a release in parts.
        """
        return cls(open_place(location, options))

    @property
    def text(self) -> str:
        """The output as ledgers keep it."""
        return encode_path(self.place.path) if isinstance(self.place, LocalPlace) else str(self)

    def __str__(self) -> str:
        return str(self.place)

    def list_local(self) -> tuple[Path, ...]:
        """List the folder, if it is on a file system."""
        return (self.place.path,) if isinstance(self.place, LocalPlace) else ()

    @property
    def probes(self) -> Place:
        """A hidden folder for files that show whether parts can be written, and read by workers."""
        if isinstance(self.place, LocalPlace):
            path = self.place.path
            return LocalPlace(path.with_name(f".{path.name}.probes"), 0o600)
        return self.place.join(".probes")

    def remove_probes(self) -> None:
        """Remove the files of `probes`, also those of clients that were killed."""
        self.probes.remove_all()

    def leave_probes(self) -> None:
        """Remove the folder of `probes`, unless another client uses it."""
        if isinstance(self.probes, LocalPlace):
            with suppress(OSError):
                self.probes.path.rmdir()

    def place_counts(self, label: str) -> Place:
        """Return the hidden folder of the encrypted exact counts of a release.

        Args:
            label: What distinguishes the counts from those of other releases.
        """
        if isinstance(self.place, LocalPlace):
            path = self.place.path
            return LocalPlace(path.with_name(f".{path.name}.{label}.counts"), 0o600)
        return self.place.join(f".counts-{label}")

    def list_labels(self) -> tuple[str, ...]:
        """List the labels of releases whose parts are in the output itself, as in a store."""
        if isinstance(self.place, LocalPlace):
            return ()
        try:
            mark = self.place.read(MARK)
        except FileNotFoundError:
            return ()
        return (mark.decode(errors="replace").partition(" ")[0],)

    def read_digest(self) -> str | None:
        """Read the digest of the answers of the release that is there; None if there is none."""
        return read_digest(self.place)

    def check_free(self, staging: Staging, tables: Collection[str]) -> None:
        """Check that a release can go here, and that a second writer of a part is refused.

        Args:
            staging: The staging area of the charge, or of a run that has none yet.
            tables: The names of the folders of the tables.

        Raises:
            InputError: The output is taken, or is where no release can be published.
            FitplugError: Nothing can be written there.
        """
        if self.read_digest() is not None:
            raise InputError(f"{self} holds a release already; name another folder")
        with report_write_errors(Path(str(self)), "nothing was charged; name another place"):
            if isinstance(self.place, LocalPlace):
                if find_held_release(self.place.path) is not None:
                    raise InputError(f"{self} holds a release already; name another folder")
                _check_length(self.place.path)
            elif not staging.is_marked():
                self._check_empty(tables)
            self.probes.check_exclusive()

    def stage(self, label: str, cut: str) -> Staging:
        """Return the staging area of a release.

        Args:
            label: What distinguishes the release from others.
            cut: What says how its answers are cut into parts.
        """
        place = self.place
        if isinstance(place, LocalPlace):
            hidden = place.path.with_name(f".{place.path.name}.{label}{_STAGED}")
            place = LocalPlace(hidden, 0o600)
        return Staging(place, label, f"{label} {cut}", self)

    def _check_empty(self, tables: Collection[str]) -> None:
        """Raise InputError if a store has anything where the release would go."""
        folders = (self.place, *map(self.place.join, (ANSWER_PARTS, *tables)))
        if self._is_marked() or any(folder.list_sizes() for folder in folders):
            raise InputError(
                f"{self} holds files that are no finished release of this charge; name another "
                f"folder, or remove them and {MARK}"
            )

    def _is_marked(self) -> bool:
        """Return whether a release was begun here, even if it has no parts yet."""
        try:
            self.place.read(MARK)
        except FileNotFoundError:
            return False
        return True


def _check_length(output: Path) -> None:
    """Check that a file system takes names as long as that of a staging area after its charge.

    Raises:
        OSError: It does not, or nothing can be written.
    """
    probe = output.with_name(f".{output.name}.{secrets.token_hex(_LONGEST_LABEL // 2)}{_STAGED}")
    probe.mkdir(mode=0o700, parents=True)
    probe.rmdir()


@dataclass(frozen=True)
class Staging:
    """The parts of one release that is not published.

    Attributes:
        place: The folder that holds them.
        label: What distinguishes this release: the charge, and the plan.
        mark: The content of the mark: the label, and how the answers are cut into parts.
        output: Where the release goes.
    """

    place: Place
    label: str
    mark: str
    output: Output

    def open(self) -> None:
        """Make the folder, and mark it as that of this release.

        Raises:
            InputError: It is marked as another release's.
            FitplugError: It cannot be written.
        """
        remedy = "the release is not finished: run the same again, which charges nothing more"
        with report_write_errors(Path(str(self.output)), remedy):
            if isinstance(self.place, LocalPlace):
                self.place.path.mkdir(mode=0o700, exist_ok=True)
            self.place.create(MARK, self.mark.encode())
        if not self.is_marked():
            raise InputError(
                f"{self.output} has an unfinished release of another charge, or of another version "
                "of fitplug; finish that one with what it was begun with, or name another folder"
            )

    def is_marked(self) -> bool:
        """Return whether the folder is marked as that of this release."""
        try:
            return self.place.read(MARK) == self.mark.encode()
        except FileNotFoundError:
            return False

    def check_mark(self) -> None:
        """Check, on a worker, that the folder is there and is that of this release.

        Raises:
            FitplugError: It is not.
        """
        if not self.is_marked():
            raise FitplugError(
                f"{self.place} is not there, as this worker sees it, so it cannot add a part to "
                "the release; give an output that all workers share, under the same path"
            )

    def list_missing(self, parts: int) -> frozenset[int]:
        """List the parts of the answers that are not there, of so many."""
        found = self.place.join(ANSWER_PARTS).list_sizes()
        return frozenset(part for part in range(parts) if name_part(part) not in found)

    def publish(self) -> None:
        """Put the complete release in its place.

        Raises:
            InputError: It is not complete.
            OSError: It cannot be moved.
        """
        if isinstance(self.place, LocalPlace) and isinstance(self.output.place, LocalPlace):
            publish_folder(self.place.path, self.output.place.path, self.label)
        self.remove()

    def remove(self) -> None:
        """Remove what is left here of a release that is published."""
        self.output.remove_probes()
        with suppress(OSError):
            if not isinstance(self.place, LocalPlace):
                self.place.remove(MARK)
                return
            # The staging area, and folders that clients were about to put in its place.
            start = self.place.path.name.removesuffix(_STAGED)
            for path in list(self.place.path.parent.iterdir()):
                if path.name.startswith(f"{start}."):
                    shutil.rmtree(path, ignore_errors=True)

    def discard(self) -> None:
        """Remove the answers of a release that nobody will finish, as no ledger knows it.

        In a store the mark stays. A worker may still write a part that it was drawing, and the next
        release that goes there would take that part for its own.
        """
        if isinstance(self.place, LocalPlace):
            self.remove()
            return
        with suppress(OSError):
            answers = self.place.join(ANSWER_PARTS)
            for name in answers.list_sizes():
                answers.remove(name)
