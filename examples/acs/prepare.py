"""Make `people/` from the published CSV, and print the [domain] table from its JSON schema.

    python prepare.py national2019.csv

`schema.json` is the published schema (national2019.json), unchanged. The rows are copied without
changes: coded columns stay text, and integers stay integers. The domain comes only from the schema,
and never from the rows.
"""

import csv
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

INTEGERS = ("AGEP", "PWGTP", "WGTP")
USED = ("AGEP", "SEX", "RAC1P", "HISP")


HERE = Path(__file__).parent


def main(rows_path: str) -> None:
    write_people(Path(rows_path))
    for name, written in domain().items():
        print(f"{name} = {written}")


def write_people(rows_path: Path) -> None:
    with rows_path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "PUMA"]
    schema = pa.schema([(n, pa.int16() if n in INTEGERS else pa.string()) for n in names])
    for puma in sorted({row["PUMA"] for row in rows}):
        columns = {
            n: [int(r[n]) if n in INTEGERS else r[n] for r in rows if r["PUMA"] == puma]
            for n in names
        }
        folder = HERE / "people" / f"PUMA={puma}"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table(columns, schema=schema)
        pq.write_table(table, folder / "part-0.parquet", compression="zstd")


def domain() -> dict[str, str]:
    """Write each attribute that is used as a spec file does, from the schema."""
    described = json.loads((HERE / "schema.json").read_text())["schema"]
    written = {}
    for name in USED:
        field = described[name]
        if "values" in field:
            written[name] = json.dumps([str(v) for v in field["values"]])
        else:
            written[name] = f"{{ integers = [{field['min']}, {field['max']}] }}"
    return written


if __name__ == "__main__":
    main(*sys.argv[1:])
