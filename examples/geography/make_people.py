"""Make up the people of the United States, as many as really live in each county.

    python make_people.py FOLDER

The numbers of people are those of `counties.csv`. Their sexes, ages, races and Hispanic origins are
drawn with the proportions of the real people of examples/acs: of those in the same state, or of all
of them if none is in the state. There is a file for each state. It has a row for each kind of
people in each county, and the number of these people. The script uses a seed, so it always makes
the same people.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ACS = HERE.parent / "acs"
OLDEST = 85
RACE_OF_CODE = {
    "1": "White",
    "2": "Black",
    "3": "American Indian",
    "4": "American Indian",
    "5": "American Indian",
    "6": "Asian",
    "7": "Pacific Islander",
    "8": "Other",
    "9": "Two or more",
}
"""The races, each alone, or two or more of them, of the codes of RAC1P."""

KIND = ["SEX", "AGE", "RACE", "HISPANIC"]


def main(folder: Path) -> None:
    with (HERE / "counties.csv").open(newline="", encoding="utf-8") as file:
        counties = [(row["FIPS"], int(row["population"])) for row in csv.DictReader(file)]
    surveyed = read_survey()
    rng = np.random.default_rng(20261122)
    folder.mkdir(parents=True, exist_ok=True)
    for state in sorted({code[:2] for code, _ in counties}):
        kinds, shares = find_shares(surveyed, state)
        parts = []
        for code, population in counties:
            if code[:2] == state:
                people = rng.multinomial(population, shares)
                lived_in = pa.array([code] * len(people)).dictionary_encode()
                there = kinds.append_column("COUNTY", lived_in)
                there = there.append_column("PEOPLE", pa.array(people))
                parts.append(there.filter(people > 0))
        pq.write_table(pa.concat_tables(parts).unify_dictionaries(), folder / f"{state}.parquet")


def read_survey() -> pa.Table:
    """Read the people of examples/acs, with the columns of KIND and the state of each."""
    columns = ["PUMA", "SEX", "AGEP", "RAC1P", "HISP"]
    rows = pq.read_table(ACS / "people", columns=columns, use_threads=False)
    ages = rows["AGEP"].to_numpy()
    people = {
        "STATE": [area[:2] for area in rows["PUMA"].to_pylist()],
        "SEX": rows["SEX"].to_pylist(),
        "AGE": np.minimum(ages, OLDEST),
        "RACE": [RACE_OF_CODE[code] for code in rows["RAC1P"].to_pylist()],
        "HISPANIC": ["no" if code == "0" else "yes" for code in rows["HISP"].to_pylist()],
    }
    return pa.table(people)


def find_shares(surveyed: pa.Table, state: str) -> tuple[pa.Table, npt.NDArray[np.float64]]:
    """Find the kinds of people in a state and the share of each, from the survey."""
    there = surveyed.filter(np.array(surveyed["STATE"].to_pylist()) == state)
    counted = (there if there.num_rows else surveyed).group_by(KIND, use_threads=False)
    counted = counted.aggregate([([], "count_all")])
    counted = counted.sort_by([(name, "ascending") for name in KIND])
    shares = counted["count_all"].to_numpy().astype(np.float64)
    return counted.select(KIND), shares / shares.sum()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
