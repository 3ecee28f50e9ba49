"""Releases into a folder that happen exactly once, whatever is killed in between.

    begun       the ledger is charged, or finds the charge of the run that is retried
    made        the noise is drawn, and the noisy answers are staged: in one hidden file beside the
                folder, for its owner alone, on the disk before the ledger enters that they are made
    published   the folder is written from the staged answers, moved into its place as a whole, and
                then the ledger enters that it is there

A retry goes on where the last run came to. Until the ledger has entered answers as made nobody has
seen any, so that noise may be drawn anew: that costs nothing more. From then on these answers are
the release, and noise is never drawn again. Of two processes at one release, the ledger takes the
answers of the first and the other publishes the same.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fitplug.counts import Tables
from fitplug.errors import BudgetError, FitplugError, InputError, KeyTaken
from fitplug.files import check_arrow, partial_folder, put_in_place, set_aside
from fitplug.ledger import Entry, Ledger, Request, Stage, Which
from fitplug.plan import Plan
from fitplug.release import ANSWERS, Release, TableFiles, fill, held_digest
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_opendp.gaussian import Progress
from fitplug_opendp.noisy_release import (
    Mechanism,
    Understood,
    check_are_tables,
    check_ledger,
    check_limit,
    exact_answers,
    seal_of,
)
from fitplug_opendp.staging import Staged, Staging, write_path

_LOG = logging.getLogger(__name__)

State: TypeAlias = Literal["new", "charged", "made", "published"]
"""Of a release that is asked for: not begun; charged, and no answers were made; made, and not in
its folder; published.
"""


def publish(
    plan: Plan,
    tables: Tables,
    directory: str | os.PathLike[str],
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    within: Which | None = None,
    what: str | None = None,
    key: str | None = None,
    again: bool = False,
    replace: bool = False,
    confidence: float = DEFAULT_CONFIDENCE,
    progress: Progress | None = None,
) -> Release:
    """`release` into a folder, as `Release.write` writes it, exactly once: with a ledger, a retry
    of the same call after a crash finishes what was begun, or finds the folder, at no further cost.

    key: names the release; without one it is that of the plan and its cost. again: without a key,
    make another draw of a plan that the ledger has a release of. replace: the folder holds an
    earlier release, which is kept beside it under another name. confidence: of the tables'
    intervals where a group's target names none; the others as in `release`.

    Raises AlreadyReleased and KeyTaken, InputError for a folder that is taken, and as `release`;
    then nothing was charged or drawn. Raises FitplugError if the folder cannot be written after the
    charge, which the same call then finishes.
    """
    check_confidence(confidence)
    check_are_tables(tables)
    if ledger is None and (key is not None or again):
        raise BudgetError("key and again are of charges of a ledger: give the ledger")
    if key is not None and again:
        raise BudgetError("again is for releases without a key: give another draw another key")
    asked = Publication.prepare(
        plan,
        directory,
        contributions=contributions,
        ledger=ledger,
        within=within,
        what=what,
        key=key,
        again=again,
        replace=replace,
    )
    return asked.publish(tables, confidence=confidence, progress=progress).release


@dataclass(frozen=True)
class Published:
    """A release in its folder. earlier: where the release that was there before was moved to."""

    release: Release
    folder: Path
    earlier: Path | None = None


@dataclass(frozen=True)
class Publication:
    """A release that is asked for, and how far it has come. Made by `prepare`."""

    mechanism: Mechanism
    directory: Path
    ledger: Ledger | None
    request: Request
    replaces: bool
    state: State
    entry: Entry | None

    @classmethod
    def prepare(
        cls,
        plan: Plan,
        directory: str | os.PathLike[str],
        *,
        contributions: int = 1,
        ledger: Ledger | None = None,
        within: Which | None = None,
        what: str | None = None,
        key: str | None = None,
        again: bool = False,
        replace: bool = False,
    ) -> Publication:
        """Refuse what can be refused without data; charges nothing. For the arguments and what it
        raises see `publish`.
        """
        mechanism = Mechanism.of(plan, contributions)
        place = Path(directory).absolute()
        check_arrow()
        request = mechanism.request(
            what=what, key=key, within=within, again=again, output=write_path(place), in_folder=True
        )
        asked = cls(mechanism, place, ledger, request, replace, "new", None)._looked()
        try:
            return asked._checked()
        except FitplugError:
            now = asked._looked()
            if now.state != "published":  # by another process, in between
                raise
            return now

    def _looked(self) -> Publication:
        """The same in the state that the ledger knows, or that its folder tells of."""
        begun = check_ledger(self.ledger, self.request)
        if begun is None or self.ledger is None:
            return self
        stage = begun.stage
        found = self._at("charged" if stage.state == "begun" else stage.state, begun.entry)
        if stage.state == "made" and held_digest(self._folder(stage)) == stage.answers:
            # A process was killed after it had put the folder in place.
            self.ledger.mark_published(stage, write_path(self._folder(stage)))
            return found._at("published", begun.entry)
        return found

    def _checked(self) -> Publication:
        """The same, with answers that are staged taken as made. Raises FitplugError if it cannot go
        on from there.
        """
        if self.state == "published":
            return self
        staged = self._find_staged()
        if self.state == "made" and staged is None:
            raise self._lost()
        self._check_place()
        return self if staged is None else self._at("made", self.entry)

    @property
    def needs_counts(self) -> bool:
        """Whether noise is still to be drawn, which takes exact counts."""
        return self.state in ("new", "charged")

    def publish(
        self,
        tables: Tables | None = None,
        *,
        understood: Understood | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        files: TableFiles[Release] | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Go on from where the release has come to, until it is published.

        tables: exact counts; needed in the states "new" and "charged". understood: which rows are
        asked for, where there are no tables; a release of other rows is not this one. files: writes
        more into the folder. Raises as `publish` does.
        """
        if tables is not None:
            understood = Understood.of(tables)
        if self.state == "published":
            return self._published(understood)
        if self.state == "made":
            begun, staged = self, self._adopt()
        elif tables is None:
            raise InputError("this release needs exact counts; give tables")
        else:
            begun, staged = self._make(tables, progress)
        if staged is None:  # another process was first, and has published
            return begun._published(understood)
        begun._check_rows(staged.release, understood)
        return begun._write(staged, confidence, files)

    def _make(self, tables: Tables, progress: Progress | None) -> tuple[Publication, Staged | None]:
        """Charge, draw and stage: the release with its entry, and the answers that stand; None if
        these are published already.
        """
        mechanism = self.mechanism
        check_limit(tables, mechanism.contributions)
        answers = exact_answers(mechanism.plan, tables)
        seal = seal_of(tables)
        try:
            self._rehearse()
        except FitplugError:
            now = self._looked()
            if now.state != "published":  # by another process, since `prepare`
                raise
            return now, None
        begun = self
        if self.ledger is not None:
            try:
                charged = self.ledger.begin(self.request, seal)
            except BaseException:
                self._staging().forget_rehearsal()
                raise
            begun = self._at("charged", charged.entry)
            if charged.stage.state != "begun":  # by another process, since `prepare`
                return begun, begun._adopt()
        drawn = mechanism.draw(tables, answers, progress, begun.entry)
        with _writing(self.directory, _RETRY):
            try:
                staged = begun._staging().write(drawn)
            except OSError:
                stage = begun._stage()
                if stage is None or stage.state != "published":
                    raise
                return begun, None  # by another process, which removed what this one wrote
        _LOG.info("the answers %s are staged", staged.digest[:12])
        return begun, begun._enter(staged)

    def _rehearse(self) -> None:
        """Write the plan beside the folder, so that a place that cannot be written, or has no room
        for that, is found before the charge.
        """
        self._check_place()
        with _writing(self.directory, "nothing was charged; make room or name another place"):
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            # Another process may just have removed what it takes for a killed one's.
            with suppress(FileNotFoundError):
                self._staging().rehearse()

    def _enter(self, staged: Staged) -> Staged | None:
        """Enter staged answers as made, or take those that another process entered first."""
        if self.ledger is None or self.entry is None:
            return staged
        stands = self.ledger.mark_made(
            self.entry, staged.digest, counts=staged.release.seal, output=write_path(staged.folder)
        )
        if stands.state == "made" and stands.answers == staged.digest:
            return staged
        if stands.answers != staged.digest:
            staged.path.unlink(missing_ok=True)
        return self._adopt()

    def _adopt(self) -> Staged | None:
        """The staged answers that stand; None if they are published."""
        stage = self._stage()
        staged = self._find_staged()
        if stage is not None and stage.state == "published":
            return None
        if staged is None:
            again = self._stage()  # another process may just have published, and removed them
            if again is not None and again.state == "published":
                return None
            raise self._lost()
        return staged if stage is not None and stage.state == "made" else self._enter(staged)

    def _write(
        self, staged: Staged, confidence: float, files: TableFiles[Release] | None
    ) -> Published:
        """Write the folder from staged answers, move it into its place and enter that."""
        earlier = None
        with _writing(self.directory, _RETRY):
            try:
                with partial_folder(self.directory, self._staging().mark) as partial:
                    shutil.copyfile(staged.path, partial / ANSWERS)
                    fill(staged.release, partial, staged.digest, confidence, files)
                    earlier = self._put(partial, staged.digest)
            except OSError:
                if held_digest(self.directory) != staged.digest:
                    raise
                # Another process published these answers first, and removed what this one wrote.
        stage = self._stage()
        if self.ledger is not None and stage is not None:
            self.ledger.mark_published(stage, write_path(self.directory))
        _LOG.info("the answers %s are published", staged.digest[:12])
        self._remove_staged(staged.folder)
        return Published(staged.release, self.directory, earlier)

    def _put(self, partial: Path, digest: str) -> Path | None:
        """Move a complete folder into place; returns where an earlier release was moved to."""
        held = held_digest(self.directory)
        if held == digest:
            return None
        earlier = None
        if held is not None:
            try:
                self._check_place()
            except InputError as error:  # taken since it was looked at
                raise FitplugError(f"{error}; {_RETRY}") from None
            made = (self.directory / ANSWERS).stat().st_mtime
            earlier = set_aside(self.directory, made)
            if held_digest(earlier) == digest:  # put there by another process in between
                earlier.replace(self.directory)
                return None
        put_in_place(partial, self.directory)
        return earlier

    def _published(self, understood: Understood | None) -> Published:
        """The release that is published. Raises FitplugError if its folder is not there."""
        stage = self._stage()
        assert stage is not None
        folder = self._folder(stage)
        if held_digest(folder) == stage.answers:
            release = Release.read(folder)
            self._check_rows(release, understood)
            self._remove_staged(folder)
            return Published(release, folder)
        raise FitplugError(
            f"{self._number} was published in {folder} at {stage.time[:19]}, which does not hold "
            f"it any more; look beside it, as --replace moves releases to {folder.name}-<time>, or "
            "ask for another draw with a new key"
        )

    def _check_rows(self, release: Release, understood: Understood | None) -> None:
        """Raise KeyTaken if a release that was drawn is of other rows than those asked for."""
        told = Understood(release.rows, release.limited)
        if understood is None or told == understood:
            return
        assert self.entry is not None
        raise KeyTaken(
            f"{self._number} was drawn from {told}, and this release is of {understood}: nothing "
            "was charged; ask for what was drawn to finish it, or give another release another key",
            number=self.entry.id,
        )

    @property
    def _number(self) -> str:
        """The charge, as the subject of a sentence."""
        assert self.entry is not None
        assert self.ledger is not None
        return f"number {self.entry.id} of the ledger {self.ledger.path}"

    def _check_place(self) -> None:
        """Raise InputError if a folder cannot go to its place."""
        place = self.directory
        if place.exists() and not place.is_dir():
            raise InputError(f"{place} is a file; name another folder for the release")
        if place.is_symlink() or place.is_mount():  # no folder can be moved there
            what = "a link" if place.is_symlink() else "a mount point"
            raise InputError(f"{place} is {what}; name a folder of its own, such as one inside it")
        if not place.is_dir() or not any(place.iterdir()):
            return
        held = held_digest(place)
        if held is None:
            raise InputError(
                f"{place} holds files that are no fitplug release; name another folder"
            )
        staged = self._find_staged()
        if not self.replaces and (staged is None or staged.digest != held):
            raise InputError(
                f"{place} holds a release already; name another folder, or give --replace "
                "(replace=True) to keep that one beside it under another name"
            )

    def _find_staged(self) -> Staged | None:
        """Staged answers of this release: those that the ledger entered, if it did."""
        if self.entry is None:
            return None  # nothing was charged, so nothing is staged that was paid for
        stage = self._stage()
        wanted = None if stage is None else stage.answers
        return self._staging(stage).find(self.mechanism.contributions, wanted)

    def _remove_staged(self, folder: Path) -> None:
        """Remove what is left beside the folder, and beside the one that an earlier try named."""
        for place in {self.directory, folder}:
            Staging(place, self.mechanism.plan, self.entry).remove()

    def _staging(self, stage: Stage | None = None) -> Staging:
        """What stands beside the folder, or beside the one that a stage names."""
        folder = self.directory if stage is None else self._folder(stage)
        return Staging(folder, self.mechanism.plan, self.entry)

    def _at(self, state: State, entry: Entry | None) -> Publication:
        return dataclasses.replace(self, state=state, entry=entry)

    def _stage(self) -> Stage | None:
        if self.ledger is None or self.entry is None:
            return None
        return self.ledger.stages().get(self.entry.id)

    def _folder(self, stage: Stage) -> Path:
        """Where a stage says that the release is, or is to be."""
        if stage.output is None or stage.output == write_path(self.directory):
            return self.directory
        return Path(stage.output)

    def _lost(self) -> FitplugError:
        stage = self._stage()
        assert stage is not None
        assert self.entry is not None
        if stage.output is None:
            return KeyTaken(
                f"{self._number} was drawn in the memory of a process at {stage.time[:19]}, and "
                "noise is never drawn again; give another key",
                number=self.entry.id,
            )
        return FitplugError(
            f"{self._number} was drawn at {stage.time[:19]}, but its staged answers are gone from "
            f"beside {stage.output}, or damaged; put them back, or ask for another draw with a new "
            "key"
        )


_RETRY = "the release is not finished: run the same again, which charges nothing more"


@contextmanager
def _writing(directory: Path, then: str) -> Iterator[None]:
    """Turns an OSError in the block into a FitplugError that names the folder, and says what then
    is to be done.
    """
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{directory}: {why}; {then}") from None
