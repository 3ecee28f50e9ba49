"""Make `incomes.parquet` from the people of examples/acs.

    python prepare.py

The people are copied row by row, with the columns that the example uses. Coded columns stay text.
The income, which the source writes as text such as "15400.0", becomes an integer; the code "N" of
people under 15, of whom it is not asked, becomes null.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
CODED = ("PUMA", "SEX", "RAC1P")


def main() -> None:
    people = HERE.parent / "acs" / "people"
    rows = pq.read_table(people, columns=[*CODED, "PINCP", "PWGTP"], use_threads=False)
    columns = {name: rows[name].cast(pa.string()).dictionary_encode() for name in CODED}
    columns["PINCP"] = pa.array(map(read_income, rows["PINCP"].to_pylist()), pa.int32())
    columns["PWGTP"] = rows["PWGTP"]
    pq.write_table(pa.table(columns), HERE / "incomes.parquet", compression="zstd")


def read_income(written: str) -> int | None:
    """Read an income in dollars a year; None if it is not asked."""
    return None if written == "N" else int(float(written))


if __name__ == "__main__":
    main()
