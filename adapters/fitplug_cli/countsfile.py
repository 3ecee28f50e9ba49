"""Files of exact counts, between the steps `count` and `release`. Confidential: mode 0600.

They hold the seal of the counts and its nonce, so that a file that was edited is refused and the
counts that are read back are known to be those that were written.
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
from fitplug_cli.files import replacing

_FORMAT = 2


def write(path: Path, tables: Tables) -> None:
    """Write exact counts, readable by this user only. Raises WriteError."""
    names = [list(key) for key in tables]
    header = json.dumps(
        {
            "format": _FORMAT,
            "seal": tables.seal,
            "nonce": tables.nonce.hex(),
            "domain": list(tables.domain.spec().items()),
            "tables": names,
            "contributions": tables.contributions,
            "person": tables.person,
            "rows": tables.rows,
        }
    )
    arrays = {f"table{i}": tables[key] for i, key in enumerate(tables)}
    text = np.frombuffer(header.encode(), dtype=np.uint8)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read(path: Path) -> Tables:
    """Read exact counts back, with the seal they were written with. Raises TablesError."""
    if not path.is_file():
        raise TablesError(f"{path}: there is no such counts file; make it with: fitplug count")
    try:
        with path.open("rb") as file:
            header, arrays = read_archive(file, _shapes)
        tables = Tables(
            _domain(header),
            {tuple(names): arrays[f"table{i}"] for i, names in enumerate(header["tables"])},
            contributions=header["contributions"],
            person=header["person"],
            rows=header.get("rows"),
            nonce=bytes.fromhex(header["nonce"]),
            copy=False,
        )
        if tables.seal != header["seal"]:
            raise TablesError("the counts were edited after they were counted; count again")
    except TablesError as error:
        raise TablesError(f"{path}: {error}") from None
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise TablesError(
            f"{path}: this is no counts file, or it is damaged; count again"
        ) from None
    return tables


def _domain(header: dict[str, Any]) -> Domain:
    return Domain.from_spec(dict(header["domain"]))


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of each array, by what the header says is counted. Raises TablesError for another format."""
    if header.get("format") != _FORMAT:
        raise TablesError("this counts file is of another version of fitplug; count again")
    domain = _domain(header)
    return {f"table{i}": domain.shape_of(names) for i, names in enumerate(header["tables"])}
