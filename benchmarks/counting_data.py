"""Draw rows for the counting benchmark from the real people of examples/acs, or skewed ones.

Each row of people joins a person to an independently drawn household. Within the columns of
persons, and within those of households, the joint distribution is the real one. Across them many
cells are in use, as in a census. No value is made up.

The skewed rows are made up: most values of a column are its first few, and the columns differ in
how they are stored, which is what readers take different times for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import fitplug as fp

ACS = Path(__file__).parent.parent / "examples" / "acs"
PERSON = ["AGEP", "SEX", "MSP", "EDU", "INDP_CAT", "PINCP_DECILE"]
PERSON += ["DVET", "DREM", "DPHY", "DEYE", "DEAR"]
HOUSEHOLD = ["PUMA", "RAC1P", "HISP", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT"]
INCOME = "PINCP"
"""The income of a person."""

REFERENCE = {"REF_SEX": "SEX", "REF_RAC1P": "RAC1P"}
"""The columns of a third person, who is drawn independently too."""

_DRAWN_AT_ONCE = 2**18
Types = list[tuple[str, pa.DataType]]


class Skewed(NamedTuple):
    """How a column of skewed values is stored.

    Attributes:
        kind: The type: an integer, text, or Arrow's dictionary of text.
        size: The number of values.
        nulls: The share of nulls.
        encoded: Whether the pages refer to a dictionary.
    """

    kind: pa.DataType
    size: int
    nulls: float = 0.0
    encoded: bool = False


TEXTS = pa.dictionary(pa.int32(), pa.string())
SKEWED = {
    "plain": Skewed(pa.int8(), 10),
    "nullable": Skewed(pa.int8(), 10, nulls=0.3),
    "texts": Skewed(pa.string(), 10, encoded=True),
    "dictionary": Skewed(TEXTS, 10, nulls=0.1, encoded=True),
    "encoded": Skewed(pa.int32(), 10, nulls=0.3, encoded=True),
    "short": Skewed(pa.int16(), 10, encoded=True),
    "plain_texts": Skewed(pa.string(), 10, nulls=0.3),
}


def skewed_domain() -> fp.Domain:
    """Build the domain of the skewed columns; null is outside of it."""
    return fp.Domain(
        {
            name: fp.Integers(0, column.size - 1)
            if pa.types.is_integer(column.kind)
            else fp.Categories([f"value {i:02}" for i in range(column.size)])
            for name, column in SKEWED.items()
        }
    )


def write_skewed(
    folder: Path, rows: int, *, files: int, group_rows: int, folders: int = 0
) -> list[str]:
    """Write Parquet files of all skewed columns, from a seed.

    Args:
        folder: The folder of the files.
        rows: The number of rows in all files.
        files: The number of files.
        group_rows: The number of rows of a row group.
        folders: How many folders `area=...` the files are spread over; 0 for none.

    Returns:
        The paths of the files.
    """
    rng = np.random.default_rng(20261126)
    encoded = [name for name, column in SKEWED.items() if column.encoded]
    paths = []
    for i in range(files):
        n = rows * (i + 1) // files - rows * i // files
        table = pa.table({name: draw_skewed(rng, n, column) for name, column in SKEWED.items()})
        place = folder / f"area={i % folders:04}" if folders else folder
        place.mkdir(parents=True, exist_ok=True)
        paths.append(str(place / f"part-{i:05}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=group_rows, use_dictionary=encoded)
    return paths


def draw_skewed(rng: np.random.Generator, rows: int, column: Skewed) -> pa.Array:
    """Draw values of a column, of which the first is the most likely."""
    last = column.size - 1
    codes = np.minimum(rng.exponential(column.size / 6, rows).astype(np.int32), last)
    drawn = pa.array(codes, mask=rng.random(rows) < column.nulls)
    if pa.types.is_integer(column.kind):
        return drawn.cast(column.kind)
    entries = pa.array([f"value {i:02}" for i in range(column.size)])
    return pa.DictionaryArray.from_arrays(drawn, entries).cast(column.kind)


def domain() -> fp.Domain:
    """Build the domain of the 20 attributes from the published schema."""
    described = json.loads((ACS / "schema.json").read_text())["schema"]
    sources = {name: name for name in (*PERSON, *HOUSEHOLD)} | REFERENCE
    attributes = {}
    for name, source in sources.items():
        field = described[source]
        if "values" in field:
            attributes[name] = fp.Categories([str(value) for value in field["values"]])
        else:
            attributes[name] = fp.Integers(field["min"], field["max"])
    return fp.Domain(attributes)


def write(
    folder: Path,
    rows: int,
    *,
    files: int,
    group_rows: int,
    names: Sequence[str] = (),
    uniform: bool = False,
) -> list[str]:
    """Write Parquet files with snappy compression, from a seed.

    Args:
        folder: The folder of the files.
        rows: The number of rows in all files.
        files: The number of files.
        group_rows: The number of rows of a row group.
        names: The columns; all if empty.
        uniform: Whether every value of each column is equally likely and the columns are
            independent, so that as many cells as possible are in use.

    Returns:
        The paths of the files.
    """
    coded = read_people([*PERSON, *HOUSEHOLD])
    kept = domain().ordered(tuple(names)) if names else domain().names
    types = [(name, pa.int16() if name == "AGEP" else pa.string()) for name in kept]
    rng = np.random.default_rng(20261121)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(files):
        left = rows * (i + 1) // files - rows * i // files
        paths.append(str(folder / f"part-{i:03}.parquet"))
        with pq.ParquetWriter(paths[-1], pa.schema(types)) as writer:
            while left:
                n = min(left, group_rows)
                drawn = draw_uniform if uniform else partial(draw_people, people=coded)
                writer.write_table(drawn(rng, rows=n, types=types), n)
                left -= n
    return paths


def read_people(columns: Sequence[str]) -> dict[str, pa.Array]:
    """Read columns of the real people: integers as they are, and all others as text."""
    people = ds.dataset(ACS / "people", partitioning="hive").to_table(columns=list(columns))
    return {name: _coded(people[name].combine_chunks()) for name in columns}


def _coded(column: pa.Array) -> pa.Array:
    return column if pa.types.is_integer(column.type) else column.cast(pa.string())


def draw_people(
    rng: np.random.Generator, people: dict[str, pa.Array], rows: int, types: Types
) -> pa.Table:
    """Draw rows, each of one person, the household of another, and a third for reference."""
    chunks = []
    for start in range(0, rows, _DRAWN_AT_ONCE):
        n = min(_DRAWN_AT_ONCE, rows - start)
        draws = [pa.array(rng.integers(0, len(people["AGEP"]), n)) for _ in range(3)]
        columns = {}
        for name, _ in types:
            which = 0 if name in (*PERSON, INCOME) else 1 if name in HOUSEHOLD else 2
            columns[name] = people[REFERENCE.get(name, name)].take(draws[which])
        chunks.append(pa.table(columns, schema=pa.schema(types)))
    return pa.concat_tables(chunks)


def draw_uniform(rng: np.random.Generator, rows: int, types: Types) -> pa.Table:
    """Draw rows whose values are all equally likely."""
    columns = {}
    for name, kind in types:
        values = pa.array(domain()[name].labels).cast(kind)
        columns[name] = values.take(pa.array(rng.integers(0, len(values), rows)))
    return pa.table(columns, schema=pa.schema(types))
