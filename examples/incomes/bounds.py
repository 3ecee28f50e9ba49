"""Choose the bounds of the measures by private quantiles, and charge them to the ledger.

    python bounds.py

Each quantile is an OpenDP measurement. It chooses one of the candidates, which are public, and its
cost is charged to `budget.db` before it is drawn. A second run finds the charges and draws nothing.
"""

from collections.abc import Sequence
from pathlib import Path

import opendp.prelude as dp
import pyarrow as pa
import pyarrow.parquet as pq

import fitplug as fp

HERE = Path(__file__).parent
BUDGET = 0.2
"""The whole budget for these people, rho, as in the specs."""

CANDIDATES = {
    "PINCP": (0.98, range(50_000, 1_330_000, 10_000)),
    "PWGTP": (0.99, range(50, 2_070, 50)),
}
"""By column, the quantile, and the bounds that it may choose: round numbers up to the largest of
the code book."""

SCALE = 20.0
"""The scale of the noise that the choice is made with, in people."""


def main() -> None:
    dp.enable_features("contrib")
    ledger = fp.Ledger(HERE / "budget.db", rho=BUDGET)
    for name, (quantile, candidates) in CANDIDATES.items():
        choice = make_choice(quantile, candidates)
        if any(entry.key == f"bound of {name}" for entry in ledger.entries()):
            print(f"the bound of {name} was chosen before; nothing was charged or drawn")
            continue
        what = f"the {quantile:.0%} quantile of {name}"
        entry = ledger.charge_measurement(choice, 1, what=what, key=f"bound of {name}")
        values = pq.read_table(HERE / "incomes.parquet", columns=[name])[name].drop_null()
        bound = choice(values.cast(pa.int64()).to_pylist())
        print(f"{name}: upper bound {bound:,}, rho = {float(entry.rho):.2g}")


def make_choice(quantile: float, candidates: Sequence[int]) -> dp.Measurement:
    """Make the measurement that chooses the candidate next to a quantile of integers."""
    rows = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
    zcdp = dp.zero_concentrated_divergence()
    return dp.m.make_private_quantile(*rows, zcdp, list(candidates), quantile, SCALE)


if __name__ == "__main__":
    main()
