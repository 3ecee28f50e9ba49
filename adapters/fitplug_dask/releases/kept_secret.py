"""The secrets of a release in parts that a resumed run needs.

The nonce makes the seal of the exact counts: the same counts have the same seal in each run, and
nobody else can test a guess of the counts against it. The person key decides which rows of a person
are kept. Both are derived from the secret of one key file, which is there from before the data are
counted until the release is published. The plan is in a file beside the ledger, as another machine
may design one that differs in its last digits.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from fitplug.errors import FitplugError
from fitplug.ledger import Ledger, hash_values
from fitplug.release import PLAN
from fitplug_dask.encryption import KEY_BYTES
from fitplug_dask.key_file import KeyFile, derive_key
from fitplug_dask.releases.parted_release import PartedRelease
from fitplug_opendp.staging import find_beside_ledger, report_write_errors


@dataclass(frozen=True, repr=False)
class KeptSecret:
    """The secrets of one release.

    Attributes:
        nonce: What hides the exact counts in their seal.
        person_key: The key of the hash that chooses rows of a person.
        key_file: The file that they are derived from; None if no later run needs them.
        plan_file: The file of the plan; None if no later run needs it.
    """

    nonce: bytes
    person_key: bytes
    key_file: KeyFile | None = None
    plan_file: Path | None = None

    def __repr__(self) -> str:
        return "KeptSecret()"

    @classmethod
    def keep(cls, release: PartedRelease, named: str | PathLike[str] | None = None) -> KeptSecret:
        """Find the secrets of a release, or draw them and make them durable before its charge.

        Without a ledger no run is resumed, and nothing is written.

        Args:
            release: The release, prepared.
            named: The key file that the publisher names, if there is one.

        Raises:
            InputError: The key file would lie beside the counts, is damaged or of something else,
                or the release was begun and the file is not there.
            FitplugError: A file cannot be written or read.
        """
        ledger = release.request.ledger
        if ledger is None:
            return cls._derive(secrets.token_bytes(KEY_BYTES))
        key_file, plan_file = _locate(release, ledger, named)
        secret = None
        if not release.needs_counts:
            with suppress(FitplugError):  # nothing is read any more that needs it
                secret = key_file.find()
        elif release.charged_seal is not None:
            secret = key_file.read(
                "without it nobody can tell whether counts are those that were charged for, so "
                "only another release, with another key of the ledger, can be made"
            )
        else:
            secret = key_file.keep()
            with report_write_errors(plan_file, "nothing was charged; make it writable"):
                release.request.plan.save(plan_file)
        return cls._derive(secret or secrets.token_bytes(KEY_BYTES), key_file, plan_file)

    @classmethod
    def _derive(
        cls, secret: bytes, key_file: KeyFile | None = None, plan_file: Path | None = None
    ) -> KeptSecret:
        """Derive the secrets of a release from that of its key file."""
        nonce = derive_key(secret, "the nonce of the seals of a release")
        person_key = derive_key(secret, "the rows of persons in a release")
        return cls(nonce, person_key, key_file, plan_file)

    def remove(self) -> None:
        """Remove the files, as the release is published."""
        if self.key_file is not None:
            self.key_file.remove()
        if self.plan_file is not None:
            self.plan_file.unlink(missing_ok=True)


def _locate(
    release: PartedRelease, ledger: Ledger, named: str | PathLike[str] | None
) -> tuple[KeyFile, Path]:
    """Say where the key file and the plan of a release are."""
    request, output = release.request, release.output
    identity = request.plan.digest, request.key, output.text
    owner = hash_values("release in parts", *identity)
    key_file = KeyFile.locate(
        named,
        f"the release into {output}",
        owner,
        beside=output.list_local(),
        # Another ledger may have a release of the same plan, key and output.
        name=hash_values(owner, str(ledger.path.absolute())),
    )
    return key_file, find_beside_ledger(ledger, *identity, PLAN)
