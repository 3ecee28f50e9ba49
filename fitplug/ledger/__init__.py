"""Ledgers: the privacy budget, kept in a file."""

from fitplug.ledger.cell_costs import CellCosts as CellCosts
from fitplug.ledger.charges import ChargeReference as ChargeReference
from fitplug.ledger.charges import ChargeRequest as ChargeRequest
from fitplug.ledger.charges import StagedCharge as StagedCharge
from fitplug.ledger.ledger import Ledger as Ledger
from fitplug.ledger.records import Budget as Budget
from fitplug.ledger.records import Entry as Entry
from fitplug.ledger.records import Stage as Stage
from fitplug.ledger.records import decode_fraction as decode_fraction
from fitplug.ledger.records import encode_fraction as encode_fraction
from fitplug.ledger.records import hash_values as hash_values
from fitplug.ledger.records import make_budget as make_budget
from fitplug.ledger.release_charges import DrawRequest as DrawRequest
from fitplug.ledger.release_charges import ReleaseCharges as ReleaseCharges
from fitplug.ledger.summary import format_ledger_html as format_ledger_html
from fitplug.ledger.summary import summarise_ledger as summarise_ledger
