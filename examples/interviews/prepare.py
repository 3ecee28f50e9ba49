"""Make `interviews.parquet` from the published data set `nlswork`, saved as CSV.

    python prepare.py nlswork.csv

Each row is one interview. Codes become the words of the code book, and no row is left out but those
of the years before 1975. A missing industry stays null.
"""

import csv
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

RACES = {"1": "white", "2": "black", "3": "other"}
INDUSTRIES = (
    "agriculture",
    "mining",
    "construction",
    "manufacturing",
    "transport and utilities",
    "trade",
    "finance",
    "business services",
    "personal services",
    "entertainment",
    "professional services",
    "public administration",
)
FIRST_YEAR = 1975

HERE = Path(__file__).parent


def main(rows_path: str) -> None:
    with Path(rows_path).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if read_year(row) >= FIRST_YEAR]
    columns = {
        "PERSON": pa.array([int(row["idcode"]) for row in rows], pa.int32()),
        "YEAR": pa.array([read_year(row) for row in rows], pa.int16()),
        "RACE": pa.array([RACES[row["race"]] for row in rows]).dictionary_encode(),
        "INDUSTRY": pa.array([read_industry(row) for row in rows]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), HERE / "interviews.parquet", compression="zstd")


def read_year(row: dict[str, str]) -> int:
    return 1900 + int(row["year"])


def read_industry(row: dict[str, str]) -> str | None:
    code = row["ind_code"]
    return INDUSTRIES[int(float(code)) - 1] if code not in ("", "NA") else None


if __name__ == "__main__":
    main(*sys.argv[1:])
