"""The folder of one release, and the staged answers beside it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, make_partial_folder, move_into_place, set_aside
from fitplug.ledger import Entry, Ledger, Stage
from fitplug.plan import Plan
from fitplug.release import (
    ANSWER_PARTS,
    PLAN,
    MoreFiles,
    Release,
    complete_folder,
    read_digest,
    write_tables,
)
from fitplug_opendp.release_request import ReleaseCharge
from fitplug_opendp.staging import (
    RETRY,
    StagedAnswers,
    StagingArea,
    check_charges_are_known,
    encode_path,
    find_held_release,
    report_write_errors,
)


@dataclass(frozen=True)
class ReleaseFolder:
    """Where one release goes: its folder, and the hidden files beside it until it is published.

    Attributes:
        directory: The absolute path of the folder.
        plan: The plan that is released.
        contributions: The number of records of one person that the release charges for.
        replace: Whether an earlier release in the folder is moved aside.
        charge: The charge; None before it, and for a release that no ledger records.
    """

    directory: Path
    plan: Plan
    contributions: int
    replace: bool
    charge: ReleaseCharge | None = None

    @property
    def entry(self) -> Entry | None:
        """The entry of the charge; it is None if nothing was charged."""
        return None if self.charge is None else self.charge.entry

    @property
    def staging(self) -> StagingArea:
        """The staging area beside the folder."""
        return StagingArea(self.directory, self.plan, self.entry)

    def read_stage(self) -> Stage | None:
        """Read from the ledger how far the release has come; return None if nothing was charged."""
        return None if self.charge is None else self.charge.read_stage()

    def locate(self, stage: Stage) -> Path:
        """Return the folder that a stage names, which an earlier try may have chosen."""
        if stage.output is None or stage.output == encode_path(self.directory):
            return self.directory
        return Path(stage.output)

    def find_staged(self) -> StagedAnswers | None:
        """Find staged answers of this release; if the ledger has some as drawn, only those."""
        if self.charge is None:
            return None  # answers that nothing was charged for are never taken
        stage = self.read_stage()
        folder, digest = self.directory, None
        if stage is not None:
            folder, digest = self.locate(stage), stage.answers
        return StagingArea(folder, self.plan, self.entry).find(self.contributions, digest)

    def remove_staged(self, folder: Path) -> None:
        """Remove what is left beside this folder, and beside one that an earlier try named."""
        for directory in {self.directory, folder}:
            StagingArea(directory, self.plan, self.entry).remove()

    def check_charges(self, ledger: Ledger) -> None:
        """Check that nothing lies here which tells of a draw that the ledger does not know of.

        Raises:
            LedgerError: A release or staged answers name a charge that the ledger does not have.
            InputError: The folder where the release was begun holds files that may be its release.
        """
        check_charges_are_known(ledger, LocalPlace(self.directory))
        stage = self.read_stage()
        first = self.directory if stage is None else self.locate(stage)
        if stage is None or first == self.directory:
            return
        check_charges_are_known(ledger, LocalPlace(first))
        if first.is_dir() and any(first.iterdir()) and read_digest(first) is None:
            raise InputError(
                f"{first}, where number {stage.entry} of the ledger {ledger.path} was begun, holds "
                "files that may be its release, damaged; put the release back there, or move the "
                "files away if they are something else"
            )

    def check_free(self) -> None:
        """Raise InputError if the release cannot go to its folder."""
        held = find_held_release(self.directory)
        if held is None:
            return
        staged = self.find_staged()
        if not self.replace and (staged is None or staged.digest != held):
            raise InputError(
                f"{self.directory} holds a release already, and another draw costs its rho again. "
                "Use that release, or name another folder; with a ledger, which counts each draw, "
                "--replace (replace=True) keeps that one beside it under another name"
            )

    def check_writable(self) -> None:
        """Write the plan beside the folder, to find before the charge whether that is possible.

        Raises:
            FitplugError: The folder is taken, or nothing can be written beside it.
        """
        self.check_free()
        remedy = "nothing was charged; make room or name another place"
        with report_write_errors(self.directory, remedy):
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            # Another process may remove the file at this moment, as if a killed one had left it.
            with suppress(FileNotFoundError):
                self.staging.keep_plan()

    def write(
        self, staged: StagedAnswers, confidence: float, files: MoreFiles[Release] | None
    ) -> Path | None:
        """Write the folder from staged answers, and move it into its place.

        Args:
            staged: The answers, which the ledger has as drawn.
            confidence: The confidence of the intervals of groups whose target names none.
            files: What the caller adds to the folder.

        Returns:
            Where an earlier release was moved; None if there was none.

        Raises:
            FitplugError: The folder cannot be written, or it was taken by another release.
        """
        earlier = None
        with report_write_errors(self.directory, RETRY):
            try:
                with make_partial_folder(self.directory, self.staging.label) as partial:
                    self._fill(partial, staged, confidence, files)
                    earlier = self._move_into_place(partial, staged.digest)
            except OSError:
                if read_digest(self.directory) != staged.digest:
                    raise
                # Another process published these answers first, and removed what this one wrote.
        return earlier

    def _fill(
        self,
        partial: Path,
        staged: StagedAnswers,
        confidence: float,
        files: MoreFiles[Release] | None,
    ) -> None:
        """Write a complete release into a new folder."""
        (partial / ANSWER_PARTS).mkdir()
        for path in (staged.path / ANSWER_PARTS).iterdir():
            shutil.copyfile(path, partial / ANSWER_PARTS / path.name)
        release, place = staged.release, LocalPlace(partial)
        tables = write_tables(place, release, staged.digest, confidence)
        complete_folder(place, release, staged.digest, tables, confidence=confidence, files=files)

    def _move_into_place(self, partial: Path, digest: str) -> Path | None:
        """Move a complete folder into its place; return where an earlier release was moved."""
        held = read_digest(self.directory)
        if held == digest:
            return None
        earlier = None
        if held is not None:
            try:
                self.check_free()
            except InputError as error:  # another release came there since the first check
                raise FitplugError(f"{error}; {RETRY}") from None
            made = (self.directory / PLAN).stat().st_mtime
            earlier = set_aside(self.directory, made)
            if read_digest(earlier) == digest:  # another process put it there in between
                earlier.replace(self.directory)
                return None
        move_into_place(partial, self.directory)
        return earlier
