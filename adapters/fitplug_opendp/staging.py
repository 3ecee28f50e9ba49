"""Staging: the place of answers until they are published, and the leftovers of earlier runs there.

On a file system the staging area is a hidden folder beside the output, which only its owner can
read. In a store, where no folder can be moved, it is the output itself, which is not a release
until its record is written. A mark names the charge to which the parts belong: parts of another
charge are never used.

The manifest is written last: with it, answers are complete. A search for complete answers finds
those of any run; nobody has seen leftovers of a killed run without a manifest.

A ledger that was restored from an older copy lacks its later charges. A release that was made since
then, or its staged answers, name a charge that is missing in the ledger. Then nothing may be drawn
into their place; this is checked before anything is charged.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.files import LocalPlace, Place, make_folder
from fitplug.ledger import Entry, Ledger, hash_values
from fitplug.plan import Plan
from fitplug.releases import (
    ANSWER_PARTS,
    MANIFEST,
    PLAN,
    PartedAnswers,
    Period,
    Release,
    name_part,
    read_charge,
    read_manifest,
)

RETRY = "The release is not finished. Run it again; nothing more will be charged."
"""The remedy for a failure after the charge."""


@contextmanager
def report_write_errors(directory: Path | str, remedy: str) -> Iterator[None]:
    """Turn an OSError in the block into a FitplugError that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise FitplugError(f"{directory}: {why}. {remedy}") from None


def make_unseen_error(place: Place) -> FitplugError:
    """Make the error of a worker that does not see the files of a release."""
    return FitplugError(
        f"a worker cannot see {place}. Name an output folder that all workers see under the same "
        "path."
    )


def encode_path(path: str | os.PathLike[str]) -> str:
    """Write an absolute path as ledgers record it, with bytes that are not text replaced."""
    return os.fsencode(Path(path).absolute()).decode(errors="replace")


def find_unfinished_plan(ledger: Ledger, folder: Path | str, key: str | None) -> Plan | None:
    """Find the stored plan of an unfinished release.

    Another processor or another version of NumPy may design a plan that differs in its last digits.
    For the ledger that is another plan, so a retry must use the stored plan.

    Args:
        ledger: The ledger with the charge.
        folder: The release folder, or its URL.
        key: The key of the release; None for an unfinished release without a key into the folder.

    Returns:
        The plan, from the folder or from beside the ledger; None if there is none.
    """
    text = encode_path(folder) if isinstance(folder, Path) else folder
    stages = ledger.stages()
    for entry in reversed(ledger.entries()):
        stage = stages.get(entry.id)
        if stage is None or stage.folder is None or entry.key != key or not entry.plan_digest:
            continue
        if key is None and (stage.state == "published" or entry.folder != text):
            continue
        beside = locate_unfinished_plan(ledger, entry.plan_digest, key, entry.folder)
        for path in (Path(stage.folder) / PLAN, beside):
            with suppress(InputError):
                plan = Plan.load(path)
                if plan.digest == entry.plan_digest:
                    return plan
    return None


def locate_unfinished_plan(
    ledger: Ledger, plan_digest: str, key: str | None, folder: str | None
) -> Path:
    """Return the path of the plan of an unfinished release, a hidden file beside its ledger.

    Args:
        ledger: The ledger.
        plan_digest: The digest of the plan.
        key: The key of the release.
        folder: The folder of the release when it was charged, as the ledger records it.
    """
    label = hash_values(plan_digest, key, folder)[:16]
    return ledger.path.absolute().with_name(f".{ledger.path.name}.{label}.{PLAN}")


