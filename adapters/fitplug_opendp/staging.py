"""Staged answers: what stands beside a release folder, hidden, until the folder is published.

A draw is written to one file that lasts, for its owner alone, before the ledger enters it as made.
File names begin with that of the folder, the number of the charge and the plan, so that a retry
finds them, and what a killed process left is removed with them.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fitplug.errors import InputError
from fitplug.ledgerrows import Entry
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.releasefile import read_answers, write_answers

_PRIVATE = 0o600


@dataclass(frozen=True)
class Staged:
    """Noisy answers that are on the disk, and not in their folder. digest: of the content."""

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
        return Staged(path, drawn, write_answers(drawn, path, _PRIVATE))

    def find(self, contributions: int, digest: str | None) -> Staged | None:
        """Answers that were staged for this charge; with a digest, those alone."""
        prefix = glob.escape(f".{self.folder.name}.{self.mark}.")
        for path in sorted(self.folder.parent.glob(f"{prefix}*.staged.npz")):
            with suppress(InputError, OSError):
                parts, own = read_answers(path, self.plan)
                release = Release(**parts)
                same = release.contributions == contributions and release.entry == self.entry
                if same and digest in (None, own):
                    return Staged(path, release, own)
        return None

    def remove(self) -> None:
        """Remove what this release, and killed runs of it, left beside the folder."""
        prefixes = f".{self.folder.name}.{self.mark}.", self._rehearsal.name
        with suppress(OSError):
            for path in list(self.folder.parent.iterdir()):
                # A file that is being written has one dot more in front.
                if not f".{path.name.lstrip('.')}".startswith(prefixes):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    @property
    def _rehearsal(self) -> Path:
        return self._beside("plan.npz", None)  # written before there is a charge

    def _beside(self, name: str, entry: Entry | None) -> Path:
        mark = _mark(self.plan, entry)
        return self.folder.with_name(f".{self.folder.name}.{mark}.{name}")


def _mark(plan: Plan, entry: Entry | None) -> str:
    return f"{0 if entry is None else entry.id}-{plan.digest[:12]}"
