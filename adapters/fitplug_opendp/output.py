"""Outputs: the folder of a release, and the hidden files of unfinished releases beside it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, Place, StorePlace, make_folder, open_place, set_aside
from fitplug.ledger import Stage
from fitplug.plan import Plan
from fitplug.releases import ANSWER_PARTS, PLAN, Period, Release, publish_folder, read_digest
from fitplug_opendp.staging import (
    MARK,
    StagedAnswers,
    Staging,
    encode_path,
    remove_folder,
    report_write_errors,
)

_STAGED = ".parts"
_PROBES = ".probes"
_LONGEST_LABEL = 60
"""The most characters of a label in the name of a hidden folder, for charges of up to 18 digits."""

_ANSWER_BYTES = 8
_ROW_BYTES = 24
"""The bytes per row of the columns whose values rarely repeat: estimate, lower and upper."""
_MARGIN = 1.25
_SMALL_FILES_BYTES = 2**20


def estimate_size(plan: Plan) -> int:
    """Estimate the bytes of the release of a plan: answers, tables, and a margin for the rest."""
    content = _ANSWER_BYTES * plan.strategy.size + _ROW_BYTES * plan.workload.query_count
    return int(_MARGIN * content) + _SMALL_FILES_BYTES


@dataclass(frozen=True)
class Output:
    """The destination of a release.

    Attributes:
        place: The folder.
        hidden: The place beside which staged answers lie, if not beside the folder.
    """

    place: Place
    hidden: LocalPlace | None = None

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> Output:
        """Open an output.

        Raises:
            InputError: It is in a store that cannot hold a release.
        """
        return cls(open_place(location, options))

    @property
    def text(self) -> str:
        """The output as ledgers record it."""
        return encode_path(self.place.path) if isinstance(self.place, LocalPlace) else str(self)

    def __str__(self) -> str:
        return str(self.place)

    def locate(self, stage: Stage | None) -> Output:
        """Return the output that a stage names, which an earlier try may have chosen."""
        if stage is None or stage.folder is None or stage.folder == self.text:
            return self
        return Output.open(stage.folder)

    def limit_requests(self, seconds: float) -> Output:
        """Return this output with a time limit for requests to a store, retries included."""
        if not isinstance(self.place, StorePlace):
            return self
        return Output(replace(self.place, seconds=seconds))

    def list_local(self) -> tuple[Path, ...]:
        """List the folder, if it is on a file system."""
        return (self.place.path,) if isinstance(self.place, LocalPlace) else ()

    def locate_probes(self, run: str) -> Place:
        """Return a hidden folder for files that show whether workers can read files written here.

        Args:
            run: The identifier of this run. All runs of one release share its first 8 characters,
                and remove each other's probes.
        """
        if isinstance(self.place, LocalPlace):
            path = self.place.path
            return LocalPlace(path.with_name(f".{path.name}.{run}{_PROBES}"), 0o600)
        return self.place.join(f"{_PROBES}-{run[:8]}")

    @contextmanager
    def remove_probes_after(self, run: str) -> Iterator[None]:
        """Remove the probes of a run after the block, and the parent folders that it created."""
        missing = [
            folder for path in self.list_local() for folder in path.parents if not folder.exists()
        ]
        try:
            yield
        finally:
            if isinstance(self.place, LocalPlace):
                self.locate_probes(run).remove_all()
            for folder in missing:
                with suppress(OSError):  # another process may use it by now
                    folder.rmdir()

    def place_counts(self, label: str) -> Place:
        """Return the hidden folder of the encrypted exact counts of a release.

        Args:
            label: The label of the release.
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
        """Read the digest of the answers of the release here; None if there is none."""
        return read_digest(self.place)

    def check_not_taken(self, *, replace: bool, digest: str | None = None) -> None:
        """Check that no other release is here, and that a folder can be moved here.

        Args:
            replace: Whether to move another release aside.
            digest: The digest of the answers to publish, if they are drawn.

        Raises:
            InputError: The output is taken, or no release can be published here.
        """
        published = self.read_digest()
        if published is None and isinstance(self.place, LocalPlace):
            try:
                _check_is_free(self.place.path)
            except InputError:
                published = self.read_digest()  # another process might just have published it
                if published is None:
                    raise
        if published is None or published == digest:
            return
        if isinstance(self.place, LocalPlace) and replace:
            _check_is_movable(self.place.path)
            return
        moved = isinstance(self.place, LocalPlace)
        raise InputError(
            f"{self} already holds a release. For another release, name another folder"
            + (" or use --replace (replace=True)." if moved else ".")
        )

    def check_not_damaged(self, why: str) -> None:
        """Check that there is a release here, or nothing.

        Args:
            why: Why a release may be here, as a part of the message.

        Raises:
            InputError: There are other files here.
        """
        if isinstance(self.place, LocalPlace) and self.read_digest() is None:
            path = self.place.path
            if _has_files(path):
                raise InputError(
                    f"{path}, {why}, may hold a damaged copy of that release. Restore the release, "
                    "or move the files away."
                )

    def check_writable(self, staging: Staging, tables: Collection[str], run: str) -> None:
        """Check that a release can be written here, and that no second writer replaces a part.

        Args:
            staging: The staging area of the charge, or of a run without a charge.
            tables: The names of the folders of the tables.
            run: The identifier of this run.

        Raises:
            InputError: A store has something else here.
            FitplugError: Nothing can be written here.
        """
        with report_write_errors(str(self), "Nothing was charged. Name another folder."):
            if isinstance(self.place, LocalPlace):
                _check_length(self.place.path)
            elif not staging.is_marked():
                self.check_empty(tables)
            self.locate_probes(run).check_exclusive()

    def check_room(self, plan: Plan, more: int = 0) -> None:
        """Check that the file system of a local folder has room for a release of a plan.

        The staging area lies beside the folder, and its files are linked into it, so each is stored
        once. A store, or a file system of unknown size, is not checked.

        Args:
            plan: The plan.
            more: The bytes of other files that the release needs.

        Raises:
            FitplugError: There is too little free space.
        """
        if not isinstance(self.place, LocalPlace):
            return
        needed = estimate_size(plan) + more
        with report_write_errors(self.place.path, "Nothing was charged. Name another folder."):
            for above in self.place.path.parents:
                with suppress(FileNotFoundError, NotADirectoryError):
                    size, _, free = shutil.disk_usage(above)
                    break
        if size and free < needed:
            raise FitplugError(
                f"the release in {self} needs about {needed / 1e6:,.1f} MB, but the file system "
                f"has only {free / 1e6:,.1f} MB free. Free some space, or name another folder."
            )

    def stage(self, label: str, cut: str, run: str | None = None) -> Staging:
        """Return the staging area of a release.

        Args:
            label: The label of the release.
            cut: A text that identifies how its answers are cut into parts.
            run: The identifier of a run with its own area; None for one area of all runs.
        """
        place = self.hidden or self.place
        if isinstance(place, LocalPlace):
            words = ["", place.path.name, label] + ([] if run is None else [run])
            place = LocalPlace(place.path.with_name(".".join(words) + _STAGED), 0o600)
        return Staging(place, label, f"{label} {cut}", self.place)

    def find_staged(
        self,
        plan: Plan,
        label: str,
        digest: str | None,
        fits: Callable[[Release], bool],
        period: Period | None = None,
    ) -> StagedAnswers | None:
        """Find complete answers that any run has staged.

        Args:
            plan: The plan.
            label: The label of the release.
            digest: The digest that the answers must have; None accepts any.
            fits: Returns whether a release names the right charge.
            period: The period of a series that the answers must be of; None for all of a plan.

        Returns:
            The first answers that fit; None if there are none.

        Raises:
            InputError: Any answers are accepted, but the staged answers are damaged.
        """
        seen: list[Staging] = []
        while (areas := self.list_complete(label)) != seen:  # other processes may change them
            seen = areas
            for area in areas:
                with suppress(InputError, OSError):
                    staged = area.read(plan, period)
                    area.check(staged.parts)
                    if fits(staged.release) and digest in (None, staged.digest):
                        return staged
        if digest is None and seen:
            raise InputError(
                f"{seen[0].place} is damaged. Restore the folder from a backup, or delete it if "
                "nobody has seen its contents."
            )
        return None

    def list_complete(self, label: str) -> list[Staging]:
        """List the staging areas of a release whose answers were complete once."""
        place = self.hidden or self.place
        if not isinstance(place, LocalPlace):
            places: list[Place] = [place] if label in self.list_labels() else []
        else:
            pattern = escape(f".{place.path.name}.{label}.") + f"*{_STAGED[1:]}"
            paths = sorted(place.path.parent.glob(pattern))
            places = [LocalPlace(path, place.mode) for path in paths]
        areas = [Staging(area, label, "", self.place) for area in places]
        return [area for area in areas if area.has_manifest()]

    def publish(self, staged: StagedAnswers, *, replace: bool) -> Path | None:
        """Put a complete release in its place, unless it is there.

        Args:
            staged: Its answers, whose staging area has all files of the release.
            replace: Whether to move another release aside.

        Returns:
            The path to which another release was moved; None if there was none.

        Raises:
            FitplugError: Another release is here, or the staging area is not complete.
            OSError: It cannot be moved.
        """
        earlier: Path | None = None

        def make_room() -> bool:
            nonlocal earlier
            published = self.read_digest()
            if published is None or published == staged.digest:
                return published is None
            try:
                self.check_not_taken(replace=replace, digest=staged.digest)
            except InputError as error:  # another release appeared since the first check
                raise FitplugError(str(error)) from None
            earlier = set_aside(path, (path / PLAN).stat().st_mtime)
            if read_digest(earlier) == staged.digest:  # another process put it there in between
                earlier.replace(path)
                earlier = None
                return False
            return True

        if isinstance(self.place, LocalPlace) and isinstance(staged.staging.place, LocalPlace):
            path = self.place.path
            publish_folder(staged.staging.place.path, path, staged.staging.label, make_room)
        return earlier

    def remove_staged(self, label: str, run: str) -> None:
        """Remove all leftovers of the runs of a release, but not the release."""
        with suppress(OSError):
            if not isinstance(self.place, LocalPlace):
                self.locate_probes(run).remove_all()
                self.place.remove(MARK)
                return
            hidden = f".{self.place.path.name}."
            name, probes = f"{hidden}{label}.", f"{hidden}{run[:8]}"
            for path in list(self.place.path.parent.iterdir()):
                if path.name.startswith(probes) and path.name.endswith(_PROBES):
                    LocalPlace(path).remove_all()  # left by killed clients
                elif path.name.startswith((name, f".{name}")):
                    remove_folder(path)

    def check_empty(self, tables: Collection[str] = ()) -> None:
        """Raise InputError if a store has anything where the release would go."""
        folders = (self.place, *map(self.place.join, (ANSWER_PARTS, *tables)))
        if self._is_marked() or any(folder.list_sizes() for folder in folders):
            raise InputError(
                f"{self} already holds files. Name another folder, or remove these files and "
                f"{MARK}."
            )

    def _is_marked(self) -> bool:
        """Return whether a release was begun here, even if there are no parts yet."""
        try:
            self.place.read(MARK)
        except FileNotFoundError:
            return False
        return True


def _check_is_movable(directory: Path) -> None:
    """Raise InputError if no folder can be moved to a path."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if not S_ISDIR(directory.stat().st_mode):
            raise InputError(f"{directory} is a file. Name another folder for the release.")
    if directory.is_symlink() or os.path.ismount(directory):
        what = "a link" if directory.is_symlink() else "a mount point"
        raise InputError(f"{directory} is {what}. Name an ordinary folder, for example inside it.")


def _check_is_free(directory: Path) -> None:
    """Raise InputError if a path has other files than a release, or nothing can be moved there."""
    _check_is_movable(directory)
    if _has_files(directory):
        raise InputError(
            f"{directory} holds files that are not a fitplug release. Name another folder."
        )


def _has_files(folder: Path) -> bool:
    """Return whether a folder exists and is not empty. Another process may move it away."""
    try:
        return any(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_length(output: Path) -> None:
    """Check that a file system allows names as long as any that are needed after the charge.

    Raises:
        OSError: It does not, or nothing can be written.
    """
    probe = output.with_name(f".{output.name}.{secrets.token_hex(_LONGEST_LABEL // 2)}{_STAGED}")
    make_folder(probe, 0o700)
    probe.rmdir()
