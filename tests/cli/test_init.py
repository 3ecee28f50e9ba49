"""`fitplug init`: a spec from names and types alone, and the newcomer's way from there."""

from __future__ import annotations

import datetime
import json
import re

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

from fitplug.workload import AddRemove
from fitplug_cli.spec import load_spec
from fitplug_cli.spec.errors import tomllib
from fitplug_cli.spec.sections import AboutSection
from tests.helpers.forked_processes import run_command as fitplug

CANARY = "K4n4ry"
TABLE = pa.table(
    {
        "sex": pa.array(["1", "2", CANARY]),
        "age": pa.array([1, 2, 77], pa.int16()),
        "income": pa.array([1.5, 2.5, 123456.75]),
        "born": pa.array([datetime.date(1999, 1, 1)] * 3),
        "works": pa.array([True, False, None]),
        'odd "name"\n': pa.array([1, 2, 3]),
        "list": pa.array([[1], [2], [3]]),
    }
)


@pytest.mark.parametrize(
    "kind",
    ["parquet", *(pytest.param(k, marks=pytest.mark.slow) for k in ("feather", "csv", "hive"))],
)
def test_names_and_types_and_no_value(tmp_path, kind):
    table = TABLE.drop_columns(["list"]) if kind == "csv" else TABLE
    if kind == "hive":
        (tmp_path / "d" / f"state={CANARY}").mkdir(parents=True)
        pq.write_table(table, tmp_path / "d" / f"state={CANARY}" / "0.parquet")
    else:
        write = {"parquet": pq.write_table, "feather": pf.write_feather, "csv": pc.write_csv}[kind]
        if kind == "csv":
            table = table.drop_columns(['odd "name"\n'])
        write(table, str(tmp_path / f"d.{kind}"))
    data = "d" if kind == "hive" else f"d.{kind}"
    done = fitplug("init", data, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "release.toml").read_text()
    assert CANARY not in text + done.stdout
    for value in ("123456", "1999", "77"):
        assert value not in text
    said = tomllib.loads(text)
    assert said["data"]["path"] == data
    assert said["domain"] == {}
    assert "A column that identifies people belongs in [data] person" in text
    about = text.partition("[about]")[2]
    assert re.findall("(?m)^# ([a-z_]+) = ", about) == list(AboutSection.model_fields)
    for name in table.column_names:
        assert f"# {name if name.isalpha() else json.dumps(name)} = ...  # " in text
    assert ("# state = ...  # folder" in text) == (kind == "hive")
    undecided = fitplug("run", "release.toml", cwd=tmp_path)
    assert undecided.returncode == 2
    assert "release.toml: [privacy] unit is still open. Write { records" in undecided.stderr
    (tmp_path / "release.toml").write_text(text.replace('"?"', "{ records = 1 }"))
    ran = fitplug("run", "release.toml", cwd=tmp_path)
    assert ran.returncode == 2
    assert "[domain] is empty. List each attribute" in ran.stderr
    assert not (tmp_path / "budget.db").exists()


def test_with_a_codebook_it_runs(tmp_path):
    """From a CSV to a private table, in three commands and no editing."""
    (tmp_path / "people.csv").write_text("sex,age\n1,5\n2,7\n1,5\n")
    (tmp_path / "codes.csv").write_text("attribute,value\nsex,1\nsex,2\n")
    asked = ("init", "people.csv", "--codebook", "codes.csv", "--records", "2")
    done = fitplug(*asked, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fill in its domain and queries." in done.stdout
    spec = tmp_path / "release.toml"
    spec.write_text(spec.read_text().replace("# [[query]]\n# name", "[[query]]\nname").replace(
        '# sex = "identity"\n# std', 'sex = "identity"\nstd'))  # fmt: skip
    assert load_spec(spec).workload.names == ("total", "by sex")
    assert load_spec(spec).unit == AddRemove(2)
    ran = fitplug("run", "release.toml", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    rows = (tmp_path / "release" / "by_sex.csv").read_text().splitlines()
    assert rows[0] == '"sex","estimate","std","moe","lower","upper","confidence"'
    assert len(rows) == 3


def test_codes_are_as_the_columns_have_them(tmp_path):
    pq.write_table(
        pa.table({"a": ["1"], "b": [1], "c": [1], "d": pa.array(["x"]), "e": [1]}),
        tmp_path / "d.parquet",
    )
    (tmp_path / "c.json").write_text(
        json.dumps({"a": [1, 2], "b": {"1": "one", "2": "two"}, "c": {"min": 0, "max": 9},
                    "d": [f"value {i}" for i in range(20)], "e": ["1", "1"]})
    )  # fmt: skip
    asked = ("init", "d.parquet", "--codebook", "c.json", "--records", "1")
    assert fitplug(*asked, cwd=tmp_path).returncode == 0
    text = (tmp_path / "release.toml").read_text()
    domain = tomllib.loads(text)["domain"]
    assert domain == {
        "a": ["1", "2"],
        "b": [1, 2],
        "c": {"integers": [0, 9]},
        "d": {"codebook": "c.json"},
    }
    assert "# e = ...  # its values in c.json are not valid" in text
    assert load_spec(tmp_path / "release.toml").workload.domain["d"].size == 20


def test_what_is_refused(tmp_path):
    pq.write_table(TABLE, tmp_path / "d.parquet")
    (tmp_path / "release.toml").write_text("mine")
    done = fitplug("init", "d.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "release.toml already exists. Name another file with --output" in done.stderr
    assert (tmp_path / "release.toml").read_text() == "mine"
    (tmp_path / "c.csv").write_text("attribute,value\nx,1\n")
    done = fitplug("init", "d.parquet", "--codebook", "c.csv", "--output", "s.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "c.csv describes none of the 7 columns" in done.stderr
    done = fitplug("init", "none.parquet", "--output", "s.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.parquet does not exist" in done.stderr
    done = fitplug("init", "d.parquet", "--records", "0", "--output", "s.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "--records" in done.stderr
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + CANARY.encode() + b"PAR1")
    done = fitplug("init", "bad.parquet", "--output", "s.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.parquet" in done.stderr
    assert CANARY not in done.stderr
    assert not (tmp_path / "s.toml").exists()


@pytest.mark.parametrize("first", ['""', ""])
def test_the_numbers_of_the_rows_are_no_column(tmp_path, first):
    """R and pandas write them by default, below no name."""
    (tmp_path / "people.csv").write_text(f'{first},SEX,AGE\n"1","1",34\n"2","2",7\n')
    done = fitplug("init", "people.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = (tmp_path / "release.toml").read_text()
    assert "# SEX = ..." in written
    assert '""' not in written
