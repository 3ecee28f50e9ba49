"""The steps of a release: charge, draw, store, publish. Each happens once, even if runs are killed.

The ledger and the disk together determine the state of a release:

| state | in the ledger | on the disk | what the same call does |
|---|---|---|---|
| new | nothing | nothing of this release, or its plan | counts and charges |
| charged | the charge, `charged` | parts of the answers, without their manifest | draws |
| staged | the charge, `charged` | all answers with their manifest, staged | enters them as drawn |
| drawn | their digest, `drawn` | the same, and maybe some tables | writes tables, publishes |
| in place | their digest, `drawn` | the complete folder | enters that it is published |
| published | their digest, `published` | the complete folder, and maybe leftovers | reads it |

No step is undone. Nobody sees answers before the ledger has entered them as drawn, so until then
noise may be drawn anew at no further cost. From then on these answers are the release, and noise is
never drawn again. If two processes make one release, the ledger accepts the answers of the first,
and the other process publishes the same answers. A run stages its answers

* in an area of its own, and draws all of them. The leftovers of a killed run are used only if their
  manifest is complete; or
* in one area for all runs (`Executor.is_resumed`). The first writer of a part decides its content,
  and an existing part is never drawn again. Such runs charge with a seal of the exact counts, and a
  run whose counts have another seal is refused: answers drawn partly from one data set and partly
  from another would cost more than the charge.

A ledger may be an older copy of itself. So the folder and the files beside it are inspected before
anything is charged or drawn: answers that the charge paid for are entered again, and answers that
name a charge unknown to the ledger are refused.

Three kinds of release take these steps, each with its own places to look and write:

| class | what is published |
|---|---|
| `FolderPublication` (`folder_release`) | a folder, of whole answers or of parts |
| `MemoryPublication` (`releases`) | nothing on the disk: the answers are never staged |
| `PeriodPublication` (`fitplug_dask.series.period`) | one period, within the charge of its series |
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from fitplug.errors import AlreadyReleased, FitplugError, KeyTaken
from fitplug.ledger import Entry, Ledger, ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.releases import Period, Release, write_manifest
from fitplug_opendp.executor import ExactCounts, Executor
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.release_request import ReleaseState, log_duration
from fitplug_opendp.staging import RETRY, StagedAnswers, Staging

if TYPE_CHECKING:
    from typing_extensions import Self

_LOG = logging.getLogger(__name__)

_TRY = "Run it again. If there is a ledger, its entries show whether this run was charged."

C = TypeVar("C", bound=ExactCounts)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Publication(ABC, Generic[C, R]):
    """A release that is charged, drawn and published once, and its current state.

    Attributes:
        ledger: The ledger to charge; None without a ledger.
        noise_source: The noise, and its cost.
        executor: The executor, which draws the noise.
        period: The period of a series whose answers these are; None for all of a plan.
        charge: The charge and its stage; None before it, and without a ledger.
        staged: Complete answers that are not published; None if there are none.
        run: The identifier of this run.
    """

    ledger: Ledger | None
    noise_source: NoiseSource
    executor: Executor[C]
    period: Period | None = None
    charge: StagedCharge | None = None
    staged: StagedAnswers | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def plan(self) -> Plan:
        """The plan whose noise is drawn."""
        return self.noise_source.plan

    @property
    def is_resumed(self) -> bool:
        """Whether all runs of the release stage their answers in one area."""
        return self.executor.is_resumed

    @property
    def state(self) -> ReleaseState:
        """The state of the release."""
        if self.charge is None:
            return "new"
        return self.charge.stage.state if self.staged is None else "drawn"

    @property
    def needs_counts(self) -> bool:
        """Whether noise must still be drawn, which needs exact counts."""
        return self.staged is None and self.state != "published"

    def check(self) -> Self:
        """Find the state of the release, and check that it can continue. Nothing is charged.

        Raises:
            FitplugError: It cannot.
        """
        begun = self.find_charge()
        try:
            with log_duration("check"):
                prepared = begun.find_staged()
                prepared._check_can_continue()
                return prepared
        except FitplugError:
            current = begun.find_charge()
            if current.charge == begun.charge:
                raise
            # Another process has taken further steps meanwhile.
            return current if current.state == "published" else current.check()

    def publish(self, find_counts: Callable[[], C] | None = None) -> R:
        """Continue from the current state of the release until it is published.

        Args:
            find_counts: A function that returns the exact counts, if noise must still be drawn.

        Returns:
            The published release.

        Raises:
            FitplugError: The release is refused, or cannot be finished now.
            KeyboardInterrupt: This process was interrupted. After the charge, its message says that
                the same call finishes the release.
        """
        begun = self
        try:
            if not self.needs_counts:
                return self.finish()
            assert find_counts is not None
            with log_duration("count"):
                counts = find_counts()
            begun = self._charge(counts)
            return begun._publish(counts)
        except KeyboardInterrupt:
            with contextlib.suppress(FitplugError, OSError):
                if begun.find_charge().find_staged().state in ("charged", "drawn"):
                    raise KeyboardInterrupt(RETRY) from None
            raise
        except (FitplugError, OSError, MemoryError) as error:
            current = begun._find_charge_after(error)
            if current.state == "published":  # by another process, meanwhile
                return current._read_published()
            if isinstance(error, FitplugError):
                is_explained = type(error) is not FitplugError or RETRY in str(error)
                if current.charge is None or is_explained:
                    raise
                raise FitplugError(f"{str(error).rstrip('.')}. {RETRY}") from None
            words = "out of memory" if isinstance(error, MemoryError) else error.strerror
            why = (words or "cannot be written").lower()
            # In memory, a release without a key is never resumed.
            remedy = _TRY if current.charge is None else RETRY
        raise FitplugError(f"{self}: {why}. {remedy}")

    def finish(self) -> R:
        """Publish the drawn answers, or find them published."""
        entered = self if self.staged is None else self._enter_answers(self.staged)
        if entered.staged is None:
            return entered._read_published()
        return entered._write(entered.staged)

    def _find_charge_after(self, error: Exception) -> Self:
        """Find the state of the release after an error; raise the error if it cannot be found."""
        try:
            return self.find_charge()
        except (AlreadyReleased, KeyTaken):  # another process did it meanwhile
            raise
        except FitplugError:
            if isinstance(error, FitplugError):
                raise error from None
            raise

    # The steps

    def _publish(self, counts: C) -> R:
        """Take the remaining steps after the charge."""
        if not self.needs_counts:  # another process has drawn
            return self.finish()
        drawn = self._draw(counts)
        if self.charge is not None:
            return drawn.finish()
        try:
            return drawn.finish()
        except BaseException:  # nobody will ever use these answers
            assert drawn.staged is not None
            drawn.staged.discard()
            raise

    def _charge(self, counts: C) -> Self:
        """Charge the ledger, if there is one, or find the charge that this release resumes."""
        self._check_counts(counts)
        if self.ledger is None:
            return self
        return replace(self, charge=self._begin(ReleaseCharges(self.ledger), counts)).find_staged()

    def _draw(self, counts: C) -> Self:
        """Draw all missing parts, and make them and their manifest durable."""
        staging = self._stage()
        try:
            staging.open()
            with log_duration("draw"):
                parts = self.executor.draw(self.noise_source, staging, counts, self.run)
            write_manifest(staging.place, self._describe(counts), parts, self.period)
            # If runs share an area, the first manifest counts.
            staged = staging.read(self.plan, self.period)
        except BaseException:
            # Another run may have entered complete answers as drawn.
            is_taken = self.charge is not None and (self.is_resumed or staging.has_manifest())
            if not is_taken:
                staging.discard()
            raise
        _LOG.info("the answers %s are staged", staged.digest[:12])
        return replace(self, staged=staged)

    def _enter_answers(self, staged: StagedAnswers) -> Self:
        """Enter staged answers as drawn, or use the answers that another process entered first."""
        if self.charge is None or self.ledger is None:
            return self
        stage = self.charge.stage
        if stage.state == "charged":
            stage = ReleaseCharges(self.ledger).record_draw(
                self.charge.entry,
                staged.digest,
                counts=staged.release.seal,
                folder=self._locate(staged),
            )
        entered = replace(self, charge=StagedCharge(self.charge.entry, stage))
        if stage.answers == staged.digest and stage.state == "drawn":
            return entered
        is_own = not self.is_resumed and staged.staging.place == self._stage().place
        if stage.answers != staged.digest and is_own:  # another run may be reading its own
            staged.discard()  # nobody has seen them
        return replace(entered, staged=None).find_staged()

    def _describe(self, counts: C) -> Release:
        """Make the release with only the answers about records outside the domain.

        They are part of the manifest, which is durable as a whole or not at all, and nobody sees
        them before that.
        """
        return self.noise_source.describe(
            counts.rows,
            counts.published_seal,
            counts.list_outside_attributes(self.plan),
            self._get_entry(),
            self.noise_source.draw_coverage(counts.outside, self.run),
        )

    def _get_entry(self) -> Entry | None:
        """Return the charge that the answers name; None if no ledger was charged."""
        return None if self.charge is None else self.charge.entry

    # The steps of each kind of release

    @abstractmethod
    def __str__(self) -> str:
        """Name the release for people."""

    @abstractmethod
    def find_charge(self) -> Self:
        """Return the publication with its charge and stage, as found in the ledger and folders."""

    @abstractmethod
    def find_staged(self) -> Self:
        """Return the publication with its staged answers, if there are any.

        Raises:
            FitplugError: The ledger has entered answers as drawn that are missing, or answers are
                damaged.
        """

    @abstractmethod
    def _check_can_continue(self) -> None:
        """Raise FitplugError if the release cannot be finished from its state."""

    @abstractmethod
    def _check_counts(self, counts: C) -> None:
        """Raise FitplugError, before the charge, if the release cannot use these counts."""

    @abstractmethod
    def _begin(self, charges: ReleaseCharges, counts: C) -> StagedCharge:
        """Charge the ledger, or find the charge that this release resumes."""

    @abstractmethod
    def _stage(self) -> Staging:
        """Return the area in which this run stages its answers."""

    @abstractmethod
    def _locate(self, staged: StagedAnswers) -> str | None:
        """Return the folder of the answers, as the ledger records it; None for memory."""

    @abstractmethod
    def _write(self, staged: StagedAnswers) -> R:
        """Write the rest of the release, publish it, and enter it as published."""

    @abstractmethod
    def _read_published(self) -> R:
        """Read the published release. Raises FitplugError if it is missing."""
