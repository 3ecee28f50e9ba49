"""The charge of a release into a folder, and the errors that name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fitplug.errors import FitplugError, KeyTaken
from fitplug.ledger import Entry, Ledger, Stage
from fitplug.release import Release
from fitplug_opendp.counted_rows import CountedRows

ReleaseState: TypeAlias = Literal["new", "charged", "drawn", "published"]
"""How far a release has come: nothing was charged; charged, and no answers were drawn; drawn, and
not in its folder; published.
"""


@dataclass(frozen=True)
class ReleaseCharge:
    """An entry of a ledger that pays for a release into a folder.

    Attributes:
        ledger: The ledger.
        entry: The entry, whose number identifies the charge.
    """

    ledger: Ledger
    entry: Entry

    def read_stage(self) -> Stage | None:
        """Read from the ledger how far the release has come."""
        return self.ledger.stages().get(self.entry.id)

    def check_rows(self, release: Release, rows: CountedRows) -> None:
        """Raise KeyTaken if this release was drawn from other rows than those that are given."""
        drawn_from = CountedRows(release.rows, release.limited)
        if rows == drawn_from:
            return
        raise KeyTaken(
            f"{self._subject} was drawn from {drawn_from}, and this release is of {rows}: nothing "
            "was charged; ask for what was drawn to finish it, or give another release another key",
            number=self.entry.id,
        )

    def make_lost_answers_error(self) -> FitplugError:
        """Make the error for answers that the ledger has as drawn, and that are nowhere."""
        stage = self.read_stage()
        assert stage is not None
        if stage.output is None:
            return KeyTaken(
                f"{self._subject} was drawn in the memory of a process at {stage.time[:19]}, and "
                "noise is never drawn again; give another key",
                number=self.entry.id,
            )
        return FitplugError(
            f"{self._subject} was drawn at {stage.time[:19]}, but its staged answers are gone from "
            f"beside {stage.output}, or damaged; put them back, or ask for another draw with a new "
            "key"
        )

    def make_lost_folder_error(self, stage: Stage, folder: Path) -> FitplugError:
        """Make the error for a published release that its folder does not hold any more."""
        return FitplugError(
            f"{self._subject} was published in {folder} at {stage.time[:19]}, which does not hold "
            f"it any more; look beside it, as --replace moves releases to {folder.name}-<time>, or "
            "ask for another draw with a new key"
        )

    @property
    def _subject(self) -> str:
        """The charge, as the subject of a sentence."""
        return f"number {self.entry.id} of the ledger {self.ledger.path}"
