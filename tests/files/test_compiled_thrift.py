"""Thrift, compiled and as it is written: the same structs, and the same refusals."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fitplug.files import thrift
from tests.helpers.hostile_files import people

SOURCE = Path(thrift.__file__).with_name("thrift.py")
WANTED: dict[int, Any] = {2: None, 4: {1: {3: {}, 8: {}}}, 5: {}, 8: {}}

pytestmark = pytest.mark.skipif(
    Path(thrift.__file__).suffix == SOURCE.suffix,
    reason="fitplug was installed without a C compiler",
)


def load_source() -> Any:
    """The module as it is written."""
    loader = SourceFileLoader("thrift_as_written", str(SOURCE))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def attempt(module: Any, data: bytes) -> Any:
    try:
        return module.read_struct(data, 0, WANTED)
    except (ValueError, IndexError) as error:
        return type(error)


def test_damaged_footers_are_read_alike(tmp_path: Path) -> None:
    written = load_source()
    path = tmp_path / "a.parquet"
    pq.write_table(people(), path)
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    rng = np.random.default_rng(11)
    refused = 0
    for trial in range(3000):
        data = bytearray(footer)
        for at in rng.integers(0, len(data), trial % 4):
            data[at] = rng.choice([0, 127, 128, 255, int(rng.integers(256))])
        damaged = bytes(data[: rng.integers(len(data)) if trial % 5 == 4 else len(data)])
        expected = attempt(written, damaged)
        assert attempt(thrift, damaged) == expected
        refused += isinstance(expected, type)
    assert 300 < refused < 2700
