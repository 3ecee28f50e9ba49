"""The steps of a release in parts, which happens exactly once even when processes are killed.

1. Charged: the ledger is charged once, with the seal of the exact counts, or it finds the charge of
   the run that is resumed. A run whose counts have another seal is refused, because answers of
   which some are drawn from one dataset and some from another would cost more than was charged.
2. Drawn: each part is drawn on a worker, and made durable by whoever writes it first. A part that
   is durable is never drawn again. The manifest has the digest of every part, and the ledger enters
   its digest.
3. Published: estimates and tables are computed from the noisy answers, the folder is completed and
   put in its place, and the ledger enters that it is there.

Steps 2 and 3 are safe to repeat, and safe for two clients at one time.
"""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fitplug import __version__
from fitplug.errors import AlreadyReleased, FitplugError, KeyTaken, OverBudget
from fitplug.families import PartedStrategy
from fitplug.ledger import ChargeRequest, StagedCharge, hash_values
from fitplug.release import (
    AnswersPart,
    MoreFiles,
    Release,
    check_names,
    describe_place,
    name_files,
    read_folder,
    read_manifest,
    write_manifest,
)
from fitplug_dask.exchange import Exchange, run_exchange
from fitplug_dask.persons import choose_limit
from fitplug_dask.progress import Progress, choose_report
from fitplug_dask.releases.drawing import (
    DurablePart,
    answer_in_parts,
    draw_answers,
    split_counts,
)
from fitplug_dask.releases.exact_counts import ExactCounts
from fitplug_dask.releases.failures import UNFINISHED
from fitplug_dask.releases.jobs import PIECES_BYTES, RELEASE_PACKAGES, ReleaseJob
from fitplug_dask.releases.publishing import publish_answers
from fitplug_dask.releases.staging import Output
from fitplug_dask.releases.worker_checks import check_workers
from fitplug_dask.workers import Runner, open_runner
from fitplug_opendp.count_checks import (
    CountedRows,
    check_declared,
    check_is_enforced,
    check_replaced_rows,
)
from fitplug_opendp.noise_source import CLAMPED, NoiseSource
from fitplug_opendp.release_request import ReleaseCharge, ReleaseRequest, ReleaseState, find_charge
from fitplug_opendp.staging import check_charges_are_known, is_held, label_files

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartedRelease:
    """A release in parts, and how far it has come. `PartedRelease.prepare` makes it.

    Attributes:
        request: What the caller asked for.
        ledger_request: What the ledger is asked to charge.
        noise_source: The noise, and what it costs.
        output: Where the release goes.
        most: About the largest number of answers of a part.
        confidence: The confidence of the intervals of groups whose target has none.
        runner: What runs the tasks; the workers are inspected once.
        progress: How each step reports what is done.
        rows: The rows that are to be released; answers of other rows are not taken for these.
        files: What the caller adds to the folder.
        charge: The charge and its stage; None before it, and without a ledger.
        run: What distinguishes this run from others.
    """

    request: ReleaseRequest
    ledger_request: ChargeRequest
    noise_source: NoiseSource
    output: Output
    most: int
    confidence: float
    runner: Runner
    progress: Progress
    rows: CountedRows
    files: MoreFiles[Release] | None = None
    charge: StagedCharge | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def prepare(
        cls,
        request: ReleaseRequest,
        output: Output,
        *,
        most: int,
        confidence: float,
        client: Any,
        progress: Progress,
        rows: CountedRows,
        files: MoreFiles[Release] | None = None,
    ) -> PartedRelease:
        """Refuse what can be refused without data. Nothing is charged.

        Raises:
            FitplugError: The release is refused.
        """
        plan = request.plan
        check_replaced_rows(plan, rows.rows)
        if rows.limited == "enforced":
            choose_limit(plan.unit, None)  # refuses a unit that no count by person keeps
        check_declared(plan, is_enforced=request.is_enforced)
        noise_source = NoiseSource.from_plan(plan, request.contributions)
        ledger_request = replace(
            request.make_ledger_request(noise_source.charged), output=output.text, in_folder=True
        )
        made = cls(
            request=request,
            ledger_request=ledger_request,
            noise_source=noise_source,
            output=output,
            most=most,
            confidence=confidence,
            runner=open_runner(client, RELEASE_PACKAGES),
            progress=progress,
            rows=rows,
            files=files,
        )._read_charge()
        return made._check_can_draw() if made.needs_counts else made

    @property
    def state(self) -> ReleaseState:
        """How far the release has come."""
        return "new" if self.charge is None else self.charge.stage.state

    @property
    def needs_counts(self) -> bool:
        """Whether noise may still have to be drawn, which takes exact counts."""
        return self.state in ("new", "charged")

    @property
    def charged_seal(self) -> str | None:
        """The seal of the exact counts that the ledger has charged for; None before the charge."""
        return None if self.charge is None else self.charge.stage.counts

    @cached_property
    def parted(self) -> PartedStrategy:
        """The strategy in parts."""
        return self.request.plan.strategy.cut(self.most)

    @property
    def cut(self) -> str:
        """What tells this way to cut answers and counts into parts from others."""
        return hash_values(__version__, self.most, *self.parted.sizes.tolist())[:16]

    def is_charged(self) -> bool:
        """Return whether the ledger has the charge of this release now, or may have it."""
        try:
            return self._read_charge().charge is not None
        except (OverBudget, AlreadyReleased, KeyTaken):  # since this release was prepared
            return False
        except FitplugError:
            return True

    def publish(self, find_counts: Callable[[], ExactCounts]) -> Release:
        """Continue from the state that the release has come to, until it is published.

        Args:
            find_counts: Returns the exact counts. It is called if noise may still have to be drawn.

        Returns:
            The release, read from its output.

        Raises:
            FitplugError: The release is refused, or cannot be finished now.
        """
        try:
            return self._publish(find_counts)
        except (FitplugError, OSError) as error:
            current = self._read_charge()
            if current.state == "published":  # by another client, meanwhile
                return current._read_published()
            if isinstance(error, FitplugError):
                is_told = type(error) is not FitplugError or UNFINISHED in str(error)
                if current.charge is None or is_told:
                    raise
                raise FitplugError(f"{error}; {UNFINISHED}") from None
            why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{self.output}: {why}; {UNFINISHED}")

    def _check_can_draw(self) -> PartedRelease:
        """Test the output and the workers, unless another client publishes the release meanwhile.

        Raises:
            FitplugError: The plan cannot be released in parts, the output is taken or cannot be
                written, or a worker fails its test.
        """
        plan = self.request.plan
        # A plan whose answers cannot be cut, or whose tables cannot be written, is refused now.
        staging = self._make_job(None if self.charge else self.run).staging
        for group in plan.workload.groups:
            check_names(group)
        folders = [f"{name}.parquet" for name in name_files(plan.workload).values()]
        try:
            if self.request.ledger is not None:
                labels = self.output.list_labels()
                check_charges_are_known(self.request.ledger, self.output.place, labels)
            report = choose_report(self.progress, "checking the plan")
            self.noise_source.check_plan(answer_in_parts(plan, self.parted, report))
            self.output.check_free(staging, folders)
            check_workers(self.runner, self.output, plan.noise_std, self.run)
        except FitplugError:
            current = self._read_charge()
            if current.state != "published":
                self.output.remove_probes()
                raise
            return current
        return self

    def _publish(self, find_counts: Callable[[], ExactCounts]) -> Release:
        """Take the steps that are left."""
        if self.state == "published":
            return self._read_published()
        if self.needs_counts:
            counts = find_counts()
            begun = self._charge(counts)
            if not begun.needs_counts:  # by another client
                return begun._publish(find_counts)
            return begun._draw(counts)
        job = self._make_job()
        fields, _ = read_manifest(job.staging.place, self.request.plan)
        self._check_rows(Release(**fields))
        return self._finish(job)

    def _read_charge(self) -> PartedRelease:
        """Return the release with the charge and the stage that the ledger and the output tell."""
        ledger = self.request.ledger
        charge = find_charge(ledger, self.ledger_request)
        if charge is None or ledger is None:
            return self
        stage = charge.stage
        if stage.output != self.output.text:
            raise KeyTaken(
                f"number {charge.entry.id} of the ledger {ledger.path} is a release into "
                f"{stage.output}: nothing was charged; finish it there, or give another key",
                number=charge.entry.id,
            )
        place = self.output.place
        held = self.output.read_digest() if stage.state == "charged" else None
        if held is not None and is_held(place, charge.entry):
            # The ledger is a copy from before this release was made, which the charge paid for.
            seal = read_folder(place)[0]["seal"]
            stage = ledger.record_draw(charge.entry, held, counts=seal, output=self.output.text)
        if stage.state == "drawn" and self.output.read_digest() == stage.answers:
            # A process was killed after it had put the folder in place.
            stage = ledger.record_publication(stage, self.output.text)
        return replace(self, charge=StagedCharge(charge.entry, stage))

    def _charge(self, counts: ExactCounts) -> PartedRelease:
        """Charge the ledger, if there is one, or find the charge that this release resumes."""
        check_is_enforced(counts.rows.limited, self.request.is_enforced)
        counts.check(self.request.plan, self.request.contributions)
        ledger = self.request.ledger
        if ledger is None:
            return self
        begun = ledger.begin_release(self.ledger_request, counts.published_seal, seal=counts.seal)
        return replace(self, charge=begun)

    def _draw(self, counts: ExactCounts) -> Release:
        """Draw all parts that are missing, make their manifest durable, and go on."""
        job = self._make_job(None if self.charge is not None else self.run)
        try:
            job.staging.open()
            parts = self._draw_parts(job, counts)
            write_manifest(job.staging.place, self._describe(counts), parts)
            # Whoever wrote the manifest first has decided, also about the seal of the counts.
            fields, digest = read_manifest(job.staging.place, job.plan)
            _LOG.info("the answers %s are drawn", digest[:12])
            return self._enter_answers(digest, fields["seal"])._finish(job)
        except BaseException:
            if self.charge is None:  # nobody will ever take these answers
                job.staging.discard()
            raise

    def _draw_parts(self, job: ReleaseJob, counts: ExactCounts) -> Sequence[AnswersPart]:
        """Draw the missing parts on the workers, and list all parts."""
        parted = job.parted
        missing = job.staging.list_missing(job.parts)
        numbers = tuple(sorted({slab for part in missing for slab in parted.list_slabs(part)}))
        job = replace(job, missing=missing, slabs=numbers, counts=counts.store)
        exchange = Exchange(split_counts, job.parts, job, memory=PIECES_BYTES)
        durable: list[DurablePart] = run_exchange(
            exchange,
            draw_answers,
            counts.list_slabs(parted, numbers),
            client=self.runner,
            report=choose_report(self.progress, "drawing noise"),
        )
        if any(part.may_be_clamped for part in durable):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=6)
        return [
            AnswersPart(number, describe_place(parted.place(number)), part.bytes, part.digest)
            for number, part in enumerate(durable)
        ]

    def _describe(self, counts: ExactCounts) -> Release:
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

    def _enter_answers(self, digest: str, counts: str | None) -> PartedRelease:
        """Enter in the ledger that all answers are made."""
        if self.charge is None or self.request.ledger is None:
            return self
        entry = self.charge.entry
        stage = self.request.ledger.record_draw(
            entry, digest, counts=counts, output=self.output.text
        )
        return replace(self, charge=StagedCharge(entry, stage))

    def _finish(self, job: ReleaseJob) -> Release:
        """Publish the release, whose answers are made, from its staging area."""
        digest = None if self.charge is None else self.charge.stage.answers
        report = choose_report(self.progress, "writing tables")
        publish_answers(job, self.confidence, self.runner, report, digest, self.files)
        _LOG.info("the release is published in %s", self.output)
        if self.charge is not None and self.request.ledger is not None:
            self.request.ledger.record_publication(self.charge.stage, self.output.text)
        return Release(**read_folder(self.output.place)[0])

    def _read_published(self) -> Release:
        """Read the release that is published. Raises FitplugError if it is not there."""
        assert self.charge is not None
        stage = self.charge.stage
        if self.output.read_digest() != stage.answers:
            raise FitplugError(
                f"number {stage.entry} of the ledger was published in {self.output} at "
                f"{stage.time[:19]}, which does not hold it any more; look where it was moved to, "
                "or ask for another draw with a new key"
            )
        release = Release(**read_folder(self.output.place)[0])
        self._check_rows(release)
        self._make_job().staging.remove()
        return release

    def _check_rows(self, release: Release) -> None:
        """Raise KeyTaken if a release that was drawn is of other rows than those asked for."""
        if self.charge is not None and self.request.ledger is not None:
            ReleaseCharge(self.request.ledger, self.charge.entry).check_rows(release, self.rows)

    def _make_job(self, label: str | None = None) -> ReleaseJob:
        """Make what all tasks know, for a label or for the charge."""
        plan = self.request.plan
        if label is None:
            assert self.charge is not None
            label = label_files(plan, self.charge.entry)
        return ReleaseJob(plan, self.most, self.output.stage(label, self.cut), self.run)
