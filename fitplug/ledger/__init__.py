"""Ledgers: the privacy budget, kept in a file."""

from fitplug.ledger.cell_costs import MOST_CONTRIBUTIONS, CellCosts, check_contributions
from fitplug.ledger.ledger import Ledger
from fitplug.ledger.rows import Budget, Entry
from fitplug.ledger.rules import Begun, Request, Which
from fitplug.ledger.stages import Stage, chained_hash

__all__ = [
    "MOST_CONTRIBUTIONS",
    "Begun",
    "Budget",
    "CellCosts",
    "Entry",
    "Ledger",
    "Request",
    "Stage",
    "Which",
    "chained_hash",
    "check_contributions",
]
