"""No error quotes what may be data: wrong files in every place, and rows where columns belong."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts.columns import can_name_columns
from fitplug_dask.preview import list_columns
from tests.helpers.command_line import SPEC, fitplug, make, tree

NAME, TOWN, NUMBER = "Zanzibarquux", "Ouagadougouvia", 5551234
"""What the wrong files hold, and nothing else does."""

CANARY = re.compile(f"{NAME}|{TOWN}|{NUMBER}|{NUMBER:,}|5.55e", re.IGNORECASE)

ROWS = [[NAME, "2", str(NUMBER), TOWN], [NAME + "b", "1", str(NUMBER + 1), TOWN]]


def in_csv(*first: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([*first, *ROWS])
    return out.getvalue()


def parquet(path: Path) -> None:
    pq.write_table(pa.table({NAME: [TOWN], "SEX": [str(NUMBER)]}), path)


def feather(path: Path) -> None:
    pf.write_feather(pa.table({NAME: [TOWN]}), str(path))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(NAME, TOWN)
        archive.writestr("header.npy", json.dumps({NAME: TOWN}))


def npz(path: Path) -> None:
    text = np.frombuffer(json.dumps({NAME: TOWN, "format": NAME}).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, header=text, **{NAME: np.array([NUMBER])})


TEXTS: dict[str, str] = {
    "csv without header": in_csv(),
    "csv with header": in_csv(["NAME", "SEX", "INCOME", "TOWN"]),
    "csv, one row": f"{NAME},{NUMBER}\n",
    "csv, open quote": f'"{NAME},{NUMBER}\n{TOWN}',
    "csv, strange quotes": f'a,"b"{NAME}\n"{TOWN}"{NUMBER},2\n',
    "semicolons": in_csv().replace(",", ";"),
    "tabs": in_csv().replace(",", "\t"),
    "a list of names": f"{NAME}\n{TOWN}\n",
    "names with colons": f"{NAME}: {TOWN} {NUMBER}\n{TOWN}: {NAME}\n",
    "names without text": f"{NAME}:\n",
    "name twice": f"{NAME}: total\n{NAME}: 2 * total\n",
    "sums of names": f"total + {NAME}\ntotal[SEX={NAME}]\n",
    "a number too many": f"total / {NUMBER} {TOWN}\n",
    "codebook of records": f"attribute,value\nSEX,{NAME}\nSEX,{NAME}\n",
    "codebook, lines of one": f"attribute,value,min,max\nSEX,{NAME},,\nSEX,,1,{NUMBER}\n",
    "codebook, no number": f"attribute,value,min,max\nSEX,,{NAME},{TOWN}\n",
    "codebook, a range": f"attribute,value\nSEX,1-{NUMBER}\n",
    "codebook of others": f"attribute,value\n{NAME},{TOWN}\n",
    "expressions of records": f"name,expression\n{NAME},{TOWN} {NUMBER}\n,\n",
    "expressions twice": f"name,expression\n{NAME},total\n{NAME},2 * total\n",
    "targets, a column more": f"group,SEX,AGE,std,{NAME}\nages,1,1,1,{TOWN}\n",
    "targets, no group": f"group,SEX,AGE,std\n{NAME},1,1,1\n",
    "targets, no label": f"group,SEX,AGE,std\nages,{NAME},,{NUMBER}\n",
    "targets, no number": f"group,SEX,AGE,std\nages,1,,{NAME}\n",
    "targets, minus": f"group,SEX,AGE,std\nages,1,,-{NUMBER}\n",
    "targets, confidence": f"group,moe,confidence\nages,1,{NUMBER}\n",
    "targets, confidence a word": f"group,moe,confidence\nages,1,{NAME}\n",
    "targets, cells more": f"group,SEX,std\nages,1,1,{NAME},{TOWN}\n",
    "targets, a clash": f"std,SEX\n{NUMBER},1\n{NUMBER + 1},1\n",
    "json records": json.dumps([{"NAME": NAME, "SEX": NUMBER}]),
    "json columns": json.dumps({"SEX": [NAME, TOWN, NAME], NAME: [NUMBER]}),
    "json column once": json.dumps({"SEX": {"min": NAME, "max": TOWN}, NAME: 3}),
    "json lines": f'{{"NAME": "{NAME}"}}\n{{"NAME": "{TOWN}"}}\n',
    "json cut": f'{{"{NAME}": ["{TOWN}", ',
    "json escape": f'{{"{NAME}": "{TOWN}\\q{NUMBER}"}}',
    "json deep": '{"SEX": ' + "[" * 5000 + f'"{NAME}"',
    "json digits": '{"SEX": [' + str(NUMBER) * 1000 + "]}",
    "toml": f'{NAME} = "{TOWN}"\n[{TOWN}]\n{NAME} = {NUMBER}\n',
    "toml twice": f"[{NAME}]\n[{NAME}]\n",
    "toml keys twice": f"{NAME} = 1\n{NAME} = 2\nx = {{ {NAME} = 1, {NAME} = 2 }}\n",
    "toml open": f'{NAME} = "{TOWN}\n',
    "toml number": f"{NAME} = {NUMBER}x\n",
    "sql": f"INSERT INTO people VALUES ('{NAME}', {NUMBER});\n",
    "latin": f"{NAME},\xe9,{NUMBER}\n",
    "empty": "",
}

BINARIES: dict[str, Callable[[Path], None]] = {
    "parquet": parquet,
    "feather": feather,
    "zip": zipped,
    "npz": npz,
    "nul": lambda path: path.write_bytes(f"\0{NAME}\0{NUMBER}".encode()) and None,
    "utf-16": lambda path: path.write_bytes(in_csv().encode("utf-16")) and None,
}

FILES = [*TEXTS, *BINARIES]


def put(kind: str, path: Path) -> Path:
    if kind in BINARIES:
        BINARIES[kind](path)
    else:
        encoding = "latin-1" if kind == "latin" else "utf-8"
        path.write_text(TEXTS[kind], encoding=encoding, newline="")
    return path


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("released")
    spec = make(root)
    assert fitplug("design", spec).code == 0
    assert fitplug("count", spec).code == 0
    assert fitplug("run", spec).code == 0
    return root


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    assert not CANARY.search(caplog.text)


def silent(root: Path, wrong: Path, *arguments: object, fails: bool = True) -> None:
    """Run a command with a wrong file, and look everywhere for what the file holds."""
    before = tree(root)
    ran = fitplug(*arguments)
    if fails:
        assert ran.code in (1, 2, 3), ran
        assert ran.err.startswith("fitplug: "), ran.err
        assert tree(root) == before
    assert "Traceback" not in ran.out + ran.err
    if ran.code == 0:
        return  # it is a right file, after all: see below
    said = ran.out + ran.err
    assert not CANARY.search(said), said
    for path in root.rglob("*"):
        if path.is_file() and path != wrong:
            assert not CANARY.search(path.name)
            assert not CANARY.search(path.read_bytes().decode("latin-1")), path


@pytest.mark.parametrize("kind", FILES)
class TestWrongFiles:
    def test_as_spec(self, tmp_path: Path, kind: str) -> None:
        wrong = put(kind, tmp_path / "people.toml")
        for command in ("run", "design", "count", "report"):
            silent(tmp_path, wrong, command, wrong)

    @pytest.mark.parametrize("suffix", ["csv", "json", "txt"])
    def test_as_codebook_of_a_spec(self, tmp_path: Path, kind: str, suffix: str) -> None:
        wrong = put(kind, tmp_path / f"people.{suffix}")
        spec = tmp_path / "spec.toml"
        text = SPEC.replace('SEX = ["1", "2"]', f'SEX = {{ codebook = "{wrong.name}" }}')
        assert text != SPEC
        spec.write_text(text)
        silent(tmp_path, wrong, "design", spec)

    @pytest.mark.parametrize("suffix", ["csv", "json"])
    def test_as_codebook_of_init(self, tmp_path: Path, kind: str, suffix: str) -> None:
        wrong = put(kind, tmp_path / f"people.{suffix}")
        (tmp_path / "data.csv").write_text("KEY,OTHER\n1,2\n")
        silent(tmp_path, wrong, "init", tmp_path / "data.csv", "--codebook", wrong,
               "--output", tmp_path / "spec.toml")  # fmt: skip

    def test_as_targets(self, tmp_path: Path, kind: str) -> None:
        wrong = put(kind, tmp_path / "people.csv")
        spec = tmp_path / "spec.toml"
        at = SPEC.index("std")
        end = SPEC.index("\n", at)
        spec.write_text(SPEC[:at] + 'targets = "people.csv"' + SPEC[end:])
        silent(tmp_path, wrong, "design", spec)

    @pytest.mark.parametrize("suffix", ["csv", "txt"])
    def test_as_expressions(self, tmp_path: Path, released: Path, kind: str, suffix: str) -> None:
        wrong = put(kind, tmp_path / f"people.{suffix}")
        silent(tmp_path, wrong, "estimate", released / "release", "--from", wrong)

    @pytest.mark.slow
    def test_as_plan_counts_ledger_and_release(
        self, tmp_path: Path, released: Path, kind: str
    ) -> None:
        make(tmp_path)
        spec = tmp_path / "spec.toml"
        wrong = put(kind, tmp_path / "people.npz")
        silent(tmp_path, wrong, "release", spec, "--counts", wrong)
        silent(tmp_path, wrong, "count", spec, "--plan", wrong)
        silent(tmp_path, wrong, "ledger", "show", wrong)
        silent(tmp_path, wrong, "estimate", wrong, "total")
        (tmp_path / "folder" / "answers").mkdir(parents=True)
        for name in ("plan.npz", "answers/manifest.json", "tables.json", "release.json"):
            put(kind, tmp_path / "folder" / name)
        before = fitplug("estimate", tmp_path / "folder", "total")
        assert before.code in (1, 2)
        assert not CANARY.search(before.out + before.err)


HEADLESS = {
    "a number": f"{NAME},{NUMBER},{TOWN}\n",
    "a date": f"{NAME},1957-03-12,{TOWN}\n",
    "a slashed date": f"{NAME},3/12/1957,{TOWN}\n",
    "an empty value": f"{NAME},,{TOWN}\n",
    "a value twice": f"{NAME},{TOWN},{TOWN}\n",
    "a truth value": f"{NAME},true,{TOWN}\n",
    "a null": f"{NAME},NA,{TOWN}\n",
    "an address": f"{NAME}@example.org,{TOWN}\n",
    "a power": f"{NAME},1e5,{TOWN}\n",
    "signs": f"{NAME},?,{TOWN}\n",
    "a text": f"{NAME},{TOWN * 20},b\n",
}


class TestHeaders:
    @pytest.mark.parametrize("line", HEADLESS.values(), ids=HEADLESS)
    def test_init_refuses_a_first_line_that_is_no_header(self, tmp_path: Path, line: str) -> None:
        data, spec = tmp_path / "people.csv", tmp_path / "spec.toml"
        data.write_text(line)
        silent(tmp_path, data, "init", data, "--output", spec)
        ran = fitplug("init", data, "--output", spec)
        assert "--header" in ran.err
        assert "first line" in ran.err
        with pytest.raises(fp.InputError) as caught:
            list_columns(data)
        assert not CANARY.search(str(caught.value))

    def test_init_takes_it_when_told_so(self, tmp_path: Path) -> None:
        data, spec = tmp_path / "people.csv", tmp_path / "spec.toml"
        data.write_text("county,2010,2020\n")
        assert fitplug("init", data, "--output", spec).code == 2
        assert fitplug("init", data, "--output", spec, "--header").code == 0
        assert "# 2010 = ..." in spec.read_text()
        assert list(list_columns(data, header=True)) == ["county", "2010", "2020"]

    def test_init_with_a_codebook_does_not_list_the_columns(self, tmp_path: Path) -> None:
        data, book = tmp_path / "people.csv", tmp_path / "book.csv"
        data.write_text(f"{NAME},{TOWN},woman\n")
        book.write_text("attribute,value\nSEX,1\n")
        silent(tmp_path, data, "init", data, "--codebook", book,
               "--output", tmp_path / "spec.toml")  # fmt: skip

    def test_counting_does_not_quote_it_either(self, tmp_path: Path) -> None:
        (tmp_path / "people").mkdir()
        spec = tmp_path / "spec.toml"
        spec.write_text(SPEC)
        data = tmp_path / "people" / "a.csv"
        for text in (in_csv(), f"SEX,{NAME}\n{NUMBER},{TOWN}\n", f"{NAME} {NUMBER}\n"):
            data.write_text(text)
            silent(tmp_path, data, "count", spec)
            silent(tmp_path, data, "count", spec, "--dry-run")
        # A value that is nearly a name is no name where nothing shows that the line is a header.
        data.write_text(f"SEXZEBRACANARY,{NAME}\n1,2\n")
        spec.write_text(SPEC.replace("SEX", "SEXZEBRACANAR"))
        ran = fitplug("count", spec)
        assert "Check the spelling" in ran.err
        assert "SEXZEBRACANARY" not in ran.err

    def test_files_made_of_a_table_without_header_are_not_quoted(self, tmp_path: Path) -> None:
        domain = fp.Domain({"SEX": ["1", "2"]})
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({NAME: ["x"], str(NUMBER): ["1"], "1957-03-12": ["y"]}), path)
        with pytest.raises(fp.DataError) as caught:
            fpd.count(path, (domain, [("SEX",)]))
        assert not CANARY.search(str(caught.value))

    def test_what_can_be_names(self) -> None:
        for names in (["SEX", "AGEP", "H1-a", "Größe", "income (EUR)"], ["x1"], ["a_"]):
            assert can_name_columns(names)
        for words in (["a", "1"], ["a", ""], ["a", "a"], ["a", "1,000"], ["x" * 200], ["a", "-"]):
            assert not can_name_columns(words)


DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})


def pandas_frame(**keywords: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS, **keywords)


def reader() -> Any:
    return csv.reader(io.StringIO(in_csv()))


RECORDS: dict[str, Callable[[], Any]] = {
    "a list of rows": lambda: ROWS,
    "a tuple of rows": lambda: tuple(map(tuple, ROWS)),
    "a list of dicts": lambda: [{"sex": NAME, "age": NUMBER}],
    "a list of strings": lambda: [NAME, TOWN],
    "a string": lambda: in_csv(),
    "bytes": lambda: in_csv().encode(),
    "a set": lambda: {NAME, TOWN},
    "a generator": lambda: (row for row in ROWS),
    "a csv.reader": reader,
    "a csv.DictReader": lambda: csv.DictReader(io.StringIO(in_csv())),
    "a file": lambda: io.StringIO(in_csv()),
    "an array": lambda: np.array(ROWS),
    "a structured array": lambda: np.array([(NAME, NUMBER)], dtype=[(NAME, "U20"), ("age", "i8")]),
    "a number": lambda: NUMBER,
    "None": lambda: None,
    "a Polars series": lambda: pl.Series(NAME, [TOWN]),
    "an Arrow array": lambda: pa.array([NAME, TOWN]),
    "a pandas series": lambda: pandas_frame()[0],
    "a pandas series of names": lambda: pandas_frame().set_index(0)[2],
    "a lazy frame": lambda: pl.LazyFrame({NAME: [TOWN]}),
    "a dict of values": lambda: {NAME: NUMBER, TOWN: 3},
    "a dict keyed by values": lambda: {NUMBER: [1], NUMBER + 1: [2]},
    "a dict keyed by tuples": lambda: {(NAME, NUMBER): [1]},
    "a dict of rows": lambda: {NAME: ["1"], TOWN: ["2"]},
    "a frame without header": pandas_frame,
    "a frame with a row for header": lambda: pandas_frame(columns=ROWS[0]),
    "a frame of many levels": lambda: pandas_frame(columns=pandas_levels()),
    "a Polars frame with a row for header": lambda: pl.DataFrame(
        {ROWS[0][0]: ["1"], ROWS[0][2]: ["2"]}
    ),
    "an Arrow table with a row for header": lambda: pa.table({NAME: ["1"], str(NUMBER): ["2"]}),
    "a column that is a string": lambda: {"sex": NAME, "age": [1]},
    "a column that is a number": lambda: {"sex": NUMBER, "age": [1]},
    "a column that is a dict": lambda: {"sex": {NAME: 1}, "age": [1]},
    "a column that is a generator": lambda: {"sex": (name for name in ROWS[0]), "age": [1]},
    "a column of lists": lambda: {"sex": [[NAME, "1"]], "age": [1]},
    "a column of ragged lists": lambda: {"sex": [[NAME], ["1", TOWN]], "age": [1, 2]},
    "a column of dicts": lambda: {"sex": [{NAME: 1}], "age": [1]},
    "ages that are names": lambda: {"sex": ["1"], "age": [NAME]},
    "ages that are an array of names": lambda: {"sex": ["1"], "age": np.array([NAME])},
    "of other lengths": lambda: {"sex": [NAME], "age": [1, NUMBER]},
}


def pandas_levels() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.MultiIndex.from_tuples([(word, NAME) for word in ROWS[0]])


def raised(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("make_records", RECORDS.values(), ids=RECORDS)
def test_records_that_are_no_columns_are_named_by_their_type(
    make_records: Callable[[], Any],
) -> None:
    for tables in ([("sex", "age")], [("age",)], [()]):
        records = make_records()
        found = raised(lambda: fp.Tables.from_records(DOMAIN, records, tables))  # noqa: B023
        assert found is None or isinstance(found, fp.DataError), found
        assert not CANARY.search("".join(traceback.format_exception(found)) if found else "")


def test_a_name_in_another_case_is_shown() -> None:
    with pytest.raises(fp.DataError, match="Did you mean 'Sex '"):
        fp.Tables.from_records(DOMAIN, {"Sex ": ["1"]}, [("sex",)])
    with pytest.raises(fp.DataError, match="Check the spelling"):
        fp.Tables.from_records(DOMAIN, {"sexy": ["1"]}, [("sex",)])
