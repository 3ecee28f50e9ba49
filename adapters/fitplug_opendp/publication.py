"""The steps of a release: charge, draw, store, publish. Each happens once, whatever is killed.

How far a release has come is what its ledger and the disk together say:

| state | in the ledger | on the disk | what the same call does |
|---|---|---|---|
| new | nothing | nothing of this release, or its plan | counts and charges |
| charged | the charge, `charged` | parts of the answers, without their manifest | draws |
| staged | the charge, `charged` | all answers with their manifest, staged | enters them as drawn |
| drawn | their digest, `drawn` | the same, and maybe some tables | writes tables, publishes |
| in place | their digest, `drawn` | the complete folder | enters that it is published |
| published | their digest, `published` | the complete folder, and maybe leftovers | reads it |

No step is taken back. Nobody has seen answers before the ledger has entered them as drawn, so until
then noise may be drawn anew at no further cost. From then on these answers are the release, and
noise is never drawn again. When two processes make one release, the ledger takes the answers of the
first, and the other process publishes the same answers. A run stages its answers

* in an area of its own, and draws all of them. What a killed run left there is never taken, unless
  its manifest is there; or
* in one area for all runs (`Executor.is_resumed`). Whoever writes a part first decides what it
  holds, and a part that is there is never drawn again. Such runs charge with a seal of the exact
  counts, and a run whose counts have another seal is refused: answers of which some are drawn from
  one dataset and some from another would cost more than was charged.

A ledger may be an older copy of itself. So what lies in the folder and beside it is looked at
before anything is charged or drawn: what the charge paid for is entered again, and what names a
charge that the ledger does not have is refused.

A release in memory takes the first two steps only (`fitplug_opendp.releases`), and a period of a
series takes them within one charge of all periods (`fitplug_dask.series`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from fitplug.errors import FitplugError, InputError
from fitplug.ledger import ReleaseCharges, StagedCharge
from fitplug.release import (
    MoreFiles,
    Release,
    check_names,
    complete_folder,
    name_files,
    read_folder,
    write_manifest,
)
from fitplug.workload import DEFAULT_CONFIDENCE
from fitplug_opendp.count_checks import check_declared, check_is_enforced, check_replaced_rows
from fitplug_opendp.executor import ExactCounts, Executor
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.output import Output
from fitplug_opendp.release_progress import (
    ReleaseProgress,
    ReleaseRequest,
    log_duration,
    make_lost_folder_error,
)
from fitplug_opendp.staging import (
    RETRY,
    StagedAnswers,
    Staging,
    remove_kept_plan,
    report_write_errors,
)

_LOG = logging.getLogger(__name__)

C = TypeVar("C", bound=ExactCounts)


@dataclass(frozen=True)
class PublishedRelease:
    """A release in its folder.

    Attributes:
        release: The release.
        output: Where it is.
        earlier: Where the release that was there before was moved; None if there was none.
    """

    release: Release
    output: Output
    earlier: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Publication(ReleaseProgress, Generic[C]):
    """A release into a folder, and how far it has come. `Publication.prepare` makes it.

    Attributes:
        noise_source: The noise, and what it costs.
        executor: Who draws the noise and writes the tables.
        confidence: The confidence of the intervals of groups whose target has none.
        files: What the caller adds to the folder.
    """

    noise_source: NoiseSource
    executor: Executor[C]
    confidence: float = DEFAULT_CONFIDENCE
    files: MoreFiles[Release] | None = None

    @classmethod
    def prepare(
        cls,
        request: ReleaseRequest,
        output: Output,
        executor: Executor[C],
        *,
        confidence: float = DEFAULT_CONFIDENCE,
        files: MoreFiles[Release] | None = None,
    ) -> Publication[C]:
        """Refuse what can be refused without data. Nothing is charged.

        Args:
            request: The release.
            output: Where it goes.
            executor: Who draws the noise and writes the tables.
            confidence: The confidence of the intervals of groups whose target has none.
            files: What the caller adds to the folder.

        Returns:
            The publication in the state that the ledger and the disk tell.

        Raises:
            FitplugError: The release is refused; see `fitplug.release`.
        """
        check_replaced_rows(request.plan, request.rows.rows)
        check_declared(request.plan, is_enforced=request.is_enforced)
        if not executor.is_resumed and not output.list_local():
            raise InputError(f"{output} is in a store, which takes releases in parts only")
        noise_source = NoiseSource.from_plan(request.plan, request.contributions)
        ledger_request = request.make_ledger_request(noise_source.charged, output.text)
        made = cls(
            request=request,
            ledger_request=ledger_request,
            output=output,
            is_resumed=executor.is_resumed,
            noise_source=noise_source,
            executor=executor,
            confidence=confidence,
            files=files,
        ).find_charge()
        try:
            with log_duration("check"), output.remove_probes_after(made.run):
                return made.find_staged()._check_can_continue()
        except FitplugError:
            current = made.find_charge()
            if current.state != "published":  # by another process, in between
                raise
            return current

    def publish(self, find_counts: Callable[[], C]) -> PublishedRelease:
        """Continue from the state that the release has come to, until it is published.

        Args:
            find_counts: Returns the exact counts. It is called if noise is still to be drawn.

        Returns:
            The release in its folder.

        Raises:
            FitplugError: The release is refused, or cannot be finished now.
        """
        try:
            return self._publish(find_counts)
        except (FitplugError, OSError) as error:
            current = self._find_charge_after(error)
            if current.state == "published":  # by another process, meanwhile
                return current._read_published()
            if isinstance(error, FitplugError):
                is_explained = type(error) is not FitplugError or RETRY in str(error)
                if current.charge is None or is_explained:
                    raise
                raise FitplugError(f"{error}; {RETRY}") from None
            why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{self.output}: {why}; {RETRY}")

    def _find_charge_after(self, error: Exception) -> Publication[C]:
        """Find how far the release has come after an error, which is raised if nothing tells."""
        try:
            return self.find_charge()
        except FitplugError:
            if isinstance(error, FitplugError):
                raise error from None
            raise

    def _publish(self, find_counts: Callable[[], C]) -> PublishedRelease:
        """Take the steps that are left."""
        if not self.needs_counts:
            return self._finish()
        with log_duration("count"):
            counts = find_counts()
        begun = self._charge(counts)
        if not begun.needs_counts:  # by another process
            return begun._finish()
        if begun.charge is not None:
            return begun._draw(counts)._finish()
        drawn = begun._draw(counts)
        try:
            return drawn._finish()
        except BaseException:  # nobody will ever take these answers
            assert drawn.staged is not None
            drawn.staged.staging.discard()
            raise

    def _finish(self) -> PublishedRelease:
        """Publish the answers that are drawn, or find them published."""
        entered = self if self.staged is None else self._enter_answers(self.staged)
        if entered.staged is None:
            return entered._read_published()
        return entered._write_folder(entered.staged)

    def _check_can_continue(self) -> Publication[C]:
        """Check that the release can be finished from its state.

        Raises:
            FitplugError: It cannot.
        """
        if self.needs_counts:
            plan, ledger = self.request.plan, self.request.ledger
            for group in plan.workload.groups:
                check_names(group)
            staging = self._stage()  # a plan whose answers cannot be cut is refused now
            if ledger is not None:
                self.check_charges(ledger)
            self._check_not_taken()
            folders = [f"{name}.parquet" for name in name_files(plan.workload).values()]
            if self.charge is None:
                self._check_room()
            self.output.check_writable(staging, folders, self.run)
            self.executor.check(self.noise_source, self.output, self.run)
        elif self.staged is not None:
            self._check_not_taken()
        return self

    def _check_not_taken(self) -> None:
        """Raise InputError if the output has another release that is not to be moved aside."""
        digest = None if self.staged is None else self.staged.digest
        self.output.check_not_taken(replace=self.request.replace, digest=digest)

    def _check_room(self) -> None:
        """Raise FitplugError if there is no room for all files of the release."""
        plan = self.request.plan
        self.output.check_room(plan, 0 if self.files is None else self.files.estimate_size(plan))

    # The steps

    def _charge(self, counts: C) -> Publication[C]:
        """Charge the ledger, if there is one, or find the charge that this release resumes.

        The plan is kept before, as another machine may design one that differs in its last digits.
        """
        request, ledger = self.request, self.request.ledger
        check_is_enforced(counts.rows.limited, request.is_enforced)
        counts.check(request.plan, request.contributions)
        self._check_not_taken()
        if self.charge is None:
            self._check_room()  # counts that are stored beside it took some
        if ledger is None:
            return self
        plan_file = self.locate_plan(ledger)
        try:
            with report_write_errors(plan_file, "nothing was charged; make it writable"):
                request.plan.save(plan_file)
            seal = counts.seal
            begun = ReleaseCharges(ledger).begin(
                self.ledger_request, counts.published_seal, seal=seal
            )
        except BaseException:
            if not self.is_charged():
                remove_kept_plan(plan_file)
            raise
        return replace(self, charge=begun).find_staged()

    def _draw(self, counts: C) -> Publication[C]:
        """Draw all parts that are missing, and make them and their manifest durable."""
        staging, plan = self._stage(), self.request.plan
        try:
            staging.open()
            with log_duration("draw"):
                parts = self.executor.draw(self.noise_source, staging, counts, self.run)
            write_manifest(staging.place, self._describe(counts), parts)
            # Of runs that share an area, the first that wrote the manifest has decided.
            staged = staging.read(plan)
        except BaseException:
            if self.charge is None or not self.is_resumed:
                staging.discard()
            raise
        _LOG.info("the answers %s are staged", staged.digest[:12])
        return replace(self, staged=staged)

    def _enter_answers(self, staged: StagedAnswers) -> Publication[C]:
        """Enter staged answers as drawn, or take those that another process entered first."""
        ledger = self.request.ledger
        if self.charge is None or ledger is None:
            return self
        stage = self.charge.stage
        if stage.state == "charged":
            stage = ReleaseCharges(ledger).record_draw(
                self.charge.entry,
                staged.digest,
                counts=staged.release.seal,
                output=Output(staged.staging.output).text,
            )
        entered = replace(self, charge=StagedCharge(self.charge.entry, stage))
        if stage.answers == staged.digest and stage.state == "drawn":
            return entered
        if stage.answers != staged.digest and not self.is_resumed:
            staged.staging.discard()  # nobody has seen them
        return replace(entered, staged=None).find_staged()

    def _write_folder(self, staged: StagedAnswers) -> PublishedRelease:
        """Write the tables, put the complete folder in its place, and enter that it is there."""
        self.check_rows(staged.release)
        place, release = staged.staging.place, self.executor.load(staged.release)
        with log_duration("store"):
            tables = self.executor.write_tables(staged, release, self.confidence, self.run)
            complete_folder(
                place, release, staged.digest, tables, confidence=self.confidence, files=self.files
            )
        with log_duration("publish"):
            earlier = self.output.publish(staged, replace=self.request.replace)
            if self.charge is not None and self.request.ledger is not None:
                ReleaseCharges(self.request.ledger).record_publication(
                    self.charge.stage, self.output.text
                )
        _LOG.info("the answers %s are published in %s", staged.digest[:12], self.output)
        self.remove_leftovers(Output(staged.staging.output))
        if not isinstance(release.answers, np.ndarray):  # they are read from where they are now
            release = Release(**read_folder(self.output.place)[0])
        return PublishedRelease(release, self.output, earlier)

    def _read_published(self) -> PublishedRelease:
        """Read the release that is published. Raises FitplugError if its folder is not there."""
        assert self.charge is not None
        assert self.request.ledger is not None
        output = self.output.locate(self.charge.stage)
        if output.read_digest() != self.charge.stage.answers:
            raise make_lost_folder_error(self.charge, self.request.ledger)
        release = self.executor.load(Release(**read_folder(output.place)[0]))
        self.check_rows(release)
        self.remove_leftovers(output)
        return PublishedRelease(release, output)

    def _stage(self) -> Staging:
        """Return the area in which this run stages its answers."""
        is_shared = self.charge is None or self.is_resumed
        return self.output.stage(self.label, self.executor.cut, None if is_shared else self.run[:8])

    def _describe(self, counts: C) -> Release:
        """Make the release without its answers."""
        plan = self.request.plan
        return Release(
            plan=plan,
            answers=np.zeros(0, dtype=np.int64),
            rho=self.noise_source.rho,
            contributions=self.request.contributions,
            entry=None if self.charge is None else self.charge.entry,
            limited=counts.rows.limited,
            rows=counts.rows.rows,
            seal=counts.published_seal,
            outside=counts.list_outside_attributes(plan),
        )
