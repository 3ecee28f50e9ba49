"""The check of attributes: a third party's kind passes, and each fault in one is found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.domain.attribute import CODECS
from fitplug.testing import check_attribute
from tests.helpers.command_line import fitplug
from tests.helpers.places import ROOT
from tests.helpers.third_party import ANGLES, Angles, AnglesCodec, install


def test_a_kind_of_another_package_conforms() -> None:
    check_attribute(Angles(4), ANGLES)
    values = {angle: 4 if cell is None else cell for angle, cell in ANGLES.items()}
    check_attribute(Angles(4, other="unknown"), values)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_files_are_counted_by_a_kind_of_another_package(suffix: str, tmp_path: Path) -> None:
    angles = [0, 89, 90, 180, 270, 359, 360, -1, None, 2**40]
    table, path = pa.table({"a": pa.array(angles, pa.int64())}), tmp_path / f"rows{suffix}"
    write = {".csv": pc.write_csv, ".parquet": pq.write_table, ".arrow": pf.write_feather}
    write[suffix](table, path)
    for attribute, expected in (
        (Angles(4), [2, 1, 1, 2]),
        (Angles(4, other="unknown"), [2, 1, 1, 2, 4]),
    ):
        counted = fp.count(path, (fp.Domain({"a": attribute}), [("a",)]))
        assert counted[("a",)].tolist() == expected


SPEC = """
ledger = false

[data]
path = "rows.parquet"

[privacy]
unit = { records = 1 }

[domain]
a = { angles = 4 }

[[query]]
name = "sectors"
a = "prefix"
std = 2.0
"""


def test_a_spec_may_name_a_kind_of_another_package(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [0, 90, 90]}), tmp_path / "rows.parquet")
    (tmp_path / "a.toml").write_text(SPEC)
    ran = fitplug("run", tmp_path / "a.toml")
    assert (ran.code, ran.err) == (0, "")
    release = fp.Release.load(tmp_path / "release")
    assert release.plan.domain == fp.Domain({"a": Angles(4)})


@dataclass(frozen=True)
class Broken(Angles):
    """Angles with a fault."""


def drop_a_cell(self: Any, values: Any) -> Any:
    codes = AnglesCodec.codes(self, values)
    return np.where(codes == 2, self.null_code, codes)


def quote_a_value(self: Any, values: Any) -> Any:
    for value in values:
        if not isinstance(value, int | None):
            raise fp.DataError(f"{value!r} is not an angle")
    return AnglesCodec.codes(self, values)


FAULTS: dict[str, tuple[str, Any, str]] = {
    "a cell dropped": ("codes", drop_a_cell, "180 has the code -1 and not 2"),
    "a value quoted": ("codes", quote_a_value, "an error quotes a value of a row"),
    "null in the first cell": (
        "codes",
        lambda self, values: np.maximum(AnglesCodec.codes(self, values), 0),
        "360 has the code 0 and not -1",
    ),
    "another class of error": (
        "codes",
        lambda self, values: np.array(
            [int(v) * 4 // 360 if v is not None and 0 <= v < 360 else -1 for v in values], np.int64
        ),
        "must raise DataError",
    ),
    "a label of another cell": (
        "find_end",
        lambda self, value: 0 if value in self.values else None,
        "labels do not name their cells",
    ),
    "everything is an end": ("find_end", lambda self, value: 0, "labels do not name their cells"),
    "a spec of another attribute": (
        "spec",
        lambda self: {"broken": self.attribute.steps + 1},
        "the attribute read from its spec is not equal to it",
    ),
    "a spec without its kind": ("spec", lambda self: {"angles": 4}, "is not equal to it"),
    "no remedy": ("remedy", lambda self, names: "", "names no remedy"),
    "an unknown type": ("value_type", complex, "value_type is none of"),
    "a span that is too narrow": ("integer_span", (0, 300), "beyond integer_span"),
    "the wrong ends": ("ends", ("0°", "90°"), "the ends are not the first and last cell"),
    "a pickle of another one": (
        "__reduce__",
        lambda self: (AnglesCodec, (Broken(3),)),
        "the attribute of its pickled codec is not equal to it",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value, says = FAULTS[fault]
    form = type(AnglesCodec.spec_form)("{ broken = steps }", names=("broken",))
    sound = {
        "spec_form": form,
        "spec": lambda self: {"broken": self.attribute.steps},
        "from_spec": classmethod(lambda cls, spec: Broken(spec["broken"])),
    }
    monkeypatch.setitem(CODECS, Broken, AnglesCodec)
    type("BrokenCodec", (AnglesCodec,), sound, kind=Broken)
    check_attribute(Broken(4), ANGLES)
    type("BrokenCodec", (AnglesCodec,), {**sound, name: value}, kind=Broken)
    with pytest.raises((AssertionError, fp.DomainError), match=says):
        check_attribute(Broken(4), ANGLES)


def test_values_of_each_cell_are_asked_for() -> None:
    with pytest.raises(AssertionError, match=r"`values` has none of the cells \[3\]"):
        check_attribute(Angles(4), {0: 0, 90: 1, 180: 2})


def test_entry_points_name_the_kinds_of_other_packages(tmp_path: Path) -> None:
    """A spec is read in a process that has not imported the package, by what is installed."""
    code = f"""
import sys
sys.path.append({str(install(tmp_path))!r})
import fitplug as fp
assert "tests.helpers.third_party" not in sys.modules
domain = fp.Domain.from_spec({{"a": {{"angles": 4}}, "s": ["1", "2"]}})
print(domain["a"].labels)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout.strip() == "('0°', '90°', '180°', '270°')"
