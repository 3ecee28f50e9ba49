"""Entry: one charge to a ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from fitplug.workload import BoundUnit, Unit


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    Attributes:
        id: The number of the charge, from 1.
        time: When the ledger was charged, in UTC (ISO 8601).
        rho: The charge in rho of zCDP, exact. It is 0 for a release that is free within an earlier
            charge.
        what: What the charge paid for.
        key: The name of the charge, if it was given one. No two charges have one key.
        plan_digest: The digest of the plan that is released.
        output: Where the release went.
        within: The number of the earlier charge within which this release is free.
        profile: The digest of the costs per cell that the ledger keeps with the charge.
        bound_unit: The unit of privacy of what was paid for, with the cells that it is about; rho
            is what it costs in the ledger's unit.
    """

    id: int
    time: str
    rho: Fraction
    what: str
    key: str | None = None
    plan_digest: str | None = None
    output: str | None = None
    within: int | None = None
    profile: str | None = None
    bound_unit: BoundUnit = field(kw_only=True)

    @property
    def unit(self) -> Unit:
        """The unit of privacy of what was paid for, without its cells."""
        return self.bound_unit.unit
