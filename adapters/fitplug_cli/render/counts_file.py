"""Files of exact counts, which `fitplug count` writes and `fitplug release` reads.

The files are confidential: only their owner may read them. They hold the seal of the counts and its
nonce. A file that was edited is therefore refused, and the counts that are read are known to be
those that were written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.counts import Tables
from fitplug.domain import Domain
from fitplug.errors import TablesError
from fitplug.files import read_archive
from fitplug.workload import AddRemove
from fitplug_cli.files import replace_file

_FORMAT = 2


def write_counts(path: Path, tables: Tables) -> None:
    """Write exact counts into a file that only this user may read.

    Raises:
        WriteError: If the file cannot be written.
    """
    names = [list(key) for key in tables]
    header = json.dumps(
        {
            "format": _FORMAT,
            "seal": tables.seal,
            "nonce": tables.nonce.hex(),
            "domain": list(tables.domain.spec().items()),
            "tables": names,
            "unit": None if tables.unit is None else tables.unit.to_spec(),
            "person": tables.person,
            "rows": tables.rows,
        }
    )
    arrays = {f"table{i}": tables[key] for i, key in enumerate(tables)}
    text = np.frombuffer(header.encode(), dtype=np.uint8)
    with replace_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read_counts(path: Path) -> Tables:
    """Read exact counts, and check the seal they were written with.

    Args:
        path: A file by `write_counts`.

    Raises:
        TablesError: If the file is missing or damaged, was edited, or is of another version.
    """
    if not path.is_file():
        raise TablesError(f"{path}: there is no such counts file; make it with: fitplug count")
    try:
        with path.open("rb") as file:
            header, arrays = read_archive(file, _list_shapes)
        tables = Tables(
            _build_domain(header),
            {tuple(names): arrays[f"table{i}"] for i, names in enumerate(header["tables"])},
            unit=None if header["unit"] is None else AddRemove(**header["unit"]),
            person=header["person"],
            rows=header["rows"],
            nonce=bytes.fromhex(header["nonce"]),
            copy=False,
        )
        if tables.seal != header["seal"]:
            raise TablesError("the counts were edited after they were counted; count again")
    except TablesError as error:
        raise TablesError(f"{path}: {error}") from None
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise TablesError(
            f"{path}: this is not a counts file, or it is damaged; count again"
        ) from None
    return tables


def _build_domain(header: dict[str, Any]) -> Domain:
    return Domain.from_spec(dict(header["domain"]))


def _list_shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array by the header. Raises TablesError for another format."""
    if header.get("format") != _FORMAT:
        raise TablesError("this counts file is of another version of fitplug; count again")
    domain = _build_domain(header)
    return {f"table{i}": domain.shape_of(names) for i, names in enumerate(header["tables"])}
