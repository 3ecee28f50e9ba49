"""Staged answers: what stands beside a release folder, hidden, until the folder is published.

A draw is written to one file that lasts, for its owner alone, before the ledger enters it as made.
File names begin with that of the folder, the number of the charge and the plan, so that a retry
finds them, and what a killed process left is removed with them.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fitplug.errors import InputError
from fitplug.ledger import Entry, Ledger, chained_hash
from fitplug.plan import Plan
from fitplug.release import PLAN, Release, read_answers, write_answers

_PRIVATE = 0o600
_REHEARSAL = "before-the-charge.plan.npz"


@dataclass(frozen=True)
class Staged:
    """Noisy answers that are on the disk, and not in their folder. folder: the one that they are
    beside. digest: of the file's content.
    """

    folder: Path
    path: Path
    release: Release
    digest: str


@dataclass(frozen=True)
class Staging:
    """The place beside the folder of one release. entry: its charge; None for one without."""

    folder: Path
    plan: Plan
    entry: Entry | None

    @property
    def mark(self) -> str:
        """What tells the files of this release from those of others beside the same folder."""
        return _mark(self.plan, self.entry)

    def rehearse(self) -> None:
        """Write the plan, to find before the charge whether anything can be written. Raises
        OSError.
        """
        self.plan.save(self._rehearsal)

    def forget_rehearsal(self) -> None:
        """Remove what `rehearse` wrote."""
        self._rehearsal.unlink(missing_ok=True)

    def write(self, drawn: Release) -> Staged:
        """Write the noisy answers, on the disk when this returns. Raises OSError."""
        path = self._beside(f"{secrets.token_hex(4)}.staged.npz", self.entry)
        return Staged(self.folder, path, drawn, write_answers(drawn, path, _PRIVATE))

    def find(self, contributions: int, digest: str | None) -> Staged | None:
        """Answers that were staged for this charge; with a digest, those alone."""
        prefix = glob.escape(f".{self.folder.name}.{self.mark}.")
        for path in sorted(self.folder.parent.glob(f"{prefix}*.staged.npz")):
            with suppress(InputError, OSError):
                parts, own = read_answers(path, self.plan)
                release = Release(**parts)
                same = release.contributions == contributions and release.entry == self.entry
                if same and digest in (None, own):
                    return Staged(self.folder, path, release, own)
        return None

    def remove(self) -> None:
        """Remove what this release, and killed runs of it, left beside the folder."""
        names = f".{self.folder.name}.{self.mark}.", self._rehearsal.name
        # A file that is being written has one dot more in front.
        prefixes = tuple(dots + name for name in names for dots in ("", "."))
        with suppress(OSError):
            for path in list(self.folder.parent.iterdir()):
                if not path.name.startswith(prefixes):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    @property
    def _rehearsal(self) -> Path:
        # Written before there is a charge, under a name as long as those that come after it.
        return self._beside(_REHEARSAL, None)

    def _beside(self, name: str, entry: Entry | None) -> Path:
        mark = _mark(self.plan, entry)
        return self.folder.with_name(f".{self.folder.name}.{mark}.{name}")


def kept_plan(ledger: Ledger, folder: Path, key: str | None) -> Plan | None:
    """The plan of a release that was begun under this key, or without one for this folder: as it
    was kept beside the folder, or as it is in the folder. None if there is none.

    Another processor or another version of NumPy may design a plan that differs in its last digits,
    which is another plan to the ledger.
    """
    output = write_path(folder)
    stages = ledger.stages()
    for entry in reversed(ledger.entries()):
        stage = stages.get(entry.id)
        if stage is None or stage.output is None or entry.key != key or not entry.plan_digest:
            continue
        if key is None and (stage.state == "published" or entry.output != output):
            continue
        place = Path(stage.output)
        beside = place.with_name(f".{place.name}.0-{entry.plan_digest[:12]}.{_REHEARSAL}")
        for path in (beside, place / PLAN):
            with suppress(InputError):
                plan = Plan.load(path)
                if plan.digest == entry.plan_digest:
                    return plan
    return None


def write_path(path: Path) -> str:
    """A path from the root, as ledgers keep it; bytes that are no text in it are replaced."""
    return os.fsencode(path.absolute()).decode(errors="replace")


def _mark(plan: Plan, entry: Entry | None) -> str:
    """The plan and the charge; a hash of it tells it from that of the same number elsewhere."""
    if entry is None:
        return f"0-{plan.digest[:12]}"
    charge = chained_hash(entry.id, entry.time, entry.what, entry.key)
    return f"{entry.id}-{plan.digest[:12]}-{charge[:8]}"
