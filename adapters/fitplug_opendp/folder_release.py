"""Releases into folders: on a file system or in a store, whole or in parts, exactly once."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fitplug.errors import AlreadyReleased, FitplugError, InputError, KeyTaken, OverBudget
from fitplug.ledger import ChargeRequest, Ledger, ReleaseCharges, StagedCharge, hash_values
from fitplug.releases import (
    Release,
    check_names,
    complete_folder,
    name_display_folder,
    name_files,
    read_folder,
)
from fitplug_opendp.count_checks import check_declared, check_is_enforced, check_replaced_rows
from fitplug_opendp.executor import TablesExecutor
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.output import Output
from fitplug_opendp.publication import C, Publication
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import (
    ReleaseRequest,
    check_rows,
    find_charge,
    log_duration,
    make_lost_answers_error,
    make_lost_folder_error,
)
from fitplug_opendp.staging import (
    StagedAnswers,
    Staging,
    check_charges_are_known,
    holds_release,
    label_files,
    locate_unfinished_plan,
    remove_unfinished_plan,
    report_write_errors,
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedRelease:
    """A release in its folder.

    Attributes:
        release: The release.
        output: Its output.
        earlier: The path to which an earlier release was moved; None if there was none.
    """

    release: Release
    output: Output
    earlier: Path | None = None


@dataclass(frozen=True, kw_only=True)
class FolderPublication(Publication[C, PublishedRelease]):
    """A release into a folder. `FolderPublication.prepare` makes it.

    Attributes:
        request: The caller's request.
        ledger_request: The request to the ledger.
        output: The output of the release.
        executor: The executor, which draws the noise and writes the tables.
        files: The files of the folder besides tables and answers.
    """

    request: ReleaseRequest
    ledger_request: ChargeRequest
    output: Output
    executor: TablesExecutor[C]
    files: ReleaseFiles = field(default_factory=ReleaseFiles)

    @classmethod
    def prepare(
        cls,
        request: ReleaseRequest,
        output: Output,
        executor: TablesExecutor[C],
        files: ReleaseFiles | None = None,
    ) -> FolderPublication[C]:
        """Make all checks that need no data. Nothing is charged.

        Args:
            request: The release.
            output: Its output.
            executor: The executor, which draws the noise and writes the tables.
            files: The files of the folder besides tables and answers, by default CSV tables and a
                review.

        Returns:
            The publication in the state that the ledger and the disk show.

        Raises:
            FitplugError: The release is refused; see `fitplug.release`.
        """
        check_replaced_rows(request.plan, request.rows.rows)
        check_declared(request.plan, is_enforced=request.is_enforced)
        if not executor.is_resumed and not output.list_local():
            raise InputError(f"{output}: a release at a URL must be in parts. Name a local folder.")
        files = files or ReleaseFiles(request.ledger)
        files.check(request.plan)
        noise_source = NoiseSource.from_plan(request.plan)
        # A run removes leftovers of earlier runs of the same request, which only a ledger
        # recognises.
        owner = hash_values(request.plan.digest, request.key)[:8] if request.ledger else ""
        made = cls(
            ledger=request.ledger,
            noise_source=noise_source,
            executor=executor,
            request=request,
            ledger_request=request.make_ledger_request(noise_source.charged, output.text),
            output=output,
            files=files,
            run=owner + secrets.token_hex(8),
        )
        with output.remove_probes_after(made.run):
            return made.check()

    def __str__(self) -> str:
        return str(self.output)

    @property
    def charged_seal(self) -> str | None:
        """The seal of the exact counts that the ledger has charged for; None before the charge."""
        return None if self.charge is None else self.charge.stage.counts

    def is_charged(self) -> bool:
        """Return whether the ledger has the charge of this release now, or may have it."""
        try:
            return self.find_charge().charge is not None
        except (OverBudget, AlreadyReleased, KeyTaken):  # by another process since `prepare`
            return False
        except FitplugError:
            return True

    def find_charge(self) -> FolderPublication[C]:
        ledger, charge = self.ledger, None
        if ledger is not None and self.charge is not None:
            # Without a key, the request is not a retry of this charge once that is published.
            charge = ReleaseCharges(ledger).read(self.charge.entry)
        charge = charge or find_charge(ledger, self.ledger_request)
        if charge is None or ledger is None:
            return self
        stage = charge.stage
        begun_at = self.output.locate(stage)
        if self.is_resumed and begun_at != self.output:
            raise KeyTaken(
                f"charge {charge.entry.id} of the ledger {ledger.path} has the key "
                f"{charge.entry.key!r} and is for the release in {stage.folder}. Name that folder, "
                "or use another key.",
                number=charge.entry.id,
            )
        if stage.state == "charged":
            for output in (self.output, begun_at):
                published = output.read_digest()
                if published is not None and holds_release(output.place, charge.entry):
                    # The charge paid for this release, but the ledger is a copy from before it was
                    # drawn.
                    seal = read_folder(output.place)[0]["seal"]
                    stage = ReleaseCharges(ledger).record_draw(
                        charge.entry, published, counts=seal, folder=output.text
                    )
                    break
        if stage.state == "drawn" and self.output.locate(stage).read_digest() == stage.answers:
            # A process was killed after it put the folder in place.
            stage = ReleaseCharges(ledger).record_publication(stage, self.output.locate(stage).text)
        return replace(self, charge=StagedCharge(charge.entry, stage), staged=None)

    def find_staged(self) -> FolderPublication[C]:
        if self.charge is None or self.charge.stage.state == "published":
            return self
        entry, stage = self.charge.entry, self.charge.stage

        def fits(release: Release) -> bool:
            return release.entry == entry

        output = self.output.locate(stage)
        staged = output.find_staged(self.plan, self.label, stage.answers, fits)
        if staged is None and stage.state == "drawn":
            current = self.find_charge()  # another process might just have published them
            if current.state == "published":
                return current
            assert self.ledger is not None
            raise make_lost_answers_error(self.charge, self.ledger)
        return replace(self, staged=staged)

    def _check_can_continue(self) -> None:
        if self.needs_counts:
            for group in self.plan.workload.groups:
                check_names(group)
            staging = self._stage()  # a plan whose answers cannot be cut is refused now
            if self.ledger is not None:
                self._check_charges(self.ledger)
            self._check_not_taken()
            files = name_files(self.plan.workload).values()
            folders = [f"{name}.parquet" for name in files]
            folders += map(name_display_folder, files)
            if self.charge is None:
                self._check_room()
            self.output.check_writable(staging, folders, self.run)
            self.executor.check(self.noise_source, self.output, self.run)
        elif self.staged is not None:
            self._check_not_taken()

    def _check_charges(self, ledger: Ledger) -> None:
        """Check that nothing here comes from a draw that is unknown to the ledger.

        Raises:
            LedgerError: A release or staged answers name a charge that the ledger does not have.
            InputError: The folder where the release was begun has files that may be its release.
        """
        check_charges_are_known(ledger, self.output.place, self.output.list_labels())
        stage = None if self.charge is None else self.charge.stage
        first = self.output.locate(stage)
        if stage is None or first == self.output:
            return
        check_charges_are_known(ledger, first.place)
        first.check_not_damaged(f"where charge {stage.entry} of the ledger {ledger.path} started")

    def _check_not_taken(self) -> None:
        """Raise InputError if the output has another release that must not be moved aside."""
        digest = None if self.staged is None else self.staged.digest
        self.output.check_not_taken(replace=self.request.replace, digest=digest)

    def _check_room(self) -> None:
        """Raise FitplugError if there is no room for all files of the release."""
        self.output.check_room(self.plan, self.files.estimate_size(self.plan))

    def _check_counts(self, counts: C) -> None:
        check_is_enforced(counts.rows.limited, self.request.is_enforced)
        counts.check(self.plan)
        self._check_not_taken()
        if self.charge is None:
            self._check_room()  # the counts may be stored beside it now
            if not self.output.list_local() and self.find_charge().charge is None:
                self.output.check_empty()  # another release may have begun there

    def _begin(self, charges: ReleaseCharges, counts: C) -> StagedCharge:
        """Store the plan, as another machine may design another one, then charge the ledger."""
        assert self.ledger is not None
        plan_file = self._locate_plan(self.ledger)
        try:
            with report_write_errors(plan_file, "Nothing was charged. Make its folder writable."):
                self.plan.save(plan_file)
            begun = charges.begin(self.ledger_request, counts.published_seal, seal=counts.seal)
        except BaseException:
            if not self.is_charged():
                remove_unfinished_plan(plan_file)
            raise
        if begun.entry.folder != self.output.text:  # the plan is stored under another name
            remove_unfinished_plan(plan_file)
        return begun

    def _stage(self) -> Staging:
        is_shared = self.charge is None or self.is_resumed
        run = None if is_shared else self.run[-8:]
        return self.output.stage(self.label, self.executor.cut, run)

    def _locate(self, staged: StagedAnswers) -> str | None:
        return Output(staged.staging.output).text

    def _write(self, staged: StagedAnswers) -> PublishedRelease:
        self._check_rows(staged.release)
        place, release = staged.staging.place, self.executor.load(staged.release)
        confidence, files = self.files.confidence, self.files
        with log_duration("store"):
            tables = self.executor.write_tables(staged, release, confidence, self.run)
            complete_folder(
                place, release, staged.digest, tables, confidence=confidence, files=files
            )
        with log_duration("publish"):
            earlier = self.output.publish(staged, replace=self.request.replace)
            if self.charge is not None and self.ledger is not None:
                ReleaseCharges(self.ledger).record_publication(self.charge.stage, self.output.text)
        _LOG.info("the answers %s are published in %s", staged.digest[:12], self.output)
        self._remove_leftovers(Output(staged.staging.output))
        if not isinstance(release.answers, np.ndarray):  # read them from their new place
            release = Release(**read_folder(self.output.place)[0])
        return PublishedRelease(release, self.output, earlier)

    def _read_published(self) -> PublishedRelease:
        assert self.charge is not None
        assert self.ledger is not None
        output = self.output.locate(self.charge.stage)
        if output.read_digest() != self.charge.stage.answers:
            raise make_lost_folder_error(self.charge, self.ledger)
        release = self.executor.load(Release(**read_folder(output.place)[0]))
        self._check_rows(release)
        self._remove_leftovers(output)
        return PublishedRelease(release, output)

    @property
    def label(self) -> str:
        """The label that distinguishes this release's files from others at the same output."""
        if self.charge is None:
            return f"{label_files(self.plan, None)}.{self.run}"
        return label_files(self.plan, self.charge.entry)

    def _locate_plan(self, ledger: Ledger) -> Path:
        """Return the file of the plan, which exists until the release is published."""
        output = self.output.text if self.charge is None else self.charge.entry.folder
        return locate_unfinished_plan(ledger, self.plan.digest, self.request.key, output)

    def _remove_leftovers(self, output: Output) -> None:
        """Remove the leftovers of all runs here, and at the output that an earlier try named."""
        for one in {self.output.text: self.output, output.text: output}.values():
            one.remove_staged(self.label, self.run)
        if self.ledger is not None:
            remove_unfinished_plan(self._locate_plan(self.ledger))

    def _check_rows(self, release: Release) -> None:
        """Raise KeyTaken if a drawn release is of other rows than the requested ones."""
        if self.charge is not None and self.ledger is not None:
            check_rows(self.charge, self.ledger, release, self.request.rows)
