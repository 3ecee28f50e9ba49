"""Folders of periods: staged answers, sealed counts, and the folder that a period is published in.

A period is one part of the answers. It is staged as all answers are (`fitplug_opendp.staging`), in
a hidden folder that only its owner can read, until the ledger has entered that it is drawn. Then
the folder of the period is written from it and moved into its place in one step. What the ledger
has not entered was seen by nobody. The staged part stays until the series is over.

The exact counts of the periods so far, which the answers of later ones need, are sealed in the same
hidden folder, encrypted with AES-GCM. The key is derived from a nonce, and this from the secret of
the key file, which lies apart. Anyone with the counts and the key file can subtract the exact
answers from the released ones, which reveals everything. Both are removed when the last period is
drawn, or the series is closed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.errors import InputError
from fitplug.files import LocalPlace, make_partial_folder, move_into_place
from fitplug.plan import Plan
from fitplug.release import (
    ANSWER_PARTS,
    MANIFEST,
    PartialRelease,
    Period,
    PeriodAnswers,
    Release,
    complete_period_folder,
    name_part,
    read_period_answers,
    write_period_answers,
)
from fitplug_dask.encryption import decrypt_long, encrypt_long
from fitplug_dask.series.period_counts import PeriodCounts
from fitplug_dask.series.record import SeriesRecord
from fitplug_opendp.output import Output
from fitplug_opendp.staging import Staging, remove_folder

_LABEL = "period"
_OWNER_ONLY = 0o600


def locate_hidden(folder: Path, series: str) -> LocalPlace:
    """Return the hidden folder of what is confidential until the last period is drawn.

    Args:
        folder: The absolute path of the folder of the series.
        series: The digest of the series.
    """
    return LocalPlace(folder.with_name(f".{folder.name}.{series[:16]}.series"), _OWNER_ONLY)


@dataclass(frozen=True)
class PeriodFolders:
    """The folder of a series, and the hidden one beside it.

    Attributes:
        folder: The absolute path of the folder of the series.
        plan: The plan.
        record: What the series is.
    """

    folder: Path
    plan: Plan
    record: SeriesRecord

    @property
    def count(self) -> int:
        """The number of all periods."""
        return self.plan.domain[self.record.periods].size

    @property
    def hidden(self) -> LocalPlace:
        """The hidden folder of what is confidential until the last period is drawn."""
        return locate_hidden(self.folder, self.record.digest)

    def get_period(self, index: int) -> Period:
        """Return what the answers of a period say of it."""
        return Period(self.record.digest, self.record.periods, index)

    def locate(self, index: int) -> Path:
        """Return the folder of a period."""
        width = len(str(self.count))
        return self.folder / f"period-{index + 1:0{width}}"

    def open_hidden(self) -> None:
        """Make the hidden folder.

        Raises:
            OSError: It cannot be made.
        """
        self.hidden.path.mkdir(mode=0o700, exist_ok=True)

    def stage(self, own: PeriodAnswers, **described: Any) -> str:
        """Make noisy answers durable that nobody has seen, and return their digest.

        Args:
            own: The answers.
            described: What `write_period_answers` is told of the series.

        Raises:
            OSError: They cannot be written.
        """
        self.open_hidden()
        staging = self._output(own.period.index).stage(_LABEL, "one part", secrets.token_hex(4))
        try:
            staging.open()
            return write_period_answers(staging.place, self.plan, own, **described)
        except BaseException:
            staging.discard()
            raise

    def find_staged(
        self, index: int, digest: str | None
    ) -> tuple[Staging, PeriodAnswers, str] | None:
        """Find staged answers of a period.

        Args:
            index: The index of the period.
            digest: The digest that they must have; None accepts any.

        Returns:
            Where they are, the answers and their digest; None if there is none that fits.

        Raises:
            InputError: Any are wanted, and those that are there cannot be read.
        """
        period = self.get_period(index)
        found = self._output(index).find_staged(self.plan, _LABEL, digest, self._is_own, period)
        if found is None:
            return None
        return found.staging, *read_period_answers(found.staging.place, self.plan, period)

    def find_later(self, index: int) -> Path | None:
        """Find something that is made only after a period is drawn; None if there is nothing."""
        later = range(index + 1, self.count)
        made = [self.locate(number) for number in later]
        made += [self.hidden.path / name_counts(number) for number in later]
        staged = (self._output(number).list_complete(_LABEL) for number in later)
        made += [Path(str(area.place)) for areas in staged for area in areas]
        return next((path for path in made if path.exists()), None)

    def read(self, index: int) -> tuple[PeriodAnswers, str] | None:
        """Read the published answers of a period, and their digest; None if there are none.

        Raises:
            InputError: They are damaged or were edited, or the rest of their folder is there.
            OSError: They cannot be read.
        """
        folder = LocalPlace(self.locate(index))
        if not os.path.lexists(folder.path):
            return None
        if not folder.join(ANSWER_PARTS).list_sizes().keys() >= {MANIFEST, name_part(0)}:
            # The folder appears with its answers, so they were there.
            raise InputError(
                f"{folder}: a file of its {ANSWER_PARTS} is missing; put the folder back, as noise "
                "is never drawn again"
            )
        return read_period_answers(folder, self.plan, self.get_period(index))

    def publish(
        self, release: PartialRelease, staged: Staging, digest: str, confidence: float
    ) -> None:
        """Put the folder of the newest period in its place.

        Args:
            release: What is released so far, with this period.
            staged: Where its answers are.
            digest: Their digest.
            confidence: The confidence of the intervals of groups whose target has none.

        Raises:
            OSError: The folder cannot be written.
        """
        index = release.drawn - 1
        target = self.locate(index)
        try:
            with make_partial_folder(target) as partial:
                answers = LocalPlace(partial).join(ANSWER_PARTS)
                for name in (name_part(0), MANIFEST):
                    answers.replace(name, staged.place.join(ANSWER_PARTS).read(name))
                complete_period_folder(release, partial, confidence, digest)
                move_into_place(partial, target)
        except OSError:
            held = self.read(index)
            if held is None or held[1] != digest:
                raise
            # Another process published these answers first.

    def discard(self, index: int, digest: str) -> None:
        """Remove staged answers that are not the release, and that nobody has seen."""
        found = self.find_staged(index, digest)
        if found is not None:
            found[0].discard()

    def remove_staged(self, index: int, digest: str) -> None:
        """Remove what the draws of a published period left, except for the published answers.

        These stay until the series is over. They tell that the period was drawn, also if its
        folder is lost and the ledger is an older copy.
        """
        with suppress(OSError):
            kept = self.find_staged(index, digest)
            name = f".{self._name_answers(index)}."
            for path in list(self.hidden.path.iterdir()):
                is_kept = kept is not None and str(path) == str(kept[0].place)
                if path.name.startswith((name, f".{name}")) and not is_kept:
                    remove_folder(path)
            for path in self.folder.glob(f".{self.locate(index).name}.*"):
                shutil.rmtree(path, ignore_errors=True)

    def remove_hidden(self) -> None:
        """Remove the hidden folder, and what killed processes left in that of the series."""
        self.hidden.remove_all()
        with suppress(OSError):
            for path in self.folder.glob(".*.partial"):
                if path.is_file():
                    path.unlink(missing_ok=True)

    def _output(self, index: int) -> Output:
        """Return what the answers of a period are staged beside, in the hidden folder."""
        return Output(LocalPlace(self.hidden.path / self._name_answers(index), _OWNER_ONLY))

    def _name_answers(self, index: int) -> str:
        return f"answers-{index + 1:05}"

    def _is_own(self, release: Release) -> bool:
        """Return whether answers name the charge of this series."""
        entry = release.entry
        return entry is not None and (entry.id, entry.time) == (self.record.entry, self.record.time)


def name_counts(index: int) -> str:
    """Name the file of the sealed counts of a period in the hidden folder."""
    return f"counts-{index + 1:05}"


@dataclass(frozen=True, repr=False)
class SealedCounts:
    """The encrypted counts of a series.

    Attributes:
        place: The hidden folder that holds them.
        nonce: What hides the counts in their seals, and what their key is derived from.
        series: The digest of the series.
    """

    place: LocalPlace
    nonce: bytes
    series: str

    def __repr__(self) -> str:
        return "SealedCounts()"

    def keep(self, index: int, counts: PeriodCounts) -> PeriodCounts:
        """Make the counts of a period durable, unless there are some, and return those that are.

        Raises:
            OSError: They cannot be written.
            InputError: Those that are there are damaged.
        """
        content = encrypt_long(self._key, counts.encode(), self._name_context(index))
        self.place.create(name_counts(index), content)
        return self.read(index)

    def has(self, index: int) -> bool:
        """Return whether the counts of a period are there."""
        return name_counts(index) in self.place.list_sizes()

    def read(self, index: int) -> PeriodCounts:
        """Read the counts of a period.

        Raises:
            InputError: They are missing or damaged, or are of another period or series.
            OSError: They cannot be read.
        """
        try:
            encrypted = self.place.read(name_counts(index))
            return PeriodCounts.decode(
                decrypt_long(self._key, encrypted, self._name_context(index))
            )
        except (FileNotFoundError, ValueError):
            raise InputError(
                f"{self.place}: the sealed counts of period {index + 1} are missing or damaged; "
                "put the files back: without them no later period can be drawn"
            ) from None

    def seal(self, index: int, counts: PeriodCounts) -> str:
        """Compute the seal of the counts of a period, which tells nothing of them, in hex."""
        said = f"the seal of period {index} of {self.series}:".encode()
        return hmac.new(self.nonce, said + counts.encode(), hashlib.sha256).hexdigest()

    @property
    def _key(self) -> bytes:
        said = f"the key of the counts of {self.series}".encode()
        return hmac.new(self.nonce, said, hashlib.sha256).digest()

    def _name_context(self, index: int) -> bytes:
        return f"period {index} of {self.series}".encode()
