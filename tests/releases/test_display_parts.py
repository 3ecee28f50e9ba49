"""Display tables in release folders: their parts, and what notices edits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import InputError
from fitplug.files import hash_content, open_place
from fitplug.releases import (
    DisplayRequest,
    descent,
    display_answers,
    find_parted_tables,
    open_display,
    verify_display,
    write_folder,
)
from tests.helpers.tree_plans import design_tree, people_by_place

TOTAL = 70


@pytest.fixture(scope="module", params=[False, True], ids=["one table", "two tables"])
def release(request):
    plan = design_tree(people_by_place(ages=request.param), tolerance=0.05)
    rng = np.random.default_rng(5)
    answers = np.rint(rng.normal(size=plan.strategy.size) * plan.noise_std).astype(np.int64)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho)


@pytest.fixture
def folder(release, tmp_path, monkeypatch):
    """A folder in parts of a few rows, with display tables that were made in small chunks."""
    from fitplug.releases import display

    monkeypatch.setattr(display, "MOST_ENTRIES", 0)
    monkeypatch.setattr(display_answers, "PART", 5)
    monkeypatch.setattr(descent, "CHUNK", 7)
    (total,) = [g.name for g in release.plan.workload.groups if g.size == 1] or [None]
    totals = {} if total is None else {total: TOTAL}
    write_folder(release, tmp_path / "out", 0.95, 9, DisplayRequest(totals))
    return tmp_path / "out"


def test_they_are_those_in_memory_and_follow_from_the_answers(release, folder):
    read, display = fp.Release.load(folder), open_display(folder)
    assert find_parted_tables(read) is not None
    assert max(len(parts) for parts in display.parts.values()) > 1
    shown = release.integers(totals=display.header["totals"])
    for group in release.plan.workload.groups:
        name, parts = group.name, display.parts[group.name]
        found = np.zeros(group.shape, dtype=np.int64)
        for part, table in zip(parts, display.iterate(name), strict=True):
            one = table["display"].to_numpy().reshape(part.slice.find_shape(group))
            if found.ndim:
                part.slice.take(found)[...] = one
            else:
                found[...] = one
            if found.ndim:
                lower, upper = shown.interval(name)
                np.testing.assert_array_equal(
                    table["lower"].to_numpy(), part.slice.take(lower).ravel()
                )
                np.testing.assert_array_equal(
                    table["upper"].to_numpy(), part.slice.take(upper).ravel()
                )
        np.testing.assert_array_equal(found, shown.estimates[name])
    verify_display(read, display)
    assert "integers, biased" in display.summary


def test_edits_are_noticed(release, folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    read, display = fp.Release.load(folder), open_display(folder)
    name = release.plan.workload.groups[0].name
    path = display.find_folder(name).path / "part-00000.parquet"
    table = pq.read_table(path)
    numbers = table["display"].to_numpy() + 5
    at = table.column_names.index("display")
    pq.write_table(table.set_column(at, "display", pa.array(numbers)), path)
    with pytest.raises(InputError, match=r"part-00000.parquet"):
        verify_display(read, display)
    # Digests that were edited too do not help.
    manifest = json.loads((folder / "display.json").read_text())
    (entry,) = [one for one in manifest["groups"] if one["name"] == name]
    entry["parts"][0][2:] = [path.stat().st_size, hash_content(path.read_bytes())]
    (folder / "display.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"display.json"):
        open_display(folder)
    record = json.loads((folder / "release.json").read_text())
    record["files"]["display.json"] = hash_content((folder / "display.json").read_bytes())
    (folder / "release.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="display table does not match the answers"):
        verify_display(read, open_display(open_place(folder)))


def test_folders_without_them(release, tmp_path):
    release.save(tmp_path / "out")
    assert open_display(tmp_path / "out") is None
