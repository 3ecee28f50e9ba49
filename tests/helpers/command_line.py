"""The command in this process, a spec and the people that it counts."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import fitplug as fp
from fitplug_cli import main

WORD, NUMBER = "ZEBRACANARY", 7316642985
"""What only rows hold; outside the domain, so that no output may show it."""
SPEC = """
[data]
path = "people/"

[privacy]
unit = { records = 1 }

[domain]
SEX = ["1", "2"]
AGE = { integers = [0, 5] }
INC = { bins = [0, 10, 50] }

[[query]]
name = "ages"
SEX = "identity"
AGE = "prefix"
std = 5.0

[[query]]
name = "income"
INC = "identity"
moe = 9.0
confidence = 0.9

[[query]]
name = "total"
std = 3.0

[ledger]
path = "budget.db"
rho = 100.0

[output]
path = "release/"
"""


COST = 0.08522  # rho at the optimum, and a little: plans end within 2e-4 of it
"""rho of this spec, rounded up."""


class Ran(NamedTuple):
    code: object
    out: str
    err: str


def fitplug(*arguments: object) -> Ran:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    argv = ["fitplug", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main.main()
        except SystemExit as left:
            code = left.code or 0
    return Ran(code, out.getvalue(), err.getvalue())


def rows(part: int, n: int = 400) -> dict[str, list[object]]:
    rng = np.random.default_rng(part)
    return {
        "SEX": [*rng.choice(["1", "2"], n).tolist(), WORD, None],
        "AGE": [*rng.integers(0, 7, n).tolist(), NUMBER, None],
        "INC": [*rng.uniform(-1, 51, n).tolist(), float(NUMBER), None],
        "NOTE": [f"{WORD}{NUMBER}"] * (n + 2),
    }


def make(root: Path, spec: str = SPEC) -> Path:
    """A spec and its two files of people; returns the spec's path."""
    (root / "people").mkdir(parents=True)
    for part, name in enumerate("ab"):
        pq.write_table(pa.table(rows(part)), root / "people" / f"{name}.parquet")
    (root / "spec.toml").write_text(spec, encoding="utf-8")
    return root / "spec.toml"


def with_privacy(line: str, spec: str = SPEC) -> str:
    return spec.replace("[privacy]\n", f"[privacy]\n{line}\n")


def tree(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything below a folder: mode, and content of files. Of a ledger, its charges."""
    entries = {}
    for path in sorted(root.rglob("*")):
        content = None if path.is_dir() else path.read_bytes()
        if content and content.startswith(b"SQLite format 3\0") and content[68:72] == b"fitp":
            with contextlib.suppress(fp.LedgerError):
                content = repr(fp.Ledger(path).entries()).encode()
        entries[str(path.relative_to(root))] = (path.stat().st_mode, content)
    return entries


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def truth() -> fp.Tables:
    domain = fp.Domain({"SEX": ["1", "2"], "AGE": fp.Integers(0, 5), "INC": fp.Bins([0, 10, 50])})
    both = [rows(0), rows(1)]
    columns = {name: np.array(both[0][name] + both[1][name], dtype=object) for name in domain}
    return fp.Tables.from_records(domain, columns, [("SEX", "AGE"), ("INC",)])
