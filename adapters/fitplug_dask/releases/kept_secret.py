"""The secrets of a release in parts that a resumed run needs.

The nonce makes the seal of the exact counts: the same counts have the same seal in each run, and
nobody else can test a guess of the counts against it. The person key decides which rows of a person
are kept. Both are in one file beside the ledger, which only its owner can read, from before the
data are counted until the release is published. The plan is in another file there, as another
machine may design one that differs in its last digits.
"""

from __future__ import annotations

import glob
import secrets
from dataclasses import dataclass
from pathlib import Path

from fitplug.counts import NONCE_BYTES
from fitplug.errors import InputError
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger
from fitplug.plan import Plan
from fitplug.release import PLAN
from fitplug_opendp.folder_checks import report_write_errors
from fitplug_opendp.staged_answers import find_beside_ledger

_KEY_BYTES = 32
_SECRET = "secret"


@dataclass(frozen=True)
class KeptSecret:
    """The secrets of one release.

    Attributes:
        nonce: What hides the exact counts in their seal.
        person_key: The key of the hash that chooses rows of a person.
        files: The files beside the ledger; none if no later run needs them.
    """

    nonce: bytes
    person_key: bytes
    files: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        return "KeptSecret()"

    @classmethod
    def locate(cls, ledger: Ledger, plan: Plan, key: str | None, output: str) -> KeptSecret:
        """Say where the secrets of a release are, if there are any, without reading them.

        Args:
            ledger: The ledger.
            plan: The plan.
            key: The name of the release in the ledger.
            output: Where the release goes, as `keep` was told.
        """
        names = _SECRET, PLAN
        files = (find_beside_ledger(ledger, plan.digest, key, output, name) for name in names)
        return cls(b"", b"", tuple(files))

    @classmethod
    def keep(cls, ledger: Ledger | None, plan: Plan, key: str | None, output: str) -> KeptSecret:
        """Find the secrets of a release, or draw them and make them durable.

        Args:
            ledger: The ledger; without one no run is resumed, and nothing is written.
            plan: The plan.
            key: The name of the release in the ledger.
            output: Where the release goes.

        Raises:
            FitplugError: The file cannot be written or read.
        """
        drawn = secrets.token_bytes(NONCE_BYTES + _KEY_BYTES)
        if ledger is None:
            return cls(drawn[:NONCE_BYTES], drawn[NONCE_BYTES:])
        located = cls.locate(ledger, plan, key, output)
        path, plan_path = located.files
        place = LocalPlace(path.parent, 0o600)
        with report_write_errors(path, "nothing was charged; make it writable"):
            place.create(path.name, drawn)
            kept = place.read(path.name)  # whoever was first has decided
            plan.save(plan_path)
        return located._read(kept)

    @classmethod
    def find(cls, ledger: Ledger, plan: Plan, key: str | None, output: str) -> KeptSecret | None:
        """Find the secrets of a release that was begun; None if they are not there.

        Args:
            ledger: The ledger.
            plan: The plan.
            key: The name of the release in the ledger.
            output: Where the release goes, as `keep` was told.

        Raises:
            InputError: The file is damaged.
            OSError: The file cannot be read.
        """
        located = cls.locate(ledger, plan, key, output)
        try:
            return located._read(located.files[0].read_bytes())
        except FileNotFoundError:
            return None

    def _read(self, kept: bytes) -> KeptSecret:
        """Return the secrets of the content of their file."""
        if len(kept) != NONCE_BYTES + _KEY_BYTES:
            raise InputError(
                f"{self.files[0]} is damaged, so a release that was begun cannot be finished; "
                "remove the file, and ask for another draw with a new key"
            )
        return KeptSecret(kept[:NONCE_BYTES], kept[NONCE_BYTES:], self.files)

    def remove(self) -> None:
        """Remove the files, as the release is published, and what a killed client left of them."""
        for path in self.files:
            # The name of a file that is being written has one more dot in front.
            for left in list(path.parent.glob(f".{glob.escape(path.name)}.*")):
                left.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
