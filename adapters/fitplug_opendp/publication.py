"""The steps of a release into a folder, which happens exactly once even when processes are killed.

1. Charged: the ledger is charged, or it finds the charge of the run that is retried.
2. Drawn: the noise is drawn, and the noisy answers are staged. They are in a hidden folder beside
   that of the release, which only its owner can read, and they are on the disk before the ledger
   enters that they are drawn.
3. Published: the folder is written from the staged answers and moved into its place in one step.
   Then the ledger enters that it is there.

A retry continues after the last step that was completed. Until the ledger has entered answers as
drawn, nobody has seen any, so noise may be drawn anew at no further cost. From then on these
answers are the release, and noise is never drawn again. When two processes make one release, the
ledger takes the answers of the first, and the other process publishes the same answers.

A ledger may be an older copy of itself. So what lies in the folder and beside it is looked at
before anything is charged or drawn: what the charge paid for is entered again, and what names a
charge that the ledger does not have is refused.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

from fitplug.counts import Tables
from fitplug.errors import FitplugError, InputError
from fitplug.files import LocalPlace, check_arrow
from fitplug.ledger import ChargeRequest, Ledger, Stage, StagedCharge
from fitplug.release import MoreFiles, Release, read_digest
from fitplug.workload import DEFAULT_CONFIDENCE
from fitplug_opendp.count_checks import (
    CountedRows,
    check_declared,
    check_is_enforced,
    check_limit,
    find_limit,
    find_seal,
)
from fitplug_opendp.gaussian import Progress
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from fitplug_opendp.release_folder import ReleaseFolder
from fitplug_opendp.release_request import ReleaseCharge, ReleaseRequest, ReleaseState, find_charge
from fitplug_opendp.staging import RETRY, StagedAnswers, encode_path, is_held, report_write_errors

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedRelease:
    """A release in its folder.

    Attributes:
        release: The release.
        folder: The folder that holds it.
        earlier: Where the release that was there before was moved; None if there was none.
    """

    release: Release
    folder: Path
    earlier: Path | None = None


@dataclass(frozen=True)
class Publication:
    """A release into a folder, and how far it has come. `Publication.prepare` makes it.

    Attributes:
        request: What the caller asked for.
        noise_source: The noise that is drawn, and what it costs.
        ledger_request: What the ledger is asked to charge.
        folder: The release folder, with the charge.
        state: How far the release has come.
    """

    request: ReleaseRequest
    noise_source: NoiseSource
    ledger_request: ChargeRequest
    folder: ReleaseFolder
    state: ReleaseState = "new"

    @classmethod
    def prepare(cls, request: ReleaseRequest) -> Publication:
        """Refuse what can be refused without data. Nothing is charged.

        Args:
            request: The release, with its directory.

        Returns:
            The publication in the state that the ledger and the folder tell.

        Raises:
            FitplugError: The release is refused; see `fitplug_opendp.publish`.
        """
        assert request.directory is not None
        check_declared(request.plan, is_enforced=request.is_enforced)
        noise_source = NoiseSource.from_plan(request.plan, request.contributions)
        directory = Path(request.directory).absolute()
        check_arrow()
        ledger_request = request.make_ledger_request(noise_source.charged)
        folder = ReleaseFolder(directory, request.plan, request.contributions, request.replace)
        publication = cls(request, noise_source, ledger_request, folder)._find_state()
        if publication.needs_counts:
            noise_source.check_plan()
        try:
            return publication._check_can_continue()
        except FitplugError:
            current = publication._find_state()
            if current.state != "published":  # by another process, in between
                raise
            return current

    @property
    def needs_counts(self) -> bool:
        """Whether noise is still to be drawn, which takes exact counts."""
        return self.state in ("new", "charged")

    def publish(
        self,
        tables: Tables | None = None,
        *,
        rows: CountedRows | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        files: MoreFiles[Release] | None = None,
        progress: Progress | None = None,
    ) -> PublishedRelease:
        """Continue from the state that the release has come to, until it is published.

        Args:
            tables: Exact counts; the states "new" and "charged" need them.
            rows: The rows that are to be released, where no tables are given. A release that was
                drawn from other rows is not this one.
            confidence: The confidence of the intervals of groups whose target names none.
            files: What the caller adds to the folder.
            progress: A function that is told how many answers are drawn.

        Returns:
            The release in its folder.

        Raises:
            InputError: Tables are needed and were not given.
            FitplugError: The release is refused or cannot be finished; see
                `fitplug_opendp.publish`.
        """
        if tables is not None:
            rows = CountedRows.from_tables(tables)
        if self.state == "published":
            return self._read_published(rows)
        if self.state == "drawn":
            publication, staged = self, self._adopt_answers()
        elif tables is None:
            raise InputError("this release needs exact counts; give tables")
        else:
            publication, staged = self._make_answers(tables, progress)
        if staged is None:  # another process was first, and has published
            return publication._read_published(rows)
        publication._check_rows(staged.release, rows)
        return publication._write_folder(staged, confidence, files)

    def _find_state(self) -> Publication:
        """Return the publication in the state that the ledger knows, or that its folder tells."""
        ledger = self.request.ledger
        begun = find_charge(ledger, self.ledger_request)
        if begun is None or ledger is None:
            return self
        stage = self._adopt_published(ledger, begun)
        state: ReleaseState = stage.state
        directory = self.folder.locate(stage)
        if stage.state == "drawn" and read_digest(directory) == stage.answers:
            # A process was killed after it had put the folder in place.
            ledger.record_publication(stage, encode_path(directory))
            state = "published"
        return self._with_charge(ReleaseCharge(ledger, begun.entry), state)

    def _adopt_published(self, ledger: Ledger, found: StagedCharge) -> Stage:
        """Enter a release that is in its folder as drawn, if the ledger has it as charged only.

        The ledger is then a copy from before the release was drawn, which this charge paid for.
        """
        stage = found.stage
        for directory in (self.folder.directory, self.folder.locate(stage)):
            digest = read_digest(directory) if stage.state == "charged" else None
            if digest is not None and is_held(LocalPlace(directory), found.entry):
                seal, output = Release.read(directory).seal, encode_path(directory)
                return ledger.record_draw(found.entry, digest, counts=seal, output=output)
        return stage

    def _with_charge(self, charge: ReleaseCharge, state: ReleaseState) -> Publication:
        """Return the publication with this charge, in this state."""
        folder = dataclasses.replace(self.folder, charge=charge)
        return dataclasses.replace(self, folder=folder, state=state)

    def _check_can_continue(self) -> Publication:
        """Raise FitplugError if the release cannot be finished from its state.

        Answers that were staged, and that the ledger has not entered yet, count as drawn in the
        publication that is returned.
        """
        if self.state == "published":
            return self
        staged = self.folder.find_staged()
        if self.state == "drawn" and staged is None:
            raise self._make_lost_answers_error()
        if staged is None and self.request.ledger is not None:
            self.folder.check_charges(self.request.ledger)
        self.folder.check_free()
        return self if staged is None else dataclasses.replace(self, state="drawn")

    def _make_answers(
        self, tables: Tables, progress: Progress | None
    ) -> tuple[Publication, StagedAnswers | None]:
        """Charge the ledger, draw the noise and stage the noisy answers, in this order.

        The results are the publication with its charge, and the answers that the ledger has as
        drawn; None in their place if another process has published them already.
        """
        check_is_enforced(find_limit(tables), self.request.is_enforced)
        check_limit(self.request.plan, tables, self.noise_source.contributions)
        answers = compute_exact_answers(self.request.plan, tables)
        seal = find_seal(tables)
        self.noise_source.check_sampler()
        try:
            self.folder.check_writable()
        except FitplugError:
            current = self._find_state()
            if current.state != "published":  # by another process, since `prepare`
                raise
            return current, None
        charged = self
        if self.request.ledger is not None:
            try:
                begun = self.request.ledger.begin_release(self.ledger_request, seal)
            except BaseException:
                self.folder.staging.remove_plan()
                raise
            charge = ReleaseCharge(self.request.ledger, begun.entry)
            charged = self._with_charge(charge, "charged")
            if begun.stage.state != "charged":  # by another process, since `prepare`
                return charged, charged._adopt_answers()
        drawn = self.noise_source.draw(tables, answers, progress, charged.folder.entry)
        with report_write_errors(self.folder.directory, RETRY):
            try:
                staged = charged.folder.staging.write(drawn)
            except OSError:
                stage = charged.folder.read_stage()
                if stage is None or stage.state != "published":
                    raise
                return charged, None  # another process removed what this one wrote
        _LOG.info("the answers %s are staged", staged.digest[:12])
        return charged, charged._enter_answers(staged)

    def _enter_answers(self, staged: StagedAnswers) -> StagedAnswers | None:
        """Enter staged answers as drawn, or adopt those that another process entered first."""
        charge = self.folder.charge
        if charge is None:
            return staged
        stage = charge.ledger.record_draw(
            charge.entry,
            staged.digest,
            counts=staged.release.seal,
            output=encode_path(staged.folder),
        )
        if stage.state == "drawn" and stage.answers == staged.digest:
            return staged
        if stage.answers != staged.digest:
            staged.discard()
        return self._adopt_answers()

    def _adopt_answers(self) -> StagedAnswers | None:
        """Find the staged answers that are the release; None if they are published already."""
        stage = self.folder.read_stage()
        staged = self.folder.find_staged()
        if stage is not None and stage.state == "published":
            return None
        if staged is None:
            current = self.folder.read_stage()  # another process may just have published them
            if current is not None and current.state == "published":
                return None
            raise self._make_lost_answers_error()
        if stage is not None and stage.state == "drawn":
            return staged
        return self._enter_answers(staged)

    def _write_folder(
        self, staged: StagedAnswers, confidence: float, files: MoreFiles[Release] | None
    ) -> PublishedRelease:
        """Write the folder from staged answers, and then enter that it is in its place."""
        earlier = self.folder.write(staged, confidence, files)
        charge, stage = self.folder.charge, self.folder.read_stage()
        if charge is not None and stage is not None:
            charge.ledger.record_publication(stage, encode_path(self.folder.directory))
        _LOG.info("the answers %s are published", staged.digest[:12])
        self.folder.remove_staged(staged.folder)
        return PublishedRelease(staged.release, self.folder.directory, earlier)

    def _read_published(self, rows: CountedRows | None) -> PublishedRelease:
        """Read the release that is published. Raises FitplugError if its folder is not there."""
        charge, stage = self.folder.charge, self.folder.read_stage()
        assert charge is not None
        assert stage is not None
        directory = self.folder.locate(stage)
        if read_digest(directory) != stage.answers:
            raise charge.make_lost_folder_error(stage, directory)
        release = Release.read(directory)
        self._check_rows(release, rows)
        self.folder.remove_staged(directory)
        return PublishedRelease(release, directory)

    def _check_rows(self, release: Release, rows: CountedRows | None) -> None:
        """Raise KeyTaken if a release that was drawn is of other rows than those asked for."""
        if self.folder.charge is not None and rows is not None:
            self.folder.charge.check_rows(release, rows)

    def _make_lost_answers_error(self) -> FitplugError:
        """Make the error for answers that the ledger has as drawn, and that are nowhere."""
        assert self.folder.charge is not None
        return self.folder.charge.make_lost_answers_error()
