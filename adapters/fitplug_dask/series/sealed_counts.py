"""Sealed counts: the exact counts of the periods so far, which the answers of later ones need.

They are beside the folder of the series, encrypted with AES-GCM. The key is derived from a nonce,
and this from the secret of the key file, which lies apart. Anyone with the counts and the key file
can subtract the exact answers from the released ones, which reveals everything. Both are removed
when the last period is drawn, or the series is closed.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from fitplug.errors import InputError
from fitplug.files import LocalPlace
from fitplug_dask.encryption import decrypt_long, encrypt_long
from fitplug_dask.series.period_counts import PeriodCounts
from fitplug_dask.series.period_folders import name_counts


@dataclass(frozen=True, repr=False)
class SealedCounts:
    """The encrypted counts of a series.

    Attributes:
        place: The hidden folder that holds them.
        nonce: What hides the counts in their seals, and what their key is derived from.
        series: The digest of the series.
    """

    place: LocalPlace
    nonce: bytes
    series: str

    def __repr__(self) -> str:
        return "SealedCounts()"

    def keep(self, index: int, counts: PeriodCounts) -> PeriodCounts:
        """Make the counts of a period durable, unless there are some, and return those that are.

        Raises:
            OSError: They cannot be written.
            InputError: Those that are there are damaged.
        """
        content = encrypt_long(self._key, counts.encode(), self._name_context(index))
        self.place.create(name_counts(index), content)
        return self.read(index)

    def has(self, index: int) -> bool:
        """Return whether the counts of a period are there."""
        return name_counts(index) in self.place.list_sizes()

    def read(self, index: int) -> PeriodCounts:
        """Read the counts of a period.

        Raises:
            InputError: They are missing or damaged, or are of another period or series.
            OSError: They cannot be read.
        """
        try:
            encrypted = self.place.read(name_counts(index))
            return PeriodCounts.decode(
                decrypt_long(self._key, encrypted, self._name_context(index))
            )
        except (FileNotFoundError, ValueError):
            raise InputError(
                f"{self.place}: the sealed counts of period {index + 1} are missing or damaged; "
                "put the files back: without them no later period can be drawn"
            ) from None

    def seal(self, index: int, counts: PeriodCounts) -> str:
        """Compute the seal of the counts of a period, which tells nothing of them, in hex."""
        said = f"the seal of period {index} of {self.series}:".encode()
        return hmac.new(self.nonce, said + counts.encode(), hashlib.sha256).hexdigest()

    @property
    def _key(self) -> bytes:
        said = f"the key of the counts of {self.series}".encode()
        return hmac.new(self.nonce, said, hashlib.sha256).digest()

    def _name_context(self, index: int) -> bytes:
        return f"period {index} of {self.series}".encode()
