"""Files of exact counts, between the steps `count` and `release`. Confidential: mode 0600."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import TablesError
from fitplug.tables import Tables


def write(path: Path, tables: Tables) -> None:
    """Write exact counts, readable by this user only. Raises OSError."""
    names = [list(key) for key in tables]
    header = json.dumps({"domain": list(tables.domain.spec().items()), "tables": names})
    arrays = {f"table{i}": tables[key] for i, key in enumerate(tables)}
    text = np.frombuffer(header.encode(), dtype=np.uint8)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read(path: Path) -> Tables:
    """Read exact counts back. Raises TablesError."""
    if not path.is_file():
        raise TablesError(f"{path}: there is no such counts file; make it with: fitplug count")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            arrays = {tuple(n): archive[f"table{i}"] for i, n in enumerate(header["tables"])}
        return Tables(Domain.from_spec(dict(header["domain"])), arrays)
    except TablesError as error:
        raise TablesError(f"{path}: {error}") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        raise TablesError(f"{path}: this is no counts file, or it is damaged") from None
