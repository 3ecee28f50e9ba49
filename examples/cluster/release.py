"""Count people on a Dask cluster, and release the counts in parts. Only the workers read rows.

python release.py SOURCE OUTPUT --scheduler tcp://127.0.0.1:8786

SOURCE and OUTPUT are folders that all workers see under the same path, or URLs of a store.
"""

import argparse
from pathlib import Path

from distributed import Client

import fitplug as fp

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
BESIDE_CHECKOUT = Path(__file__).resolve().parents[3] / "fitplug-cluster"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="the folder or URL of the rows, as the workers see it")
    parser.add_argument("output", help="the folder or URL of the release, as the workers see it")
    parser.add_argument("--scheduler", required=True, help="address of the Dask scheduler")
    parser.add_argument("--key", default="2026", help="name of the release in the ledger")
    parser.add_argument("--ledger", type=Path, default=BESIDE_CHECKOUT / "people.db")
    asked = parser.parse_args()
    plan = fp.design(WORKLOAD)
    print(plan.summary())
    asked.ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger = fp.Ledger(asked.ledger, rho=1.0)
    # If this process is killed, the same command finishes the release and charges nothing more.
    with Client(asked.scheduler) as client:
        release = fp.release(
            plan,
            asked.source,
            asked.output,
            client=client,
            ledger=ledger,
            key=asked.key,
            progress=True,
        )
    release.verify()
    total = release.estimate("total")
    women = release.estimate("pyramid[SEX = 2, AGEP <= 64]")
    print(f"people, released: {total.value:.0f}, std {total.std:.1f}")
    print(f"women up to the age of 64, released: {women.value:.0f}, std {women.std:.1f}")
    print(f"spent: rho = {ledger.spent:.6g}, left {ledger.remaining:.6g}")


if __name__ == "__main__":
    main()
