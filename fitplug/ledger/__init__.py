"""Ledgers: a privacy budget in a file, and what was charged to it."""

from fitplug.ledger.cell_costs import CellCosts as CellCosts
from fitplug.ledger.charges import (
    ChargeReference as ChargeReference,
    ChargeRequest as ChargeRequest,
    StagedCharge as StagedCharge,
)
from fitplug.ledger.ledger import Ledger as Ledger, read_statement as read_statement
from fitplug.ledger.records import (
    Budget as Budget,
    Entry as Entry,
    Stage as Stage,
    decode_fraction as decode_fraction,
    encode_fraction as encode_fraction,
    hash_values as hash_values,
    make_budget as make_budget,
)
from fitplug.ledger.release_charges import (
    DrawRequest as DrawRequest,
    ReleaseCharges as ReleaseCharges,
)
from fitplug.ledger.summary import (
    format_ledger_html as format_ledger_html,
    summarise_ledger as summarise_ledger,
)
