"""Ledgers: the privacy budget, kept in a file."""

from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.charges import ChargeReference, ChargeRequest, StagedCharge
from fitplug.ledger.ledger import Ledger
from fitplug.ledger.records import (
    Budget,
    Entry,
    Stage,
    decode_fraction,
    encode_fraction,
    hash_values,
    make_budget,
)
from fitplug.ledger.release_charges import DrawRequest, ReleaseCharges
from fitplug.ledger.summary import format_ledger_html, summarise_ledger

__all__ = [
    "Budget",
    "CellCosts",
    "ChargeReference",
    "ChargeRequest",
    "DrawRequest",
    "Entry",
    "Ledger",
    "ReleaseCharges",
    "Stage",
    "StagedCharge",
    "decode_fraction",
    "encode_fraction",
    "format_ledger_html",
    "hash_values",
    "make_budget",
    "summarise_ledger",
]
