"""Staging: the folder where answers are until they are published.

On a file system it is hidden beside the output, and only its owner can read it. In a store, where
no folder can be moved, it is the output, which is no release until its record is written. A mark
says which charge the parts belong to: parts of another charge are never taken.

Answers are complete when their manifest is there, which is written last. Who looks for complete
answers finds those of any run; what a killed run left without a manifest was seen by nobody.
"""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, Place
from fitplug.plan import Plan
from fitplug.release import (
    ANSWER_PARTS,
    MANIFEST,
    PartedAnswers,
    Period,
    Release,
    name_part,
    read_manifest,
)
from fitplug_opendp.earlier_runs import RETRY, report_write_errors

MARK = ".unfinished-release"


@dataclass(frozen=True)
class Staging:
    """A folder of the answers of one release that is not published.

    Attributes:
        place: The folder.
        label: What distinguishes this release: the charge, and the plan.
        mark: The content of the mark: the label, and how the answers are cut into parts.
        output: The folder where the release goes.
    """

    place: Place
    label: str
    mark: str
    output: Place

    def open(self) -> None:
        """Make the folder, and mark it as that of this release.

        Raises:
            InputError: It is marked as another release's.
            FitplugError: It cannot be written.
        """
        with report_write_errors(Path(str(self.output)), RETRY):
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

    def has_manifest(self) -> bool:
        """Return whether the answers were complete once."""
        return MANIFEST in self.place.join(ANSWER_PARTS).list_sizes()

    def read(self, plan: Plan, period: Period | None = None) -> StagedAnswers:
        """Read the manifest of complete answers, all of a plan's or those of a period.

        Raises:
            InputError: It is missing or damaged.
            OSError: It cannot be read.
        """
        fields, digest = read_manifest(self.place, plan, period)
        return StagedAnswers(self, Release(**fields), digest)

    def check(self, answers: PartedAnswers) -> None:
        """Check that all parts are there; on a file system also that they are not damaged.

        Those of a store are read, and checked, when the tables are computed.

        Raises:
            InputError: A part is missing or damaged.
            OSError: A part cannot be read.
        """
        if missing := self.list_missing(len(answers.parts)):
            raise InputError(f"part {min(missing)} of {self.place} is missing")
        if isinstance(self.place, LocalPlace):
            for part in answers.parts:
                answers.read_part(part.number)

    def discard(self) -> None:
        """Remove answers that nobody will finish, and that nobody has seen.

        In a store the mark stays. A worker may still write a part that it was drawing, and the next
        release that goes there would take that part for its own.
        """
        if isinstance(self.place, LocalPlace):
            remove_folder(self.place.path)
            return
        with suppress(OSError):
            answers = self.place.join(ANSWER_PARTS)
            for name in answers.list_sizes():
                answers.remove(name)


@dataclass(frozen=True)
class StagedAnswers:
    """Noisy answers that are complete and durable, and not in their place yet.

    Attributes:
        staging: Where they are.
        release: Their release, which reads them when they are needed.
        digest: Their digest.
    """

    staging: Staging
    release: Release
    digest: str

    @property
    def parts(self) -> PartedAnswers:
        """The answers, of which parts are read when they are needed."""
        assert isinstance(self.release.answers, PartedAnswers)
        return self.release.answers


def remove_folder(path: Path) -> None:
    """Remove a folder, which nobody finds half removed, or a file."""
    with suppress(OSError):
        if not path.is_dir():
            path.unlink()
            return
        path = path.rename(path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"))
    shutil.rmtree(path, ignore_errors=True)
