"""Staged answers: noisy answers in a hidden folder beside the release, until it is published.

A draw is durable in a folder that only its owner can read, before the ledger enters it as drawn.
The folder appears with all answers at once. Its name begins with the name of the release folder,
the number of the charge and the digest of the plan. A retry finds the folder by its name, and
removes what a killed process left.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitplug.errors import InputError
from fitplug.files import LocalPlace, make_partial_folder, move_into_place
from fitplug.ledger import Entry, Ledger, hash_values
from fitplug.plan import Plan
from fitplug.release import PLAN, Release, read_manifest, write_answers
from fitplug_opendp.folder_checks import encode_path

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
