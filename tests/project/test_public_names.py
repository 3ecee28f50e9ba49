"""What users and their tools see of the packages: names by completion, types by mypy."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import fitplug as fp
import fitplug_dask as fpd
import fitplug_explore
import fitplug_export as fpe
import fitplug_opendp as fpo
from tests.helpers.places import EXAMPLES

USE = """\
import fitplug as fp
import fitplug_opendp as fpo
import opendp.prelude as dp

domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 115)})
pyramid = fp.queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid")
workload = fp.Workload(domain, [pyramid, fp.marginal("sex", moe=3), fp.total(variance=4)])
plan = fp.design(workload, rho=0.5)
tables = fp.count("people/*.parquet", plan)
more = fp.count(fp.Source(["a.csv", "b.csv"], zone="UTC"), workload)
release = fp.release(plan, tables, ledger=fp.Ledger("budget.db", rho=1.0))
space = dp.vector_domain(dp.atom_domain(T="i64"), size=232), dp.l1_distance(T="i64")
measurement = space >> fpo.then_fitness_for_use(plan)
reveal_type(plan.rho)
reveal_type(tables)
reveal_type(release)
reveal_type(release.to_arrow("pyramid"))
reveal_type(release.to_pandas("pyramid"))
reveal_type(release.to_polars("pyramid"))
reveal_type(release.estimate({"pyramid": 1}))
plan.nothing
"""

REVEALED = [
    r"float",
    r"fitplug\.counts\.tables\.Tables",
    r"fitplug\.releases\.release\.Release",
    r"pyarrow\.\w+\.Table|Any",  # Any where a library has neither types of its own nor stubs
    r"pandas\.core\.frame\.DataFrame|Any",
    r"polars\.dataframe\.frame\.DataFrame",
    r".*fitplug\.releases\.combined_numbers\.Estimate.*",
]


@pytest.mark.long
def test_mypy_knows_what_is_installed(tmp_path):
    pytest.importorskip("polars")
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    apart = {key: value for key, value in os.environ.items() if key not in _PATHS}
    ran = subprocess.run(
        [*command, "use.py"], capture_output=True, text=True, check=False, cwd=tmp_path, env=apart
    )
    found = re.findall(r'Revealed type is "(.*)"', ran.stdout)
    for told, expected in zip(found, REVEALED, strict=True):
        assert re.fullmatch(expected, told)
    errors = [line for line in ran.stdout.splitlines() if "error:" in line]
    (error,) = (line for line in errors if not re.search("import-untyped|opendp", line))
    assert '"Plan" has no attribute "nothing"' in error


_PATHS = ("MYPYPATH", "PYTHONPATH")


@pytest.mark.parametrize("package", [fp, fpd, fpe, fitplug_explore, fpo])
def test_only_public_names_are_offered(package):
    offered = {name for name in dir(package) if not name.startswith("__")}
    assert offered == set(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)
    held: dict[str, object] = {}
    exec(f"from {package.__name__} import *", held)
    assert held.keys() - {"__builtins__"} == offered


DOMAIN = fp.Domain({"sex": ["1", "2"]})
WORKLOAD = fp.Workload(DOMAIN, [fp.marginal("sex", std=5.0), fp.total(std=1.0)])
TABLES = fp.Tables(DOMAIN, {("sex",): [40, 50]})
TOWNS = fp.Domain({"SEX": ["1", "2"]}), [("SEX",)]


@functools.cache
def make_release() -> fp.Release:
    return fp.release(fp.design(WORKLOAD), TABLES)


@pytest.mark.parametrize(
    ("thing", "offered"),
    [
        (fp.Integers(0, 9), "high labels low other size values"),
        (fp.Bins([0, 1]), "edges labels other size values"),
        (fp.Categories(["a"]), "labels other size values"),
        (fp.CodePrefix(["a"], 1), "labels length other size values"),
        (
            fp.Dates("2024-01-01", "2024-12-31"),
            "by date_format first labels last other size values",
        ),
        (fp.Measure(0, 9, unit=1), "high labels low other size unit values"),
        (
            fp.Hierarchy(["a", "b"], [["x", "y"]]),
            "from_attribute from_columns labels labels_at leaves levels other size values"
            " with_level",
        ),
        (DOMAIN, "attributes from_spec names ordered shape size spec value_labels"),
        (fp.AddRemove(), "distinct once_per records to_spec"),
        (fp.ReplaceOne(), "records to_spec within"),
        (fp.total(std=1.0), "factors name target"),
        (
            WORKLOAD,
            "attributes cell_count domain from_matrix groups matrix names query_count shape split"
            " tables targets",
        ),
        (WORKLOAD.groups, "count index names sizes variances"),
        (WORKLOAD.groups[0], "attributes factors name quantity shape size target variances"),
        (
            lambda: make_release().plan,
            "bound_unit causal_attributes certificate coverage delta digest domain epsilon gap"
            " group_rows has_coverage load lower_bound mechanisms noise noise_std objective"
            " overstatement plot privacy_cost profile proof rho rho_exact rho_lower_bound save"
            " scale sigma status strategy summary tables targets tiers tolerance unit"
            " unused_budget variances verify workload",
        ),
        (
            fp.Source("people/"),
            "columns missing path person storage_options weight where zone",
        ),
        (
            TABLES,
            "domain from_codes from_records get items keys marginal nonce outside person rows seal"
            " unit values",
        ),
        (
            make_release,
            "answers coverage coverage_answers entry epsilon estimate estimate_all estimate_each"
            " estimates integers interval iter_tables limited load noise_scale noise_std"
            " nonnegative outside plan plot population privacy_cost public_totals"
            " quantile recover rho rows save seal tables to_arrow to_pandas to_polars variances"
            " verify",
        ),
        (
            lambda: make_release().estimate("total"),
            "approximate count index interval moe std value",
        ),
        (
            lambda: make_release().nonnegative(),
            "biased consistent counts display estimates histogram interval make_table method"
            " release to_arrow to_pandas to_polars totals",
        ),
        (fp.Strategy.from_matrix([[1.0]]), "from_covariance from_matrix matrix name"),
        (
            lambda: fp.evaluate(WORKLOAD, np.eye(2)),
            "costliest_neighbours lower_bound plan plot privacy_cost ratio rho rho_lower_bound"
            " strategy summary tightest_query unit variances workload",
        ),
        (
            lambda: make_release().estimate_all(["total"]),
            "approximate covariance each interval moe names stds values",
        ),
        (
            lambda: make_release().estimate("total / sex"),
            "approximate covariance denominator interval moe numerator std value",
        ),
        (
            lambda: fp.preview(EXAMPLES / "towns" / "people.csv", TOWNS),
            "cells counts files format left_out memory rows rows_are tasks threads"
            " without_checksums",
        ),
        (
            fp.Ledger("unused.db", rho=1.0, deferred=True),
            "bound_unit charge charge_covered charge_measurement check check_covered entries"
            " epsilon path privacy remaining spent stages total unit unused_budget",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_classes_offer_what_users_need(thing: object, offered: str) -> None:
    thing = thing() if callable(thing) else thing
    assert [name for name in dir(thing) if not name.startswith("_")] == offered.split()
    if "__dir__" not in vars(type(thing)):
        known = {name for name in dir(type(thing)) if not name.startswith("_")}
        assert known <= {*offered.split()}


def test_a_series_offers_what_its_protocol_promises(tmp_path):
    plan = fp.design(WORKLOAD, periods="sex")
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    series = fp.begin_series(plan, tmp_path / "series", ledger=ledger, key="sex")
    promised = {name for name in dir(fp.Series) if not name.startswith("_")}
    assert set(dir(series)) == promised
    assert all(hasattr(series, name) for name in promised)


def test_completion_in_notebooks():
    code = """
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import fitplug as fp; from fitplug import plan, errors")
with provisionalcompleter():
    print(*{found.text for found in shell.Completer.completions("fp.", 3)})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == set(fp.__all__)
