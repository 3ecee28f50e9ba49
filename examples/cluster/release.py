"""Count people on a Dask cluster, and release the counts. Only the workers read rows.

python release.py FOLDER --scheduler tcp://127.0.0.1:8786
"""

import argparse
from pathlib import Path

from distributed import Client

import fitplug as fp
import fitplug_dask as fpd
import fitplug_opendp as fpo

DOMAIN = fp.Domain(
    {
        "AGEP": fp.Integers(0, 95),
        "SEX": ["1", "2"],
        "RAC1P": [str(code) for code in range(1, 10)],
        "HISP": [str(code) for code in range(5)],
    }
)
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.queries({"SEX": "identity", "AGEP": "prefix"}, std=12.0, name="pyramid"),
        fp.marginal("RAC1P", "HISP", moe=15.0, confidence=0.90, name="race by Hispanic origin"),
        fp.total(std=5.0),
    ],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="as the workers see it")
    parser.add_argument("--scheduler", required=True, help="address of the Dask scheduler")
    asked = parser.parse_args()
    plan = fp.design(WORKLOAD)
    print(plan.summary())
    with Client(asked.scheduler) as client:
        tables = fpd.count(asked.folder.absolute(), plan, client=client, progress=True)
    ledger = fp.Ledger(asked.folder.with_suffix(".db"), rho=1.0)
    release = fpo.release(plan, tables, ledger=ledger)
    total = release.combine({"total": 1})
    print(f"people, released: {total.value:.0f}, std {total.std:.1f}")
    print(f"spent: rho = {ledger.spent:.6g}, left {ledger.remaining:.6g}")


if __name__ == "__main__":
    main()
