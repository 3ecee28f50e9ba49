"""Bad input: one sentence that names the file, the key or value and a remedy; nothing written.

Every case also checks that nothing was charged and that no message shows what the rows hold.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.counts.seals import seal_counts
from fitplug.files import object_stores, write_with_digest
from fitplug_cli.render import read_counts
from tests.helpers.command_line import (
    COST,
    NUMBER,
    SPEC,
    WORD,
    Ran,
    fitplug,
    make,
    rows,
    tree,
    with_privacy,
)

CANARY = re.compile(rf"{WORD}|{NUMBER}|{NUMBER:,}|7\.316|7\.32e|7\.3e\+|7e\+09")

REMEDY = re.compile(
    r"(?i)\b(add|at least|at line|check|change|choose|convert|correct|create|count|design"
    r"|did you mean|expects?|give|keep|known|leave|list|make|must|name|raise"
    r"|remove|rename|restore|round|should|split|try|use|write"
    r"|does not fit|does not broadcast to the group's shape|but the attribute has|is missing"
    r"|is needed|is not a number or an array|no such spec file|would overflow)\b"
)


def refused(root: Path, *arguments: object, says: tuple[str, ...] = (), code: int = 2) -> Ran:
    """Run a command that must refuse, and check how."""
    before = tree(root)
    ran = fitplug(*arguments)
    assert ran.code == code, ran
    error = re.sub(r"^warning: epsilon is above 100.*\n", "", ran.err)
    assert error.startswith("fitplug: "), ran.err
    assert error.count("\n") == 1, ran.err
    assert error.endswith("\n"), ran.err
    message = error.replace(str(root), "")
    for fragment in says:
        assert fragment in message, message
    if code == 2:
        assert REMEDY.search(message), f"no remedy in: {message}"
    assert "Traceback" not in ran.out + ran.err
    assert ".partial" not in message
    assert not CANARY.search(ran.out + ran.err)
    assert tree(root) == before
    return ran


def case(name: str, old: str, new: str, *says: str, code: int = 2) -> Any:
    assert old in SPEC
    return pytest.param(SPEC.replace(old, new, 1), says, code, id=name)


DATA, SEX, AGE, INC = '[data]\npath = "people/"', '["1", "2"]', "[0, 5]", "[0, 10, 50]"
ASKED, PREFIX, TOTAL, BUDGET = '"identity"', '"prefix"', "std = 3.0", 'path = "budget.db"'
QUERIES = SPEC[SPEC.index("[[query]]") : SPEC.index("[ledger]")]
UNIT, ONE = "unit = { records = 1 }", "Write { records = 1 } if every row is a different person"
OUTPUT, LEDGER = '[output]\npath = "release/"', '[ledger]\npath = "budget.db"\nrho = 100.0'

TOML = [
    case("syntax", "AGE = {", "AGE = = {", "TOML", "line 10"),
    case("decimal comma", TOTAL, "std = 30,5", "TOML", "line 27, column 9 (numbers need a decimal"),
    case("key twice", TOTAL, TOTAL + "\nstd = 4.0", "TOML", "line 28"),
    case("section twice", "[output]", "[domain]\n[output]", "TOML", "twice", "line"),
    case("attribute twice", "AGE = {", "SEX = {", "TOML", "line 10"),
    case("no closing quote", '"total"', '"total', "TOML", "line 26"),
]

SECTIONS = [
    case("unknown section", "[ledger]", "[legder]", "legder", "'ledger'"),
    case("misspelt domain", "[domain]", "[domian]", "domian", "'domain'"),
    case("misspelt data", "[data]", "[dta]", "dta", "'data'"),
    case("misspelt query", "[[query]]", "[[qurey]]", "qurey", "'query'"),
    case("unrelated section", "[output]", "[zzz]\na = 1\n[output]", "zzz", "'output'"),
    case("key before any section", "[data]", "records = 2\n[data]", "records"),
    case("no data", DATA, "", "[data]", "missing"),
    case("data a string", DATA, 'data = "people/"', "[data]", "path"),
    case("data an array", "[data]", "[[data]]", "[data]"),
    case("query a table", QUERIES, '[query]\nSEX = "identity"\nstd = 1.0\n', "[[query]]"),
    case("no query", QUERIES, "", "[query]", "missing"),
    case("unknown key in data", DATA, DATA + "\npersn = 'ID'", "[data]", "'person'"),
    case("misspelt path in data", DATA, '[data]\npaht = "people/"', "[data]", "paht", "'path'"),
    case("unknown key in ledger", BUDGET, BUDGET + "\npth = 1", "[ledger]", "pth", "'path'"),
    case("misspelt rho in ledger", "rho = 100.0", "roh = 100.0", "[ledger]", "roh", "'rho'"),
    case("unknown key in output", OUTPUT, '[output]\npth = "r"', "[output]", "pth", "'path'"),
    case("unknown key in privacy", UNIT, UNIT + "\nmaxrho = 1", "'max_rho'"),
    case("epsilon in privacy", UNIT, UNIT + "\nepsilon = 1", "epsilon", "'rho'"),
    case("unknown key in design", "[output]", "[design]\ntolerence = 1\n[output]", "'tolerance'"),
    case("unknown key in query", TOTAL, "stdd = 3.0", "'total'", "stdd", "'std'"),
    case("unknown key in attribute", "{ integers", "{ integer", "AGE", "integer", "'integers'"),
    case("unknown key beside other", SEX, '{ categories = ["1"], othr = "x" }', "SEX", "'other'"),
    case("unknown key in ranges", PREFIX, "{ range = [[0, 5]] }", "AGE", "range", "'ranges'"),
]  # fmt: skip

DATA_KEYS = [
    case("no path", DATA, "[data]", "[data]", "path", "missing"),
    case("path empty", '"people/"', '""', "[data]", "path", "''"),
    case("path a number", '"people/"', "5", "[data]", "path", "5"),
    case("path a list", '"people/"', '["people/"]', "[data]", "path"),
]  # fmt: skip

UNITS = [
    case("no unit", UNIT, "rho = 1.0", "[privacy] unit is missing. Write", ONE),
    case("no privacy", f"[privacy]\n{UNIT}\n", "", "[privacy] unit is missing", ONE),
    case("undecided unit", UNIT, 'unit = "?"', "[privacy] unit is still open", ONE),
    case("unit a number", UNIT, "unit = 3", "[privacy] unit = 3 must be a table", ONE),
    case("unit a text", UNIT, 'unit = "person"', "[privacy] unit = 'person' must be a table", ONE),
    case("unit empty", UNIT, "unit = {}", "the key 'records'. Write, for example, { records"),
    *(
        case(f"records {n}", "records = 1", f"records = {n}", "[privacy] unit", shown)
        for n, shown in [
            ("0", "0"), ("-1", "-1"), ("1.5", "1.5"), ("true", "True"), ('"2"', "'2'"),
        ]
    ),
    case("records over budget", "records = 1", "records = 100", "rho = 85", code=3),
    case("records beyond 64 bits", "records = 1", f"records = {10**23}", "1000000"),
]  # fmt: skip

NO_LEDGER = "ledger = false"
LEDGERS = [
    case("no ledger", LEDGER, "", "[ledger] is missing. Add [ledger] with path and rho", NO_LEDGER),
    *(
        case(f"ledger {v}", SPEC, f"ledger = {v}{SPEC.replace(LEDGER, '')}", "be a table, or false")
        for v in ("true", "'budget.db'", "0")
    ),
]  # fmt: skip

DOMAIN = [
    case("no attributes", SPEC[SPEC.index("SEX =") : SPEC.index("[[query]]")], "", "[domain]"),
    case("no categories", SEX, "[]", "'SEX'", "empty"),
    case("no categories but a key", SEX, "{ categories = [] }", "'SEX'", "empty"),
    case("category twice", SEX, '["1", "2", "1"]', "'SEX'", "'1'", "twice"),
    case("integer category twice", SEX, "[1, 2, 2]", "'SEX'", "2", "twice"),
    case("categories of two types", SEX, '["1", 2]', "'SEX'", "str", "int"),
    case("fractions as categories", SEX, "[1.5, 2.5]", "'SEX'", "float"),
    case("categories beyond 64 bits", SEX, f"[{2**63}]", "'SEX'", str(2**63), "2**62"),
    case("a string for a list", SEX, '"1"', "'SEX'", "'1'"),
    case("a number for a list", SEX, "1", "'SEX'", "1"),
    case("empty table", SEX, "{}", "'SEX'", "'categories'"),
    case("other is a category", SEX, '{ categories = ["1"], other = "1" }', "'SEX'", "'1'"),
    case("other is no string", SEX, '{ categories = ["1"], other = 9 }', "'SEX'", "9"),
    case("integers reversed", AGE, "[5, 0]", "'AGE'", "5..0", "lower end first"),
    case("one integer", AGE, "[5]", "'AGE'", "[5]", "[low, high]"),
    case("integers as fractions", AGE, "[0, 5.0]", "'AGE'", "5.0"),
    case("integers as strings", AGE, '["0", "5"]', "'AGE'", "'0'"),
    case("integers as booleans", AGE, "[false, true]", "'AGE'", "False"),
    case("integers no list", AGE, "5", "'AGE'", "5", "[low, high]"),
    case("integers that overflow", AGE, f"[0, {2**63}]", "'AGE'", str(2**63)),
    case("two kinds", "[0, 5] }", "[0, 5], bins = [0, 5] }", "'AGE'", "bins"),
    case("bins unsorted", INC, "[0, 50, 10]", "'INC'", "10", "50", "increase"),
    case("bins empty", INC, "[0, 10, 10]", "'INC'", "10", "increase"),
    case("bins overlap", INC, "[[0, 10], [5, 50]]", "'INC'"),
    case("one edge", INC, "[0]", "'INC'", "two edges"),
    case("no edge", INC, "[]", "'INC'", "two edges"),
    case("edge nan", INC, "[0, nan]", "'INC'", "nan"),
    case("edge infinite", INC, "[0, inf]", "'INC'", "inf"),
    case("edge a string", INC, '[0, "10"]', "'INC'", "'10'"),
    case("edge a boolean", INC, "[false, true]", "'INC'", "False"),
    case("attribute without a name", "AGE = {", '"" = {', "[domain]", "''"),
    case("attribute named as a key", "AGE = {", "moe = {", "[domain]", "'moe'", "reserved"),
    case("attribute named as a result", "AGE = {", "lower = {", "[domain]", "'lower'", "reserved"),
]  # fmt: skip

HUGE = [
    case("too large to design", AGE, "[0, 4000000]", "AGE", "coarser"),
    case("too large to hold", AGE, f"[0, {10**15}]", "AGE", "coarser"),
    pytest.param(
        SPEC.replace(AGE, f"[0, {10**15}]").replace(PREFIX, '"identity"'),
        ("AGE", "'ages'", "coarser"),
        2,
        id="too large to release",
    ),
    pytest.param(
        SPEC.replace(AGE, f"[0, {10**15}]").replace(PREFIX, "{ ranges = [[5, 7]] }"),
        ("AGE", "coarser"),
        2,
        id="too many cells for one query",
    ),
    case("too large to number", AGE, f"[0, {4 * 10**18}]", "AGE"),
    pytest.param(
        SPEC.replace(AGE, "[0, 9999999]").replace(PREFIX, '"all_ranges"'),
        ("AGE",),
        2,
        id="too many ranges",
    ),
]

QUERY = [
    case("unknown attribute", "SEX = " + ASKED, "SXE = " + ASKED, "'ages'", "SXE", "'SEX'"),
    case("sum of no measure", ASKED, '"sum"', "'ages': SEX: \"sum\"", "SEX = { measure = [low,"),
    case("mean", ASKED, '"mean"', "'ages'", "SEX", 'fitplug estimate "a / b"'),
    case("target in quotes", TOTAL, 'moe = "30"', "'total': moe = '30' is", "Remove the quotes"),
    case("unknown kind", ASKED, '"identify"', "'ages'", "SEX", "'identify'", "'identity'"),
    case("kind a number", ASKED, "5", "'ages'", "SEX"),
    case("kind a boolean", ASKED, "true", "'ages'", "SEX"),
    case("kind empty", ASKED, '""', "'ages'", "SEX"),
    case("kind an empty table", ASKED, "{}", "'ages'", "SEX", "ranges"),
    case("matrix without rows", ASKED, "[]", "'ages'", "SEX"),
    case("matrix of an empty row", ASKED, "[[]]", "'ages'", "SEX", "empty"),
    case("matrix nan", ASKED, "[[1, nan]]", "'ages'", "SEX", "nan", "row 0", "column 1"),
    case("matrix infinite", ASKED, "[[1, 0], [-inf, 0]]", "'ages'", "SEX", "-inf", "row 1"),
    case("matrix ragged", ASKED, "[[1, 2], [3]]", "'ages'", "SEX"),
    case("matrix too wide", ASKED, "[[1, 2, 3]]", "'ages'", "SEX", "3", "2 columns"),
    case("matrix too narrow", ASKED, "[[1], [1]]", "'ages'", "SEX", "1", "2 columns"),
    case("matrix of one dimension", ASKED, "[1, 2]", "'ages'", "SEX"),
    case("matrix of three dimensions", ASKED, "[[[1, 2]]]", "'ages'", "SEX", "3"),
    case("matrix of strings", ASKED, '[["1", "0"]]', "'ages'", "SEX", "numbers"),
    case("no ranges", PREFIX, "{ ranges = [] }", "'ages'", "AGE", "pairs"),
    case("ranges a number", PREFIX, "{ ranges = 5 }", "'ages'", "AGE", "5"),
    case("range of one end", PREFIX, "{ ranges = [[5]] }", "'ages'", "AGE", "[5]"),
    case("range of three ends", PREFIX, "{ ranges = [[0, 1, 2]] }", "'ages'", "AGE", "[0, 1, 2]"),
    case("range reversed", PREFIX, "{ ranges = [[5, 2]] }", "'ages'", "AGE", "[5, 2]", "lower"),
    case("range outside", PREFIX, "{ ranges = [[0, 6]] }", "'ages'", "AGE", "6"),
    case("range of strings", PREFIX, '{ ranges = [["0", "3"]] }', "'ages'", "AGE", "'0'"),
    case("range between edges", "INC = " + ASKED, "INC = { ranges = [[0, 11]] }", "'income'", "11"),
    case("no bin", "INC = " + ASKED, "INC = { ranges = [[10, 10]] }", "'income'", "[10, 10]"),
    case("name used twice", '"income"', '"ages"', "'ages'", "different name"),
    case("name empty", '"total"', '""', "name", "''"),
    case("name blank", '"total"', '" "', "name", "' '"),
    case("name a number", '"total"', "5", "name", "5"),
]  # fmt: skip

TARGETS = [
    case("target missing", TOTAL, "", "total", "none", "variance, std or moe"),
    case("only a confidence", TOTAL, "confidence = 0.9", "total", "variance, std or moe"),
    case("std and moe", TOTAL, TOTAL + "\nmoe = 3.0", "total", "std and moe"),
    case("variance and std", TOTAL, TOTAL + "\nvariance = 3.0", "total", "variance and std"),
    *(
        case(f"{kind} {value}", TOTAL, f"{kind} = {value}", "total", kind, shown)
        for kind in ("std", "moe", "variance")
        for value, shown in [
            ("0", "0"), ("-3.0", "-3"), ("nan", "nan"), ("inf", "inf"), ("-inf", "-inf"),
            ('"5"', "'5'"), ("true", "True"), ("[]", ""), ("{ a = 1 }", ""), ("1979-05-27", ""),
        ][: 10 if kind == "std" else 7]
    ),
    case("std too small", TOTAL, "std = 1e-80", "total", "std", "between"),
    case("std too large", TOTAL, "std = 1e80", "total", "std", "between"),
    case("variance too small", TOTAL, "variance = 1e-300", "total", "variance"),
    case("variance too large", TOTAL, "variance = 1e300", "total", "variance"),
    case("array for one number", TOTAL, "std = [1.0, 2.0]", "total", "std", "(2,)", "()"),
    case("array too long", "std = 5.0", "std = [1, 2, 3, 4, 5, 6, 7]", "ages", "(7,)", "(2, 6)"),
    case("array too deep", "std = 5.0", "std = [[[1, 2]]]", "ages", "(1, 1, 2)", "(2, 6)"),
    case("array ragged", "std = 5.0", "std = [[1, 2], [3]]", "ages", "std"),
    case("array with a negative", "std = 5.0", "std = [1, 2, 3, 4, 5, -6]", "ages", "std", "-6"),
    case("array with a nan", "std = 5.0", "std = [1, 2, 3, 4, 5, nan]", "ages", "std", "nan"),
    case("array of strings", "std = 5.0", 'std = ["5"]', "ages", "std", "'5'"),
    case("array with a boolean", "std = 5.0", "std = [true, 2, 3, 4, 5, 6]", "ages", "std"),
    case("confidence of std", TOTAL, TOTAL + "\nconfidence = 0.9", "total", "confidence", "std"),
    *(
        case(f"confidence {value}", "confidence = 0.9", f"confidence = {value}", "income", shown)
        for value, shown in [
            ("0", "below 1, not 0"), ("1", "below 1, not 1"), ("90", "below 1, not 90"),
            ("-0.9", "below 1, not -0.9"), ("nan", "below 1, not nan"), ("[0.9]", "confidence"),
            ("true", "below 1, not True"), ('"0.9"', "confidence = '0.9'"),
            ("1e-18", "below 1, not 1e-18"),
        ]
    ),
]  # fmt: skip


def privacy(name: str, lines: str, *says: str, code: int = 2) -> Any:
    return case(name, UNIT, f"{UNIT}\n{lines}", *says, code=code)


NOT_POSITIVE = [("0", "0"), ("-1", "-1"), ("nan", "nan"), ("inf", "inf"), ("true", "True"),
                ('"1"', "'1'"), ("[1]", "[1]")]  # fmt: skip

PRIVACY = [
    *(
        privacy(f"{key} {value}", f"{key} = {value}", "[privacy]", key, shown)
        for key in ("rho", "max_rho")
        for value, shown in NOT_POSITIVE
    ),
    *(
        privacy(f"delta {value}", f"delta = {value}", "[privacy] delta", shown)
        for value, shown in [
            ("0", "0"), ("1", "1"), ("-1e-9", "-1e-09"), ("2", "2"), ("nan", "nan"),
            ("inf", "inf"), ("true", "True"), ('"1e-9"', "'1e-9'"), ("1e-400", "0"),
        ]
    ),
    privacy("rho and max_rho", "rho = 1.0\nmax_rho = 2.0", "[privacy]", "rho", "max_rho"),
    privacy("more than max_rho", "max_rho = 0.01", "0.085", "max_rho = 0.01", "2.9", code=3),
    privacy("rho over budget", "rho = 100.5", "101", "100", code=3),
    privacy("noise beyond 64 bits", "rho = 1e-40", "rho"),
    privacy("noise that saturates 64 bits", "rho = 1e-30", "rho"),
    privacy("noise beyond floating point", "rho = 1e-300", "rho"),
]  # fmt: skip

OTHERS = [
    case("no ledger path", BUDGET, "", "[ledger] path", "missing"),
    case("no ledger rho", "rho = 100.0", "", "[ledger] must have either rho"),
    case("ledger path empty", BUDGET, 'path = ""', "[ledger] path", "''"),
    *(
        case(f"ledger rho {value}", "rho = 100.0", f"rho = {value}", "[ledger] rho", shown)
        for value, shown in NOT_POSITIVE
    ),
    case("ledger too small", "rho = 100.0", "rho = 0.08", "0.085", "0.08", code=3),
    case("output path empty", '"release/"', '""', "[output] path", "''"),
    case("output path a number", '"release/"', "5", "[output] path", "5"),
    *(
        case(f"output confidence {v}", OUTPUT, f"{OUTPUT}\nconfidence = {v}", "confidence", v)
        for v in ("0", "1", "95", "nan")
    ),
    case("tolerance 0", "[output]", "[design]\ntolerance = 0\n[output]", "tolerance", "0"),
    case("tolerance text", "[output]", '[design]\ntolerance = "x"\n[output]', "[design]", "'x'"),
    case("no iterations", "[output]", "[design]\nmax_iterations = 0\n[output]", "max_iterations"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "says", "code"),
    [
        *TOML,
        *SECTIONS,
        *DATA_KEYS,
        *UNITS,
        *LEDGERS,
        *DOMAIN,
        *HUGE,
        *QUERY,
        *TARGETS,
        *PRIVACY,
        *OTHERS,
    ],
)
def test_a_wrong_spec(tmp_path, spec, says, code):
    refused(tmp_path, "run", make(tmp_path, spec), says=("spec.toml", *says), code=code)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe" + SPEC.encode("utf-16-le"),
        SPEC.replace("total", "größe").encode("latin-1"),
        b"PAR1\x00\x80\xff",
        b"",
        b"# nothing\n",
    ],
    ids=["UTF-16", "Latin-1", "binary", "empty", "only a comment"],
)
def test_a_spec_that_is_no_spec(tmp_path, content):
    make(tmp_path).write_bytes(content)
    refused(tmp_path, "run", tmp_path / "spec.toml", says=("spec.toml",))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope.toml", "no such spec file"),
        ("people", "is a folder. Give a TOML file."),
        ("people/a.parquet", "is a data file, not a spec. Create a spec with"),
        ("spec.toml/x", "cannot be read"),
    ],
)
def test_a_spec_that_is_not_there(tmp_path, name, says):
    make(tmp_path)
    refused(tmp_path, "run", tmp_path / name, says=(name, says))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rnu"], ("rnu", "run")),
        (["run"], ("SPEC",)),
        (["design"], ("SPEC",)),
        (["run", "spec.toml", "more.toml"], ("more.toml",)),
        (["run", "--rho", "1", "spec.toml"], ("--rho",)),
        (["--rho", "run", "spec.toml"], ("--rho",)),
        (["design", "spec.toml", "--output"], ("--output",)),
        (["release", "spec.toml"], ("--counts",)),
        (["release", "spec.toml", "--cuonts", "c.npz"], ("--cuonts", "--counts")),
    ],
    ids=" ".join,
)
def test_wrong_arguments(tmp_path, monkeypatch, arguments, says):
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    ran = fitplug(*arguments)
    assert ran.code == 2
    assert re.fullmatch(r"fitplug: .+\n", ran.err), ran.err
    for fragment in says:
        assert fragment in ran.err
    assert tree(tmp_path) == before


# --- the data ---------------------------------------------------------------------------------


def write(root: Path, name: str = "b.parquet", **changes: Any) -> None:
    """A file of the data with some columns changed, or left out if None."""
    columns = {k: v for k, v in (rows(1) | changes).items() if v is not None}
    (root / "people" / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), root / "people" / name)


def cut(root: Path, keep: Callable[[bytes], bytes]) -> None:
    path = root / "people" / "b.parquet"
    path.write_bytes(keep(path.read_bytes()))


def clear(root: Path) -> None:
    for path in (root / "people").iterdir():
        path.unlink()


def spec_path(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / "spec.toml").write_text(SPEC.replace('"people/"', json.dumps(path)))

    return change


N = len(rows(1)["SEX"])
BAD_DATA = {
    "missing folder": (spec_path("peple/"), ("peple",)),
    "missing file": (spec_path("people/c.parquet"), ("c.parquet",)),
    "glob without a match": (spec_path("people/*.parq"), ("*.parq", "pattern")),
    "an address": (spec_path("https://example.org/a.parquet"), ("example.org",)),
    "the spec itself": (spec_path("spec.toml"), ("spec.toml", "Parquet")),
    "empty folder": (clear, ("people",)),
    "folder of other files": (
        lambda root: (clear(root), (root / "people" / "a.txt").write_text("SEX\n1\n")),
        ("people", ".parquet"),
    ),
    "empty file": (lambda root: cut(root, lambda _: b""), ("b.parquet", "empty")),
    "text file": (lambda root: cut(root, lambda _: b"SEX,AGE\n1,2\n"), ("b.parquet",)),
    "truncated": (lambda root: cut(root, lambda whole: whole[:-300]), ("b.parquet", "truncated")),
    "cut in the middle": (
        lambda root: cut(root, lambda whole: whole[:200] + whole[500:]),
        ("b.parquet",),
    ),
    "overwritten in the middle": (
        lambda root: cut(root, lambda whole: whole[:20] + b"\xff" * 600 + whole[620:]),
        ("b.parquet",),
    ),
    "no column": (lambda root: write(root, AGE=None), ("b.parquet", "'AGE'", "no column")),
    "column misspelt": (
        lambda root: write(root, AGE=None, AEG=[NUMBER] * N),
        ("b.parquet", "'AGE'", "'AEG'"),
    ),
    "integers for strings": (
        lambda root: write(root, SEX=[NUMBER] * N),
        ("b.parquet", "'SEX'", "int64", "strings"),
    ),
    "strings for integers": (
        lambda root: write(root, AGE=[WORD] * N),
        ("b.parquet", "'AGE'", "string", "integers"),
    ),
    "dates for integers": (
        lambda root: write(root, AGE=[datetime.date(2026, 1, 1)] * N),
        ("b.parquet", "'AGE'", "date", "integers"),
    ),
    "booleans for integers": (
        lambda root: write(root, AGE=[True] * N),
        ("b.parquet", "'AGE'", "bool", "integers"),
    ),
    "strings for bins": (
        lambda root: write(root, INC=[f"{NUMBER}"] * N),
        ("b.parquet", "'INC'", "string", "numbers"),
    ),
    "times for bins": (
        lambda root: write(root, INC=pa.array([NUMBER] * N).cast(pa.timestamp("s"))),
        ("b.parquet", "'INC'", "timestamp", "numbers"),
    ),
    "lists for bins": (
        lambda root: write(root, INC=[[float(NUMBER)]] * N),
        ("b.parquet", "'INC'", "list", "numbers"),
    ),
    "two folders of one key": (
        lambda root: write(root, "SEX=1/SEX=1/0.parquet"),
        ("SEX=1", "'SEX'"),
    ),
    "folder that spells no integer": (
        lambda root: write(root, "AGE=old/0.parquet", AGE=None),
        ("AGE=old", "'AGE'", "integers"),
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(tmp_path, name, monkeypatch):
    change, says = BAD_DATA[name]
    monkeypatch.setattr(object_stores, "RETRIES", {"max_retries": 0})
    spec = make(tmp_path)
    change(tmp_path)
    if list(BAD_DATA).index(name) % 2:
        fp.Ledger(tmp_path / "budget.db", rho=100.0).charge(1.0, what="an earlier release")
    else:
        refused(tmp_path, "count", spec, says=says)
    refused(tmp_path, "run", spec, says=says)


# --- the plan and the counts ------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("good")
    spec = make(root)
    assert fitplug("design", spec).code == 0
    assert fitplug("count", spec).code == 0
    return {name: (root / f"spec.{name}.npz").read_bytes() for name in ("plan", "counts")}


@pytest.fixture
def ready(tmp_path, files) -> Path:
    """A folder with spec, data, plan and counts, nothing released yet."""
    make(tmp_path)
    (tmp_path / "plan.npz").write_bytes(files["plan"])
    (tmp_path / "counts.npz").write_bytes(files["counts"])
    return tmp_path


def release(root: Path) -> list[object]:
    plan, counts = root / "plan.npz", root / "counts.npz"
    return ["release", root / "spec.toml", "--plan", plan, "--counts", counts]


def flag_as_encrypted(content: bytes) -> bytes:
    changed = bytearray(content)
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        changed[changed.index(mark) + flags] |= 1
    return bytes(changed)


DAMAGES = {
    "empty": lambda _: b"",
    "text": lambda _: b"no archive\n",
    "cut": lambda whole: whole[:-50],
    "half": lambda whole: whole[: len(whole) // 2],
    "one byte": lambda whole: whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
    "flagged as encrypted": flag_as_encrypted,
    "one array": lambda _: npy(np.ones(3)),
    "pickled": lambda _: npy(np.array([{}], dtype=object)),
}


def npy(array: Any) -> bytes:
    from io import BytesIO

    out = BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", ["plan", "counts"])
def test_a_damaged_file(ready, files, which, damage):
    (ready / f"{which}.npz").write_bytes(damage(files[which]))
    refused(ready, *release(ready), says=(f"{which}.npz", which))


@pytest.mark.parametrize("which", ["plan", "counts"])
@pytest.mark.parametrize("content", ["missing", "a folder", "the other file"])
def test_a_file_that_is_another(ready, files, which, content):
    path = ready / f"{which}.npz"
    path.unlink()
    if content == "a folder":
        path.mkdir()
    elif content == "the other file":
        path.write_bytes(files["counts" if which == "plan" else "plan"])
    refused(ready, *release(ready), says=(f"{which}.npz", which))


@pytest.mark.parametrize(
    ("which", "read", "error"),
    [("plan", fp.Plan.load, fp.PlanError), ("counts", read_counts, fp.TablesError)],
    ids=["plan", "counts"],
)
def test_no_damaged_byte_ends_in_a_traceback(tmp_path, files, which, read, error):
    path, whole = tmp_path / "f.npz", files[which]
    directory = whole.rindex(b"PK\1\2")
    for at in [*range(60), *range(60, directory, 97), *range(directory, len(whole))]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :])
        try:
            read(path)
        except error as caught:
            assert str(caught).startswith(str(path))  # noqa: PT017 (not every byte matters)


def edit(path: Path, change: Callable[[dict, dict], None], *, seal: bool = False) -> None:
    """Change header and arrays of a plan or counts file; seal: with the digest or the seal that
    fits.
    """
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    if seal and "seal" in header:
        said = {name: header[name] for name in ("domain", "unit", "person", "rows", "outside")}
        order = [name for name, _ in header["domain"]]
        counts = {
            tuple(sorted(names, key=order.index)): arrays[f"table{i}"]
            for i, names in enumerate(header["tables"])
        }
        header["seal"] = seal_counts(bytes.fromhex(header["nonce"]), said, counts)
    elif seal:
        arrays.pop("digest")
        write_with_digest(path, header, arrays)
        return
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, header=text, **arrays)


PLAN_EDITS = {
    "less noise": lambda h, a: h.update(noise_std=(1.0).hex()),
    "a higher bound": lambda h, a: h.update(lower_bound=(9.0).hex()),
    "another matrix": lambda h, a: a.update({"family0.M": a["family0.M"] * 2}),
    "a target": lambda h, a: a.update(variances=a["variances"] * 4),
    "an array more": lambda h, a: a.update(more=np.zeros(1)),
    "an array less": lambda h, a: a.pop("p"),
}


@pytest.mark.parametrize("change", PLAN_EDITS.values(), ids=PLAN_EDITS)
def test_an_edited_plan(ready, change):
    edit(ready / "plan.npz", change)
    refused(ready, *release(ready), says=("plan.npz", "edited", "Design the plan again"))
    refused(
        ready,
        "count",
        ready / "spec.toml",
        "--plan",
        ready / "plan.npz",
        says=("plan.npz", "edited"),
    )


FORGERIES = {
    "a higher bound": lambda h, a: h.update(lower_bound=(9.0).hex()),
    "a lower cost": lambda h, a: h.update(sensitivity_squared="1"),
    "noise nan": lambda h, a: h.update(noise_std="nan"),
    "noise negative": lambda h, a: h.update(noise_std="-0x1p20"),
    "weights of another length": lambda h, a: a.update(p=a["p"][:-1]),
    "a factor of no kind": lambda h, a: h["groups"][0]["factors"][0].__setitem__(1, "weird"),
    "no groups": lambda h, a: h.update(groups=[]),
    "the future": lambda h, a: h.update(format=99),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_plan(ready, change):
    edit(ready / "plan.npz", change, seal=True)
    refused(ready, *release(ready), says=("plan.npz",))


SPEC_EDITS = {
    "a target": ("std = 3.0", "std = 4.0"),
    "a name": ('"total"', '"everybody"'),
    "a confidence": ("confidence = 0.9", "confidence = 0.95"),
    "a domain": ("[0, 5]", "[0, 6]"),
    "a query": ("std = 3.0", 'std = 3.0\nSEX = "identity"'),
    "rho to spend": (UNIT, UNIT + "\nrho = 0.001"),
}


@pytest.mark.parametrize(("old", "new"), SPEC_EDITS.values(), ids=SPEC_EDITS)
def test_a_plan_of_another_spec(ready, old, new):
    spec = ready / "spec.toml"
    spec.write_text(SPEC.replace(old, new))
    refused(ready, *release(ready), says=("plan.npz", "spec.toml"))
    refused(ready, "count", spec, "--plan", ready / "plan.npz", says=("plan.npz", "spec.toml"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("rho = 0.3\n", ""), ("rho = 0.3", "rho = 0.2"), ("records = 1", "records = 3")],
    ids=["rho removed", "less rho", "more records"],
)
def test_a_plan_for_another_rho(ready, old, new):
    spec = ready / "spec.toml"
    spec.write_text(with_privacy("rho = 0.3"))
    assert fitplug("design", spec, "--output", ready / "plan.npz").code == 0
    spec.write_text(spec.read_text().replace(old, new))
    refused(ready, *release(ready), says=("plan.npz",))


def test_a_saved_plan_is_held_to_max_rho(ready):
    (ready / "spec.toml").write_text(with_privacy("max_rho = 0.01"))
    refused(ready, *release(ready), says=("0.085", "0.01"), code=3)
    (ready / "spec.toml").write_text(with_privacy(f"max_rho = {COST}"))
    assert fitplug(*release(ready)).code == 0


def far_too_many(header: dict, arrays: dict) -> None:
    arrays["table0"] = np.zeros((2, 6), dtype=np.int64)
    arrays["table1"] = np.zeros(2, dtype=np.int64)
    arrays["table0"][0, 0] = arrays["table1"][0] = 2**50


NOT_COUNTS = ("the counts of table", "must be integers of at least 0")

COUNTS_EDITS = {
    "negative": (lambda h, a: a.update(table0=a["table0"] - NUMBER), NOT_COUNTS),
    "fractions": (lambda h, a: a.update(table1=a["table1"] + 0.5), NOT_COUNTS),
    "booleans": (lambda h, a: a.update(table1=a["table1"] > 0), NOT_COUNTS),
    "nan": (lambda h, a: a.update(table1=a["table1"] * np.nan), ("INC", "integers")),
    "strings": (lambda h, a: a.update(table1=np.array([WORD, WORD])), ("counts.npz",)),
    "another shape": (lambda h, a: a.update(table0=a["table0"][:, 1:]), ("damaged",)),
    "no histogram": (lambda h, a: a.update(table1=a["table1"] + NUMBER), ("disagree", "INC")),
    "too many for any plan": (
        lambda h, a: a.update({k: v * 0 + 2**60 for k, v in a.items()}),
        ("counts more than",),
    ),
    "an array less": (lambda h, a: a.pop("table1"), ("counts",)),
    "an unknown attribute": (
        lambda h, a: h.update(tables=[["SEX", "AEG"], ["INC"]]),
        ("damaged",),
    ),
    "an attribute twice": (lambda h, a: h.update(tables=[["SEX"] * 2, ["INC"]]), ("damaged",)),
    "no tables": (lambda h, a: h.update(tables=[]), ("counts.npz",)),
    "tables a number": (lambda h, a: h.update(tables=5), ("counts.npz",)),
    "domain a string": (lambda h, a: h.update(domain="x"), ("counts.npz",)),
    "an earlier format": (lambda h, a: h.pop("format"), ("another version", "Count again")),
    "no seal": (lambda h, a: h.pop("seal"), ("counts.npz",)),
    "no nonce": (lambda h, a: h.pop("nonce"), ("counts.npz",)),
    "a short nonce": (lambda h, a: h.update(nonce=h["nonce"][2:]), ("nonce",)),
    "another nonce": (lambda h, a: h.update(nonce="00" * 32), ("edited",)),
    "a record more": (lambda h, a: [t[..., :1].__iadd__(1) for t in a.values()], ("counts.npz",)),
    "fewer records": (lambda h, a: h.update(unit={"records": 1}), ("edited", "Count again")),
    "a person": (lambda h, a: h.update(person="ID"), ("edited",)),
}  # fmt: skip

SEALED_COUNTS_EDITS = {
    "a table less": (lambda h, a: (h["tables"].pop(), a.pop("table1")), ("INC",)),
    "other cells": (lambda h, a: h["domain"][0].__setitem__(1, ["1", "3"]), ("'SEX'",)),
    "another attribute": (
        lambda h, a: (h["domain"][0].__setitem__(0, "KIN"), h["tables"][0].__setitem__(0, "KIN")),
        ("SEX",),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["new ledger", "old ledger"])
@pytest.mark.parametrize(("change", "says"), COUNTS_EDITS.values(), ids=COUNTS_EDITS)
def test_wrong_counts(ready, change, says, begun):
    if begun:
        fp.Ledger(ready / "budget.db", rho=100.0).charge(1.0, what="an earlier release")
    edit(ready / "counts.npz", change)
    refused(ready, *release(ready), says=("counts.npz", *says))


def test_the_number_of_records_refuses_nothing(ready):
    """Whether there are more than the plan holds would be told for nothing, at any number."""
    edit(ready / "counts.npz", far_too_many, seal=True)
    with pytest.warns(RuntimeWarning, match="reached the limit of 64-bit integers"):
        ran = fitplug(*release(ready))
    assert ran.code == 0
    assert len(fp.Ledger(ready / "budget.db").entries()) == 1


@pytest.mark.parametrize(("change", "says"), SEALED_COUNTS_EDITS.values(), ids=SEALED_COUNTS_EDITS)
def test_wrong_counts_that_are_sealed(ready, change, says):
    unsealed = (ready / "counts.npz").read_bytes()
    edit(ready / "counts.npz", change)
    refused(ready, *release(ready), says=("counts.npz", "the counts were edited"))
    (ready / "counts.npz").write_bytes(unsealed)
    edit(ready / "counts.npz", change, seal=True)
    refused(ready, *release(ready), says=("counts.npz", *says))


def test_counts_of_another_spec(ready):
    spec = ready / "spec.toml"
    counts = ready / "counts.npz"
    spec.write_text(SPEC.replace("[0, 5]", "[0, 4]"))
    refused(ready, "release", spec, "--counts", counts, says=("counts.npz", "AGE"))
    spec.write_text(SPEC.replace("std = 3.0", 'std = 3.0\nSEX = "identity"\nINC = "identity"'))
    refused(ready, "release", spec, "--counts", counts, says=("counts.npz", "SEX", "INC"))


# --- the places written to --------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["no/such/p.npz", "people", "people/a.parquet/p.npz", "spec.toml"]
)
@pytest.mark.parametrize(("command", "option"), [("design", "--output"), ("count", "--output")])
def test_a_file_cannot_be_written_there(tmp_path, command, option, place):
    spec = make(tmp_path)
    refused(tmp_path, command, spec, option, tmp_path / place, says=(place,))


def test_counts_do_not_replace_the_data_or_the_plan(ready):
    for place in ("people/a.parquet", "plan.npz"):
        refused(ready, "count", ready / "spec.toml", "--output", ready / place, says=(place,))
    refused(
        ready, "design", ready / "spec.toml", "--output", ready / "counts.npz", says=("counts",)
    )


def foreign(root: Path, name: str = "thesis.txt", text: str = "years of work") -> None:
    (root / "release").mkdir()
    (root / "release" / name).write_text(text)


BAD_OUTPUT = {
    "a file": ("spec.toml", None),
    "the data": ("people", None),
    "the folder of the spec": (".", None),
    "the folder above": ("..", None),
    "below a file": ("people/a.parquet/release", None),
    "below the data": ("people/release", None),
    "a name too long": ("x" * 300, None),
    "of foreign files": ("release", foreign),
    "of a foreign release.json": ("release", lambda root: foreign(root, "release.json", "{}")),
    "of a damaged release.json": ("release", lambda root: foreign(root, "release.json", '{"rel')),
    "of a release.json that is a list": ("release", lambda r: foreign(r, "release.json", "[1]")),
    "the ledger's file": ("budget.db", None),
    "the ledger's folder": ("out", lambda root: (root / "out").mkdir()),
}


@pytest.mark.parametrize(("path", "change"), BAD_OUTPUT.values(), ids=BAD_OUTPUT)
def test_a_release_cannot_go_there(ready, path, change):
    spec = ready / "spec.toml"
    text = SPEC.replace('"release/"', json.dumps(path))
    spec.write_text(text.replace('"budget.db"', '"out/budget.db"') if path == "out" else text)
    if change:
        change(ready)
    shown = path if path.strip(".") else "[output]"
    refused(ready, "run", spec, says=(shown,))
    refused(ready, "release", spec, "--counts", ready / "counts.npz", says=(shown,))


def test_a_release_cannot_become_data(tmp_path):
    """A second run would count the tables of the first as people, with an odd error or none."""
    spec = make(tmp_path, SPEC.replace('"people/"', '"."'))
    refused(tmp_path, "run", spec, says=("release",))


def sqlite(root: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(root / "budget.db")
    connection.execute("CREATE TABLE mine (a)")
    connection.commit()
    connection.close()


BAD_LEDGER = {
    "of another total": (
        "budget.db",
        lambda root: fp.Ledger(root / "budget.db", rho=3.0).charge(1.0, what="an earlier one"),
        ("budget.db", "3", "100"),
    ),
    "in no folder": ("no/such/budget.db", None, ("no/such",)),
    "a folder": ("people", None, ("people", "folder")),
    "below a file": ("spec.toml/budget.db", None, ("spec.toml",)),
    "a Parquet file": ("people/a.parquet", None, ("a.parquet",)),
    "the spec": ("spec.toml", None, ("spec.toml",)),
    "another database": ("budget.db", sqlite, ("budget.db", "not a ledger")),
}


@pytest.mark.parametrize(("path", "change", "says"), BAD_LEDGER.values(), ids=BAD_LEDGER)
def test_a_wrong_ledger(ready, path, change, says):
    spec = ready / "spec.toml"
    deep = SPEC.replace('"release/"', '"deep/down/release/"')
    spec.write_text(deep.replace('"budget.db"', json.dumps(path)))
    if change:
        change(ready)
    refused(ready, "run", spec, says=says)
    refused(ready, "release", spec, "--counts", ready / "counts.npz", says=says)


@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"", lambda whole: whole[:5000], lambda whole: whole[:200] + bytes(4096)],
    ids=["emptied", "cut", "overwritten"],
)
def test_a_damaged_ledger_is_not_begun_anew(tmp_path, damage):
    spec = make(tmp_path, SPEC.replace('"release/"', '"deep/down/release/"'))
    ledger = tmp_path / "budget.db"
    fp.Ledger(ledger, rho=100.0).charge(99.0, what="an earlier release")
    ledger.write_bytes(damage(ledger.read_bytes()))
    refused(tmp_path, "run", spec, says=("budget.db", "Restore"))


# --- what rows hold ---------------------------------------------------------------------------


def test_rows_never_show(tmp_path, capfd, caplog):
    spec = make(tmp_path)
    counts = tmp_path / "spec.counts.npz"
    with caplog.at_level(logging.DEBUG):
        ran = [fitplug(command, spec) for command in ("design", "count", "run", "run")]
        ran.append(fitplug("release", spec, "--counts", counts, "--again", "--replace"))
    assert [one.code for one in ran] == [0, 0, 0, 3, 0]
    told = "".join(one.out + one.err for one in ran) + "".join(capfd.readouterr()) + caplog.text
    assert not CANARY.search(told)


def test_exact_counts_never_show(ready, capfd, caplog):
    def change(header: dict, arrays: dict) -> None:
        far_too_many(header, arrays)
        arrays["table0"][0, 0] = arrays["table1"][0] = NUMBER

    edit(ready / "counts.npz", change, seal=True)
    with caplog.at_level(logging.DEBUG):
        ran = fitplug(*release(ready))
    assert ran.code == 0
    assert not CANARY.search("".join([*ran[1:], *capfd.readouterr(), caplog.text]))
    estimate = pq.read_table(ready / "release" / "total.parquet")["estimate"][0].as_py()
    assert estimate == pytest.approx(NUMBER, rel=1e-6)


@pytest.mark.parametrize("kind", ["good", "wrong type", "truncated"])
def test_other_rows_change_no_message(tmp_path, kind):
    told = []
    for seed in (0, 1):
        spec = make(tmp_path / "here")
        columns = rows(seed + 10, n=100 + 57 * seed)
        if kind == "wrong type":
            columns["AGE"] = [f"{WORD}{seed}"] * len(columns["AGE"])
        write(tmp_path / "here", **columns)
        if kind == "truncated":
            cut(tmp_path / "here", lambda whole: whole[:-300])
        told.append(fitplug("run", spec))
        (tmp_path / "here").rename(tmp_path / f"done {seed}")
    assert told[0] == told[1]
    assert told[0].code == (0 if kind == "good" else 2)


def test_counts_files_hold_counts_only(tmp_path):
    spec = make(tmp_path)
    assert fitplug("count", spec).code == 0
    with zipfile.ZipFile(tmp_path / "spec.counts.npz") as archive:
        held = b"".join(archive.read(name) for name in archive.namelist())
    assert WORD.encode() not in held
