"""Sources: what is checked, what is shown, and what is the same as a bare path."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fitplug as fp
from fitplug.counts import describe_source_rows, read_source
from fitplug.errors import DomainError, InputError

SECRET = "CANARY7351"


def test_a_bare_path_is_a_source() -> None:
    assert read_source("people/") == fp.Source("people/")
    source = fp.Source("people/", person="id")
    assert read_source(source) is source
    assert dataclasses.replace(source, person=None) == fp.Source("people/")
    assert pickle.loads(pickle.dumps(source)) == source


def test_the_repr_is_short_and_has_no_secrets() -> None:
    source = fp.Source(
        f"s3://user:{SECRET}@bucket/people/?token={SECRET}",
        where={"state": ["01", "02"]},
        person="id",
        storage_options={"secret": SECRET},
    )
    assert repr(source) == (
        "Source('s3://bucket/people/', where={'state': ['01', '02']}, person='id')"
    )
    assert SECRET not in f"{source} {fp.DeltaTable(f'https://a:{SECRET}@host/t', 3)}"
    assert repr(fp.Source([Path("a"), "b", "c", "d", "e"])) == "Source(['a', 'b', 'c', ... 2 more])"
    assert repr(fp.Source(fp.DeltaTable("t", version=3))) == "Source(DeltaTable('t', version=3))"
    assert repr(fp.Source(fp.IcebergTable("t"))) == "Source(IcebergTable('t'))"
    assert repr(fp.Source(pa.table({"a": [SECRET]}))) == "Source(<pyarrow Table>)"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"weight": "n", "person": "id"},
            InputError,
            "weight= and person= cannot be combined",
        ),
        ({"weight": ""}, DomainError, "must be the name of a column"),
        (
            {"weight": "n", "where": {"n": 1}},
            DomainError,
            "the filter 'where' cannot use the weight column 'n'",
        ),
        ({"person": 7}, DomainError, "person must be a column name .*, not 7"),
        ({"person": []}, DomainError, r"person must be a column name .*, not \[\]"),
        ({"person": ["a", ""]}, DomainError, "person must be a column name or a list"),
        ({"person": ["a", "a"]}, DomainError, "names a column twice"),
        ({"where": ["01"]}, DomainError, "'where' must map column names to values"),
        ({"where": {"state": []}}, DomainError, "no value of 'state'"),
        ({"zone": "Mars/Base"}, DomainError, "'Mars/Base' is not a time zone"),
        ({"missing": "age"}, DomainError, "missing must be a mapping, not str"),
        ({"columns": ["age"]}, DomainError, "columns must be a mapping, not list"),
        ({"columns": {"age": ""}}, DomainError, "'age' to a column name, not to ''"),
        (
            {"columns": {"age": "id"}, "person": "id"},
            DomainError,
            "'id' identifies persons, so it cannot be the attribute 'age'",
        ),
        (
            {"columns": {"age": "n"}, "weight": "n"},
            DomainError,
            "cannot be both the weight and an attribute",
        ),
        ({"storage_options": SECRET}, DomainError, "storage_options must be a mapping, not str"),
    ],
)
def test_what_is_wrong_is_refused_at_once(options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        fp.Source("people/", **options)
    assert SECRET not in str(caught.value)


def test_what_is_no_path_is_refused() -> None:
    tables = fp.Tables(fp.Domain({"sex": ["1", "2"]}), {("sex",): [1, 2]})
    with pytest.raises(InputError, match=r"must name rows, not an fp.Tables"):
        fp.Source(tables)
    with pytest.raises(InputError, match=r"must name rows, not an fp\.Source"):
        fp.Source(fp.Source("people/"))


def test_options_do_not_change_later() -> None:
    where = {"state": "01"}
    source = fp.Source("people/", where=where)
    where["state"] = "02"
    assert describe_source_rows(source) == 'only rows where state is "01" are counted'
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.person = "id"  # type: ignore[misc]
