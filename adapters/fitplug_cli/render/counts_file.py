"""Files of exact counts, written by `fitplug count` and read by `fitplug release`.

The files are confidential: only their owner may read them. They contain the seal of the counts and
its nonce, so an edited file is refused.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.counts import OutsideCounts, Tables
from fitplug.domain import Domain, get_shape
from fitplug.errors import TablesError
from fitplug.files import read_archive
from fitplug.workload import AddRemove
from fitplug_cli.files import replace_file

_FORMAT = 3


def write_counts(path: Path, tables: Tables) -> None:
    """Write exact counts to a file that only this user may read.

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
            "outside": None if tables.outside is None else dataclasses.asdict(tables.outside),
        }
    )
    arrays = {f"table{i}": tables[key] for i, key in enumerate(tables)}
    text = np.frombuffer(header.encode(), dtype=np.uint8)
    with replace_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read_counts(path: Path) -> Tables:
    """Read exact counts and check their seal.

    Args:
        path: A file by `write_counts`.

    Raises:
        TablesError: If the file is missing, damaged, edited or of another version.
    """
    if not path.is_file():
        raise TablesError(f"{path}: no such counts file. Create it with `fitplug count`.")
    try:
        with path.open("rb") as file:
            header, arrays = read_archive(file, _list_shapes)
        tables = Tables(
            _build_domain(header),
            {tuple(names): arrays[f"table{i}"] for i, names in enumerate(header["tables"])},
            unit=None if header["unit"] is None else AddRemove(**header["unit"]),
            person=header["person"],
            rows=header["rows"],
            outside=_read_outside(header["outside"]),
            nonce=bytes.fromhex(header["nonce"]),
            copy=False,
        )
        if tables.seal != header["seal"]:
            raise TablesError("the counts were edited. Count again.")
    except TablesError as error:
        raise TablesError(f"{path}: {error}") from None
    except Exception:  # zip, NumPy and JSON raise different errors on damage
        raise TablesError(f"{path} is damaged, or not a counts file. Count again.") from None
    return tables


def _read_outside(header: dict[str, Any] | None) -> OutsideCounts | None:
    if header is None:
        return None
    names, counts = tuple(header["names"]), tuple(header["by_attribute"])
    return OutsideCounts(names, counts, header["in_no_table"])


def _build_domain(header: dict[str, Any]) -> Domain:
    return Domain.from_spec(dict(header["domain"]))


def _list_shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array from the header; raise TablesError for another format."""
    if header.get("format") != _FORMAT:
        raise TablesError("this counts file is from another version of fitplug. Count again.")
    domain = _build_domain(header)
    return {f"table{i}": get_shape(domain, names) for i, names in enumerate(header["tables"])}
