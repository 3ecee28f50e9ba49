"""Records: what a series is, which its folder says and its ledger has entered.

The digest of the record is what the ledger keeps as the answers of the charge. So a folder whose
record was edited, and a ledger that the series was not charged to, are both noticed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from fitplug.errors import InputError
from fitplug.files import LocalPlace
from fitplug.ledger import hash_values
from fitplug.plan import Plan
from fitplug.release import PLAN

RECORD = "series.json"

_KIND, _FORMAT = "series of fitplug", 1


@dataclass(frozen=True)
class SeriesRecord:
    """What a series is. All of it is public.

    Attributes:
        plan_digest: The digest of the plan.
        periods: The attribute whose cells are the periods.
        contributions: The number of records of one person that the series is charged for.
        confidence: The confidence of the intervals in tables of groups whose target has none.
        key: The name of the series in the ledger.
        entry: The number of its charge.
        time: When it was charged.
    """

    plan_digest: str
    periods: str
    contributions: int
    confidence: float
    key: str
    entry: int
    time: str

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hex, of the record."""
        return hash_values(_KIND, _FORMAT, *asdict(self).values())

    def write(self, folder: Path) -> None:
        """Write the record unless the folder has one, durably.

        Raises:
            OSError: It cannot be written.
        """
        said = {"kind": _KIND, "format": _FORMAT, **asdict(self), "digest": self.digest}
        LocalPlace(folder).create(RECORD, json.dumps(said, indent=1).encode() + b"\n")

    def _has_types(self) -> bool:
        """Return whether the fields are of their types, which a file need not be of."""
        types = [str, str, int, float, str, int, str]
        return [type(value) for value in asdict(self).values()] == types

    @classmethod
    def read(cls, folder: Path) -> SeriesRecord:
        """Read the record of a folder.

        Raises:
            InputError: There is none, or it is damaged or was edited.
        """
        path = folder / RECORD
        if not path.is_file():
            raise InputError(
                f"{folder} is no folder of a series: {RECORD} is missing; name the folder that "
                "begin_series was given"
            )
        try:
            said = json.loads(path.read_bytes())
            is_known = (said.pop("kind"), said.pop("format")) == (_KIND, _FORMAT)
            digest, record = said.pop("digest"), cls(**said)
            is_known = is_known and digest == record.digest and record._has_types()
        except (ValueError, TypeError, KeyError, AttributeError):
            is_known = False
        if not is_known:
            raise InputError(f"{path} is damaged, or it was edited; put the file back")
        return record


def read_plan(folder: Path, record: SeriesRecord) -> Plan:
    """Read the plan of a series.

    Raises:
        InputError: The plan is missing or damaged, or it is another one.
    """
    path = folder / PLAN
    if not path.is_file():
        raise InputError(f"{folder}: {PLAN} is missing; put the file back")
    plan = Plan.load(path)
    if plan.digest != record.plan_digest:
        raise InputError(f"{path} is another plan than that of the series; put the file back")
    return plan