def remove_unfinished_plan(path: Path) -> None:
    """Remove the plan of a finished release, and partial files of killed processes."""
    path.unlink(missing_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        left.unlink(missing_ok=True)


def label_files(plan: Plan, entry: Entry | None) -> str:
    """Build the label of a release's files from its charge and its plan."""
    return f"0-{plan.digest[:12]}" if entry is None else label_charge(plan.digest, entry)


def label_charge(plan_digest: str, entry: Entry) -> str:
    """Build the label of the files of a charged release."""
    # A charge with the same number in another ledger has another hash.
    charge = hash_values(entry.id, entry.time, entry.what, entry.key)
    return f"{entry.id}-{plan_digest[:12]}-{charge[:8]}"


_LABEL = r"\d+-[0-9a-f]{12}-[0-9a-f]{8}"
_STAGED_NAME = re.compile(rf"({_LABEL})(?:\.[0-9a-f]{{8}})?\.parts")


def check_charges_are_known(ledger: Ledger, place: Place, labels: Collection[str] = ()) -> None:
    """Check that a ledger has the charges of all releases and answers at a release's output.

    Args:
        ledger: The ledger.
        place: The release folder, which need not exist.
        labels: The labels of answers that are staged inside it.

    Raises:
        LedgerError: A charge is not in the ledger, or the ledger cannot be read.
    """
    unknown = find_unknown_charge(ledger.entries, place, labels)
    if unknown is not None:
        what, number = unknown
        raise LedgerError(
            f"{what} charged as number {number}, but the ledger {ledger.path} does not have this "
            "charge. Restore the newest copy of the ledger."
        )


def find_unknown_charge(
    list_entries: Callable[[], Iterable[Entry]], place: Place, labels: Collection[str] = ()
) -> tuple[str, int] | None:
    """Find the charge of a release or of answers at a release's output that a ledger lacks.

    Args:
        list_entries: A function that lists the entries of a ledger. It is called after the place
            was inspected, because other processes enter a charge before they write there.
        place: The release folder, which need not exist.
        labels: The labels of answers that are staged inside it.

    Returns:
        The start of a sentence, up to "that was", and the number of the charge; None if all charges
        are known.
    """
    charge, staged = read_charge(place), [*labels, *_list_staged(place)]
    known = list(list_entries())
    if charge is not None and (charge.id, charge.time) not in {
        (entry.id, entry.time) for entry in known
    }:
        return f"{place} holds a release that was", charge.id
    of_known = {label_charge(entry.plan_digest, entry) for entry in known if entry.plan_digest}
    for label in staged:
        if re.fullmatch(_LABEL, label) and label not in of_known:
            number = int(label.partition("-")[0])
            return f"answers are staged for {place}, in an unfinished release that was", number
    return None


def holds_release(place: Place, entry: Entry) -> bool:
    """Return whether a folder holds the release of a charge."""
    charge = read_charge(place)
    return charge is not None and (charge.id, charge.time) == (entry.id, entry.time)


def _list_staged(place: Place) -> list[str]:
    """List the labels of charged answers that are staged beside a local release folder."""
    if not isinstance(place, LocalPlace) or not place.path.parent.is_dir():
        return []
    with report_write_errors(
        place.path, "Nothing was charged. Make the folder around it readable."
    ):
        names = [path.name for path in place.path.parent.iterdir()]
    prefix = f".{place.path.name}."
    matches = (
        _STAGED_NAME.fullmatch(n.removeprefix(prefix)) for n in names if n.startswith(prefix)
    )
    return sorted(match[1] for match in matches if match)


MARK = ".unfinished-release"


@dataclass(frozen=True)
class Staging:
    """A folder of the answers of one unpublished release.

    Attributes:
        place: The folder.
        label: The label of this release, from its charge and its plan.
        mark: The content of the mark: the label, and how the answers are cut into parts.
        output: The folder of the release.
    """

    place: Place
    label: str
    mark: str
    output: Place

    def open(self) -> None:
        """Make the folder, and mark it for this release.

        Raises:
            InputError: It is marked for another release.
            FitplugError: It cannot be written.
        """
        with report_write_errors(str(self.output), RETRY):
            if isinstance(self.place, LocalPlace):
                make_folder(self.place.path, 0o700)
            self.place.create(MARK, self.mark.encode())
        if not self.is_marked():
            raise InputError(
                f"{self.output} has an unfinished release of another charge or version of fitplug. "
                "Name another folder."
            )

    def is_marked(self) -> bool:
        """Return whether the folder is marked for this release."""
        try:
            return self.place.read(MARK) == self.mark.encode()
        except FileNotFoundError:
            return False

    def check_mark(self) -> None:
        """Check, on a worker, that the folder exists and is marked for this release.

        Raises:
            FitplugError: It is not.
        """
        if not self.is_marked():
            raise make_unseen_error(self.place)

    def list_missing(self, parts: int) -> frozenset[int]:
        """List the missing parts of `parts` parts of the answers."""
        sizes = self.place.join(ANSWER_PARTS).list_sizes()
        return frozenset(part for part in range(parts) if name_part(part) not in sizes)

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
        """Check that no part is missing, and on a file system that none is damaged.

        Parts in a store are read and checked when the tables are computed.

        Raises:
            InputError: A part is missing or damaged.
            OSError: A part cannot be read.
        """
        if missing := self.list_missing(len(answers.parts)):
            raise InputError(f"part {min(missing)} of {self.place} is missing. Restore it.")
        if isinstance(self.place, LocalPlace):
            for part in answers.parts:
                answers.read_part(part.number)

    def discard(self) -> None:
        """Remove answers that nobody will finish, and that nobody has seen.

        In a store the mark stays: a worker may still write a part that it is drawing, and the next
        release into this folder would use that part as its own.
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
    """Noisy answers that are complete and durable, but not published yet.

    Attributes:
        staging: Their staging area.
        release: Their release, which reads them when needed.
        digest: Their digest.
    """

    staging: Staging
    release: Release
    digest: str

    def discard(self) -> None:
        """Remove the answers, which nobody has seen."""
        self.staging.discard()

    @property
    def parts(self) -> PartedAnswers:
        """The answers, whose parts are read when needed."""
        assert isinstance(self.release.answers, PartedAnswers)
        return self.release.answers


def remove_folder(path: Path) -> None:
    """Remove a file, or a folder in such a way that nobody finds it half removed."""
    with suppress(OSError):
        if not path.is_dir():
            path.unlink()
            return
        path = path.rename(path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"))
    shutil.rmtree(path, ignore_errors=True)
