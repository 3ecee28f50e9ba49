"""Ledgers: the privacy budget, kept in a file."""

from fitplug.ledger.budget import Budget, make_budget
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.draws import DrawRequest
from fitplug.ledger.entry import Entry
from fitplug.ledger.fraction_text import decode_fraction, encode_fraction
from fitplug.ledger.hash_chain import hash_values
from fitplug.ledger.ledger import Ledger
from fitplug.ledger.requests import ChargeReference, ChargeRequest, StagedCharge
from fitplug.ledger.stages import Stage

__all__ = [
    "Budget",
    "CellCosts",
    "ChargeReference",
    "ChargeRequest",
    "DrawRequest",
    "Entry",
    "Ledger",
    "Stage",
    "StagedCharge",
    "decode_fraction",
    "encode_fraction",
    "hash_values",
    "make_budget",
]
