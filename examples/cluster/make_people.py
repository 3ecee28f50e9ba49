"""Make many rows from the real people of examples/acs, each drawn at random with replacement.

    python make_people.py FOLDER [--rows 100000000]

The script writes Parquet files of at most a million rows, with about 2 bytes a row. It uses a
seed, so it always makes the same rows.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

ACS = Path(__file__).parent.parent / "acs"
COLUMNS = ["AGEP", "SEX", "RAC1P", "HISP"]
FILE_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    people = ds.dataset(ACS / "people", partitioning="hive").to_table(columns=COLUMNS)
    rng = np.random.default_rng(20261121)
    asked.folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, asked.rows, FILE_ROWS):
        drawn = rng.integers(0, people.num_rows, min(FILE_ROWS, asked.rows - start))
        path = asked.folder / f"part-{start // FILE_ROWS:05}.parquet"
        pq.write_table(people.take(pa.array(drawn)).combine_chunks(), path)


if __name__ == "__main__":
    main()
