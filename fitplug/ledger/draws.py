"""Draws: the parts of one release that are drawn at different times, such as period by period.

The release is charged as a whole, before its first part is drawn. Each part then has an entry of
its own, at no cost, within that charge. Its stages say whether the part was drawn, so that no copy
of a folder can draw it again. These entries name no plan and have no costs per cell: what they cost
is in the charge, and no other release is ever taken for a retry of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fractions import Fraction

from fitplug.errors import KeyTaken
from fitplug.ledger import rows as rows
from fitplug.ledger.charges import Charge, check_key_is_new, check_texts, read_time
from fitplug.ledger.entry import Entry
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.requests import StagedCharge
from fitplug.ledger.stages import Stage

_LOG = logging.getLogger("fitplug.ledger")


@dataclass(frozen=True)
class DrawRequest:
    """A request to enter the draw of a part of a release, made for the first time or again.

    Attributes:
        charge: The charge of the whole release.
        key: The name of the part. A request with the same charge and key is a retry.
        what: What is drawn.
        output: Where the part goes.
    """

    charge: Entry
    key: str
    what: str
    output: str


def begin_draw(file: LedgerFile, request: DrawRequest) -> StagedCharge:
    """Enter the draw of a part, or find the entry that the request is a retry of.

    Raises:
        LedgerError: The ledger does not have the charge of the whole release, or the file cannot be
            written.
        KeyTaken: The key is that of something else.
        InputError: A text is empty or broken Unicode.
    """
    check_texts(request.what, request.key, request.output)
    with file.open_transaction("IMMEDIATE") as database:
        budget, entries, stages = rows.read_all(database)
        charge = request.charge
        if charge not in entries or charge.within is not None:
            raise file.make_error(
                f"does not have the charge number {charge.id} as it was made; open the ledger that "
                "the release was begun with"
            )
        found = next((entry for entry in entries if entry.key == request.key), None)
        if found is not None:
            if (found.within, found.plan_digest) != (charge.id, None) or found.id not in stages:
                raise KeyTaken(
                    file.make_sentence(f"has the key {request.key!r} for something else already"),
                    number=found.id,
                )
            return StagedCharge(found, stages[found.id])
        check_key_is_new(file, database, request.key)
        entry, budget = Charge(
            rho=Fraction(0),
            what=request.what,
            key=request.key,
            plan_digest=None,
            output=request.output,
            within=charge.id,
            costs=None,
            bound_unit=charge.bound_unit,
        ).enter(database, budget)
        stage = Stage(entry.id, "charged", read_time(), output=request.output)
        rows.append_stage(database, budget, stage)
    _LOG.info("entered a draw as number %d of %s", entry.id, file.path)
    return StagedCharge(entry, stage)
