"""What lies where a release goes: staged answers, and the charges of what others have put there.

A draw is durable in a hidden folder beside the release folder, which only its owner can read,
before the ledger enters it as drawn. The hidden folder appears with all answers at once. Its name
begins with the name of the release folder, the number of the charge and the digest of the plan. A
retry finds it by its name, and removes what a killed process left.

A ledger that was put back from an older copy does not have its later charges. A release that was
made since then, or answers of it that are staged, name a charge that is missing in the ledger. Then
nothing may be drawn into their place, which is found before anything is charged.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.files import LocalPlace, Place, make_partial_folder, move_into_place
from fitplug.ledger import Entry, Ledger, hash_values
from fitplug.plan import Plan
from fitplug.release import PLAN, Release, read_charge, read_digest, read_manifest, write_answers

RETRY = "the release is not finished: run the same again, which charges nothing more"
"""What to do after a failure that follows the charge."""


def find_held_release(directory: Path) -> str | None:
    """Find the release that a folder holds already.

    Args:
        directory: The path of the release folder, which need not exist.

    Returns:
        The digest of the answers of the release there; None if the folder is missing or empty.

    Raises:
        InputError: No release folder can be moved there, or the folder holds other files.
    """
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; name another folder for the release")
    if directory.is_symlink() or directory.is_mount():  # no folder can be moved there
        what = "a link" if directory.is_symlink() else "a mount point"
        raise InputError(f"{directory} is {what}; name a folder of its own, such as one inside it")
    if not directory.is_dir() or not any(directory.iterdir()):
        return None
    held = read_digest(directory)
    if held is None:
        raise InputError(
            f"{directory} holds files that are no fitplug release; name another folder"
        )
    return held


@contextmanager
def report_write_errors(directory: Path, remedy: str) -> Iterator[None]:
    """Turn an OSError in the block into a FitplugError that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{directory}: {why}; {remedy}") from None


def encode_path(path: str | os.PathLike[str]) -> str:
    """Write an absolute path as ledgers keep it, with bytes that are no text replaced."""
    return os.fsencode(Path(path).absolute()).decode(errors="replace")


_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_STAGED = ".parts"
_KEPT_PLAN = "before-the-charge.plan.npz"
_LONGEST_ENDING = f"{2**63}-{'0' * 12}-{'0' * 8}.{'0' * 8}{_STAGED}.{'0' * 8}.partial"
"""How the name of a partial folder ends, with the largest number of a charge."""


@dataclass(frozen=True)
class StagedAnswers:
    """Noisy answers that are on the disk, and not in their folder yet.

    Attributes:
        folder: The release folder that they are beside.
        path: The hidden folder that holds them.
        release: The release of these answers.
        digest: Their digest.
    """

    folder: Path
    path: Path
    release: Release
    digest: str

    def discard(self) -> None:
        """Remove the answers, which are not the release, and which nobody has seen."""
        _remove(self.path)


@dataclass(frozen=True)
class StagingArea:
    """The hidden files of one release beside its folder.

    Attributes:
        folder: The release folder.
        plan: The plan that is released.
        entry: The charge of the release; None for a release that no ledger records.
    """

    folder: Path
    plan: Plan
    entry: Entry | None

    @property
    def label(self) -> str:
        """The part of file names that tells this release from others beside the same folder."""
        return label_files(self.plan, self.entry)

    def keep_plan(self) -> None:
        """Write the plan, to find before the charge whether files can be written here.

        Raises:
            OSError: They cannot.
        """
        # The names that come after the charge hold its number, so they may be longer.
        longest = self.folder.with_name(f"..{self.folder.name}.{_LONGEST_ENDING}")
        longest.touch()
        longest.unlink(missing_ok=True)
        self.plan.save(self._kept_plan)

    def remove_plan(self) -> None:
        """Remove what `keep_plan` wrote."""
        self._kept_plan.unlink(missing_ok=True)

    def write(self, drawn: Release) -> StagedAnswers:
        """Write noisy answers, which are on the disk when the function returns.

        Raises:
            OSError: They cannot be written.
        """
        path = self._name_file(f"{secrets.token_hex(4)}{_STAGED}", self.entry)
        with make_partial_folder(path) as partial:
            partial.chmod(_FOLDER_MODE)
            _, digest = write_answers(LocalPlace(partial, _FILE_MODE), drawn)
            move_into_place(partial, path)
        return StagedAnswers(self.folder, path, drawn, digest)

    def find(self, contributions: int, digest: str | None) -> StagedAnswers | None:
        """Find answers that were staged for this charge.

        Args:
            contributions: The number of records of one person that the answers must be for.
            digest: The digest that the answers must have; None accepts any.

        Returns:
            The first that fit; None if there are none.

        Raises:
            InputError: Any answers are accepted, and those that are there are damaged.
        """
        prefix = glob.escape(f".{self.folder.name}.{self.label}.")
        staged = sorted(self.folder.parent.glob(f"{prefix}*{_STAGED}"))
        for path in staged:
            with suppress(InputError, OSError):
                fields, found = read_manifest(LocalPlace(path, _FILE_MODE), self.plan)
                release = Release(**(fields | {"answers": np.asarray(fields["answers"])}))
                same = release.contributions == contributions and release.entry == self.entry
                if same and digest in (None, found):
                    return StagedAnswers(self.folder, path, release, found)
        if digest is None and any(path.exists() for path in staged):  # another may remove them
            raise InputError(
                f"{staged[0]} is damaged, and may hold what the release was drawn as; put the "
                "folder back, or remove it if nobody can have read it"
            )
        return None

    def remove(self) -> None:
        """Remove what this release, and killed runs of it, left beside the folder."""
        names = f".{self.folder.name}.{self.label}.", self._kept_plan.name
        # The name of a file that is being written has one more dot in front.
        prefixes = tuple(dots + name for name in names for dots in ("", "."))
        with suppress(OSError):
            for path in list(self.folder.parent.iterdir()):
                if not path.name.startswith(prefixes):
                    continue
                _remove(path)

    @property
    def _kept_plan(self) -> Path:
        return self._name_file(_KEPT_PLAN, None)

    def _name_file(self, name: str, entry: Entry | None) -> Path:
        """Return the path of a hidden file of this release for a charge."""
        label = label_files(self.plan, entry)
        return self.folder.with_name(f".{self.folder.name}.{label}.{name}")


