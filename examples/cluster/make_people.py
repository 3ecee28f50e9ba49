"""Make many rows from the real people of examples/acs, each drawn at random with replacement.

    python make_people.py FOLDER [--rows 100000000]

FOLDER is a path, or a URL of a store. The script writes Parquet files of at most a million rows,
with about 2 bytes a row. It uses a seed, so it always makes the same rows.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pf
import pyarrow.parquet as pq

ACS = Path(__file__).parent.parent / "acs"
COLUMNS = ["AGEP", "SEX", "RAC1P", "HISP"]
FILE_ROWS = 1_000_000
START_SECONDS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    people = pq.read_table(ACS / "people", columns=COLUMNS, use_threads=False)
    rng = np.random.default_rng(20261121)
    system, folder = open_folder(asked.folder)
    for start in range(0, asked.rows, FILE_ROWS):
        drawn = rng.integers(0, people.num_rows, min(FILE_ROWS, asked.rows - start))
        with system.open_output_stream(f"{folder}/part-{start // FILE_ROWS:05}.parquet") as file:
            table = people.take(pa.array(drawn)).combine_chunks()
            pq.write_table(table, file, write_page_checksum=True)


def open_folder(folder: str) -> tuple[pf.FileSystem, str]:
    """Make a folder or a bucket, and return the file system with the path there.

    A store that was started a moment ago may not answer yet.
    """
    where = f"{folder}?allow_bucket_creation=true" if "://" in folder else Path(folder).absolute()
    system, path = pf.FileSystem.from_uri(str(where))
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            system.create_dir(path)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(1)
        else:
            return system, path


if __name__ == "__main__":
    main()
