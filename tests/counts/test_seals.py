"""Seals of counts: kept by whatever is a copy, lost by whatever is another count."""

import copy
import hashlib
import json
import pickle
from datetime import date

import numpy as np
import pytest

import fitplug as fp
from fitplug.counts import OutsideCounts
from fitplug_cli.render import read_counts, write_counts

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(0, 3),
        "income": fp.Bins([0, 0.5, 1e9]),
        "race": fp.Categories([1, 2], other="Other"),
        "born": fp.Dates(date(2020, 1, 1), date(2020, 3, 31), by="month"),
        "state": fp.CodePrefix(["01", "02"], 2, other="else"),
        "place": fp.Hierarchy(["region", "city"], [["north", "Ulm"], ["south", "Rom"]]),
    }
)
COUNTS = np.arange(8).reshape(2, 4)


def counted(**more) -> fp.Tables:
    given = {"domain": DOMAIN, "tables": {("sex", "age"): COUNTS, (): 28}} | more
    return fp.Tables(given.pop("domain"), given.pop("tables"), **given)


def test_a_seal_is_a_digest_of_nonce_header_and_counts():
    tables = counted(unit=fp.AddRemove(2), person="ID")
    said = {"domain": list(DOMAIN.spec().items()), "unit": {"records": 2}, "person": "ID"}
    header = {
        "said": said | {"rows": None, "outside": None},
        "tables": [[[], []], [["sex", "age"], [2, 4]]],
    }
    text = json.dumps(header, sort_keys=True).encode()
    whole = tables.nonce + len(text).to_bytes(8, "little") + text
    whole += np.array([28, *range(8)], dtype="<i8").tobytes()
    assert tables.seal == hashlib.sha256(whole).hexdigest()


def test_a_count_made_anew_has_another_seal():
    assert len({counted().seal for _ in range(20)}) == 20
    assert len({counted().nonce for _ in range(20)}) == 20
    assert len(counted().nonce) == 32


def test_the_seal_is_of_all_that_is_said():
    nonce = bytes(32)
    more = {("sex", "age"): COUNTS + np.eye(2, 4, dtype=int), (): 30}
    other = fp.Domain(dict(DOMAIN.attributes) | {"age": fp.Integers(1, 4)})
    given = [
        {},
        {"unit": fp.AddRemove(9)},
        {"unit": fp.AddRemove(1)},
        {"person": "ID"},
        {"outside": OutsideCounts(("sex", "age"), (2, 1), 2)},
        {"outside": OutsideCounts(("sex", "age"), (2, 1), 3)},
        {"tables": more},
        {"tables": {("sex", "age"): COUNTS}},
        {"tables": {("age", "race"): np.ones((4, 3), dtype=int)}},
        {"tables": {("age", "state"): np.ones((4, 3), dtype=int)}},
        {"domain": other},
        {"nonce": bytes(31) + b"\1"},
    ]
    seals = [counted(**({"nonce": nonce} | one)).seal for one in given]
    assert len(set(seals)) == len(given)


def test_the_seal_does_not_depend_on_how_tables_are_given():
    nonce = bytes(32)
    turned = {(): np.uint8(28), ("age", "sex"): np.asfortranarray(COUNTS.T.astype(np.int16))}
    assert counted(nonce=nonce).seal == counted(tables=turned, nonce=nonce).seal


@pytest.mark.parametrize("early", [True, False], ids=["sealed before", "sealed after"])
@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_keep_seal_and_nonce_and_cannot_be_written(again, early):
    tables = counted(unit=fp.AddRemove(3), person="ID")
    seal = tables.seal if early else None
    same = again(tables)
    assert same.seal == (seal or tables.seal)
    assert (same.unit, same.person) == (fp.AddRemove(3), "ID")
    for key in same:
        assert not same[key].flags.writeable


@pytest.mark.parametrize("outside", [None, OutsideCounts(("sex", "age"), (2, 1), 3)])
def test_counts_files_keep_the_seal(tmp_path, outside):
    tables = counted(unit=fp.AddRemove(3), person="ID", outside=outside)
    write_counts(tmp_path / "counts.npz", tables)
    same = read_counts(tmp_path / "counts.npz")
    assert (same.seal, same.nonce) == (tables.seal, tables.nonce)
    assert same.outside == outside
    write_counts(tmp_path / "again.npz", same)
    assert read_counts(tmp_path / "again.npz").seal == tables.seal


def test_the_nonce_is_never_shown():
    tables = counted()
    tables.seal  # noqa: B018 - so that it is there to be shown
    shown = repr(tables) + str(tables) + repr(list(tables)) + f"{tables}"
    assert tables.nonce.hex() not in shown
    assert repr(tables.nonce) not in shown


@pytest.mark.parametrize("nonce", ["00" * 32, bytes(31), bytearray(32), 5])
def test_wrong_nonces_are_refused(nonce):
    with pytest.raises(fp.TablesError, match="32 bytes"):
        counted(nonce=nonce)


@pytest.mark.parametrize(
    ("by_attribute", "in_no_table"),
    [((1,), 1), ((2, 1), 1), ((2, 1), 4), ((-1, 1), 1), ((1.0, 1), 1)],
)
def test_numbers_of_no_records_are_refused(by_attribute, in_no_table):
    with pytest.raises(fp.TablesError, match="rows outside the tables are invalid"):
        OutsideCounts(("sex", "age"), by_attribute, in_no_table)


def test_numbers_of_records_in_no_table_are_never_shown_and_never_raise():
    weights = np.array([2**40, 2**40, 7])
    for repeats in (1, 2**14):
        codes = {"sex": np.tile([-1, 0, -1], repeats), "age": np.tile([-1, -1, 2], repeats)}
        found = OutsideCounts.from_codes(DOMAIN, codes, ("sex", "age"), np.tile(weights, repeats))
        expected = (repeats * (2**40 + 7), repeats * 2**41), repeats * (2**41 + 7)
        assert (found.by_attribute, found.in_no_table) == expected
        assert str(found.in_no_table) not in repr(found)
