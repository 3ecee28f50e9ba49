"""Make `people.csv` and `codebook.csv` from the published rows and the published dictionary.

    python prepare.py ma2019.csv data_dictionary.json

The rows keep six of the published columns, unchanged. The codebook comes only from the dictionary,
and never from the rows.
"""

import csv
import json
import sys
from pathlib import Path

COLUMNS = ("PUMA", "AGEP", "SEX", "EDU", "PINCP", "HOUSING_TYPE")
DESCRIBED = ("PUMA", "AGEP", "SEX", "EDU", "HOUSING_TYPE")

HERE = Path(__file__).parent


def main(rows_path: str, dictionary_path: str) -> None:
    write_people(Path(rows_path))
    write_codebook(json.loads(Path(dictionary_path).read_text(encoding="utf-8")))


def write_people(rows_path: Path) -> None:
    with (
        rows_path.open(newline="", encoding="utf-8") as source,
        (HERE / "people.csv").open("w", newline="", encoding="utf-8") as target,
    ):
        writer = csv.DictWriter(target, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv.DictReader(source))


def write_codebook(dictionary: dict[str, dict[str, dict[str, str]]]) -> None:
    """Write the codes of Massachusetts only; the dictionary has those of other states, too."""
    with (HERE / "codebook.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("attribute", "value", "min", "max", "label"))
        for name in DESCRIBED:
            values = dictionary[name]["values"]
            if "min" in values:
                writer.writerow((name, "", values["min"], values["max"], "age in years"))
            else:
                codes = {v: t for v, t in values.items() if name != "PUMA" or v.startswith("25-")}
                writer.writerows((name, value, "", "", label) for value, label in codes.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
