"""The secrets of a release in parts that a resumed run needs.

The nonce makes the seal of the exact counts: the same counts have the same seal in each run, and
nobody else can test a guess of the counts against it. The person key decides which rows of a person
are kept. Both are in one file beside the ledger, which only its owner can read, from before the
data are counted until the release is published.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from fitplug.counts import NONCE_BYTES
from fitplug.errors import InputError
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger, hash_values
from fitplug_opendp.folder_checks import report_write_errors

_KEY_BYTES = 32


@dataclass(frozen=True)
class KeptSecret:
    """The secrets of one release.

    Attributes:
        nonce: What hides the exact counts in their seal.
        person_key: The key of the hash that chooses rows of a person.
        place: The folder of the file; None if no later run needs them.
        name: The name of the file.
    """

    nonce: bytes
    person_key: bytes
    place: LocalPlace | None = None
    name: str = ""

    def __repr__(self) -> str:
        return "KeptSecret()"

    @classmethod
    def keep(
        cls, ledger: Ledger | None, plan_digest: str, key: str | None, output: str
    ) -> KeptSecret:
        """Find the secrets of a release, or draw them and make them durable.

        Args:
            ledger: The ledger; without one no run is resumed, and nothing is written.
            plan_digest: The digest of the plan.
            key: The name of the release in the ledger.
            output: Where the release goes.

        Raises:
            FitplugError: The file cannot be written or read.
        """
        drawn = secrets.token_bytes(NONCE_BYTES + _KEY_BYTES)
        if ledger is None:
            return cls(drawn[:NONCE_BYTES], drawn[NONCE_BYTES:])
        place = LocalPlace(ledger.path.absolute().parent, 0o600)
        name = f".{ledger.path.name}.{hash_values(plan_digest, key, output)[:16]}.secret"
        with report_write_errors(place.path / name, "nothing was charged; make it writable"):
            place.create(name, drawn)
            kept = place.read(name)  # whoever was first has decided
        if len(kept) != len(drawn):
            raise InputError(
                f"{place.path / name} is damaged, so a release that was begun cannot be finished; "
                "remove the file, and ask for another draw with a new key"
            )
        return cls(kept[:NONCE_BYTES], kept[NONCE_BYTES:], place, name)

    def remove(self) -> None:
        """Remove the file, as the release is published."""
        if self.place is not None:
            self.place.remove(self.name)