def _remove(path: Path) -> None:
    """Remove a file, or a folder, which nobody finds half removed."""
    if path.is_dir():
        with suppress(OSError):
            path = path.rename(path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def find_kept_plan(ledger: Ledger, folder: Path | str, key: str | None) -> Plan | None:
    """Find the plan of a release that was begun before, as its run kept it.

    Another processor or another version of NumPy may design a plan that differs in its last
    digits. The ledger takes that for another plan, so a retry must use the plan that was kept.

    Args:
        ledger: The ledger that has the charge.
        folder: The release folder, or its URL.
        key: The key of the release. None finds an unfinished release without a key for the folder.

    Returns:
        The plan, from beside the folder, from inside it or from beside the ledger; None if there
        is none.
    """
    output = encode_path(folder) if isinstance(folder, Path) else folder
    stages = ledger.stages()
    for entry in reversed(ledger.entries()):
        stage = stages.get(entry.id)
        if stage is None or stage.output is None or entry.key != key or not entry.plan_digest:
            continue
        if key is None and (stage.state == "published" or entry.output != output):
            continue
        place = Path(stage.output)
        beside = place.with_name(f".{place.name}.0-{entry.plan_digest[:12]}.{_KEPT_PLAN}")
        ledgers = find_beside_ledger(ledger, entry.plan_digest, key, stage.output, PLAN)
        for path in (beside, place / PLAN, ledgers):
            with suppress(InputError):
                plan = Plan.load(path)
                if plan.digest == entry.plan_digest:
                    return plan
    return None


def find_beside_ledger(
    ledger: Ledger, plan_digest: str, key: str | None, output: str, name: str
) -> Path:
    """Return the path of a hidden file of a release beside its ledger.

    Releases in parts keep their plan there, as their output may be in a store.

    Args:
        ledger: The ledger.
        plan_digest: The digest of the plan.
        key: The key of the release.
        output: Where the release goes, as the ledger keeps it.
        name: What the file holds.
    """
    label = hash_values(plan_digest, key, output)[:16]
    return ledger.path.absolute().with_name(f".{ledger.path.name}.{label}.{name}")


def label_files(plan: Plan, entry: Entry | None) -> str:
    """Build the label of a release's files from its charge and its plan."""
    return f"0-{plan.digest[:12]}" if entry is None else label_charge(plan.digest, entry)


def label_charge(plan_digest: str, entry: Entry) -> str:
    """Build the label of files of the release of a plan that was charged."""
    # A charge of the same number in another ledger differs in the hash.
    charge = hash_values(entry.id, entry.time, entry.what, entry.key)
    return f"{entry.id}-{plan_digest[:12]}-{charge[:8]}"


_LABEL = r"\d+-[0-9a-f]{12}-[0-9a-f]{8}"
_STAGED_NAME = re.compile(rf"({_LABEL})(?:\.[0-9a-f]{{8}})?\.parts")


def check_charges_are_known(ledger: Ledger, place: Place, labels: Collection[str] = ()) -> None:
    """Check that a ledger has the charges of what lies where a release would go.

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
            f"{what} charged as number {number}, which the ledger {ledger.path} does not have, as "
            "it is an older copy or another ledger: nothing was charged or drawn; put back the "
            "newest copy of the ledger that was charged, or name another folder"
        )


def find_unknown_charge(
    list_entries: Callable[[], Iterable[Entry]], place: Place, labels: Collection[str] = ()
) -> tuple[str, int] | None:
    """Find a charge of what lies where a release would go that is not among some entries.

    Args:
        list_entries: Lists the entries of a ledger. It is called when the place was looked at, as
            what another process puts there is in the ledger before.
        place: The release folder, which need not exist.
        labels: The labels of answers that are staged inside it.

    Returns:
        What lies there, up to "that was", and the number of its charge; None if all are known.
    """
    held, staged = read_charge(place), [*labels, *_list_staged(place)]
    known = list(list_entries())
    if held is not None and (held.id, held.time) not in {(own.id, own.time) for own in known}:
        return f"{place} holds a release that was", held.id
    of_known = {label_charge(own.plan_digest, own) for own in known if own.plan_digest}
    for label in staged:
        if re.fullmatch(_LABEL, label) and label not in of_known:
            number = int(label.partition("-")[0])
            return f"answers are staged for {place}, in an unfinished release that was", number
    return None


def is_held(place: Place, entry: Entry) -> bool:
    """Return whether a folder holds the release of a charge."""
    held = read_charge(place)
    return held is not None and (held.id, held.time) == (entry.id, entry.time)


def _list_staged(place: Place) -> list[str]:
    """List the labels of charged answers that are staged beside a local release folder."""
    if not isinstance(place, LocalPlace) or not place.path.parent.is_dir():
        return []
    with report_write_errors(place.path, "nothing was charged; make what is beside it readable"):
        names = [path.name for path in place.path.parent.iterdir()]
    prefix = f".{place.path.name}."
    found = (_STAGED_NAME.fullmatch(n.removeprefix(prefix)) for n in names if n.startswith(prefix))
    return sorted(match[1] for match in found if match)
