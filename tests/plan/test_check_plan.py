"""The checker of plan files in tools/ proves good plans by itself, and refuses false ones.

That it refuses each edited file that `Plan.verify` refuses is tested in test_plan_claims.py.
"""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.files import write_with_digest
from tests.helpers.plan_checker import CHECKER, checker, find_code
from tests.helpers.plans import MIXED, all_marginals, dense, describe
from tests.helpers.unit_plans import CASES, make_small_plan

KINDS = fp.Domain(
    {
        "pay": fp.Measure(0, 1000, unit=10, other="none"),
        "hired": fp.Dates("2020-01-01", "2020-03-31", by="month", other="unknown"),
        "sex": ["1", "2"],
        "code": fp.CodePrefix(["ab", "cd"], 2, other="rest"),
        "size": fp.Bins([0, 1, 2.5], other="?"),
        "member": fp.Categories([True, False]),
    },
    {"sex": {"1": "men", "2": "women"}},
)
UNITS: dict[str, Callable[[fp.Workload], Any]] = {
    "one": lambda workload: fp.AddRemove(),
    "three": lambda workload: fp.AddRemove(records=3),
    "replaced": lambda workload: fp.ReplaceOne(),
    "within": lambda workload: fp.ReplaceOne(within=workload.attributes[-1:]),
}
NOT_COVERED = ("distinct", "once per", "tree", "chain", "product")
"""What is in the names of plans that the checker does not know."""


def ask_all_kinds() -> fp.Workload:
    """One group of each kind of attribute, target and query."""
    bands = fp.subsets({"small": ["[0, 1)"], "rest": ["[1, 2.5)", "?"]})
    groups = [
        fp.queries({"pay": "sum", "sex": "identity"}, std=300.0),
        fp.queries({"pay": "count"}, moe=10, confidence=0.99, simultaneous=True),
        fp.queries({"hired": "prefix", "sex": "identity"}, moe=[[3.0, 4.0]], simultaneous=True),
        fp.marginal("code", "size", std=4.0),
        fp.queries({"size": bands}, std=3.0),
        fp.queries({"member": "identity"}, variance=[4.0, 3.0]),
    ]
    return fp.Workload(KINDS, groups)


def draw_queries() -> fp.Workload:
    """Queries of fewer dimensions than cells, with coefficients of three digits."""
    rng = np.random.default_rng(0)
    thin = np.round(rng.normal(size=(12, 4)) @ np.round(4 * rng.normal(size=(4, 9))), 3)
    return fp.Workload.from_matrix(thin, std=rng.uniform(1, 3, 12))


def small_plan() -> fp.Plan:
    return fp.design(MIXED["targets that vary"]())


def save(plan: fp.Plan, folder: Path) -> Path:
    plan.save(folder / "plan.npz")
    return folder / "plan.npz"


WORKLOADS: dict[str, Callable[[], fp.Workload]] = {
    **MIXED,
    "many marginals": lambda: all_marginals([5, 4, 3, 6, 2], 3),
    "one block": lambda: dense(all_marginals([3, 2, 2], 2)),
    "thin": draw_queries,
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_good_plans_are_proven(workload: str, unit: str, tmp_path: Path) -> None:
    asked = WORKLOADS[workload]()
    if unit == "within" and len(asked.attributes) == 1:
        pytest.skip("everything would be public")
    plan = fp.design(asked, unit=UNITS[unit](asked))
    path = save(plan, tmp_path)
    code, lines = checker.find_result(str(path))
    assert code == 0, lines
    assert str(plan.rho_exact) in lines[1]


def test_all_kinds_of_attributes_and_targets_are_read(tmp_path: Path) -> None:
    assert find_code(save(fp.design(ask_all_kinds()), tmp_path)) == 0


@pytest.mark.parametrize("by", ["day", "week", "month", "quarter", "year"])
def test_periods_are_named_as_in_the_domain(by: str) -> None:
    """A domain from a Monday that begins 2001 to the last day of 2006, a Sunday."""
    dates = fp.Dates("2001-01-01", "2006-12-31", by=by, date_format="d/m/y")
    read = checker.read_attribute(fp.Domain({"born": dates}).spec()["born"])
    assert read.values == list(dates.values)


@pytest.mark.parametrize("by", ["week", "month", "quarter", "year"])
@pytest.mark.parametrize("ends", [("2001-01-02", "2006-12-31"), ("2001-01-01", "2006-12-30")])
def test_periods_that_an_end_cuts_are_refused(by: str, ends: tuple[str, str]) -> None:
    with pytest.raises(checker.ClaimError, match="cuts a period"):
        checker.name_dates({"dates": list(ends), "by": by})


@pytest.mark.parametrize(
    "options", [{"rho": 0.01}, {"coverage": True}, {"total_error_weight": 0.1}, {"tolerance": 0.01}]
)
def test_plans_of_all_options_are_proven(options: dict[str, Any], tmp_path: Path) -> None:
    assert find_code(save(fp.design(MIXED["targets that vary"](), **options), tmp_path)) == 0


@pytest.mark.parametrize("case", CASES)
def test_plans_of_each_unit_are_proven_or_not_covered(case: str, tmp_path: Path) -> None:
    with make_small_plan(case) as plan:
        expected = 3 if any(word in case for word in NOT_COVERED) else 0
        assert find_code(save(plan, tmp_path)) == expected, case


FALSE: dict[str, Callable[[Any], Any]] = {
    "sensitivity_squared": lambda square: square * 99 // 100,
    "unit_variances": lambda variances: variances * 0.999,
    "column_squares": lambda squares: squares * 0.999,
    "max_records": lambda records: records + 1,
}


@pytest.mark.parametrize("field", FALSE)
def test_false_claims_about_the_integers_are_refused(field: str, tmp_path: Path) -> None:
    plan = small_plan()
    claim = FALSE[field](getattr(plan.strategy, field))
    strategy = dataclasses.replace(plan.strategy, **{field: claim})
    write_with_digest(
        tmp_path / "plan.npz", *describe(dataclasses.replace(plan, strategy=strategy))
    )
    assert find_code(tmp_path / "plan.npz") == 1


@pytest.mark.parametrize("factor", [1 + 1e-9, 1.0, 1 - 1e-6])
def test_the_bound_is_that_of_the_weights(factor: float, tmp_path: Path) -> None:
    """It is proven to twelve digits: a bound that is higher by a billionth is refused."""
    plan = small_plan()
    edited = dataclasses.replace(plan, lower_bound=plan.lower_bound * factor)
    write_with_digest(tmp_path / "plan.npz", *describe(edited))
    assert find_code(tmp_path / "plan.npz") == (factor != 1)


@pytest.mark.parametrize(("target", "factor"), [("std", 1 + 2**-40), ("moe", 1 + 2**-40)])
def test_target_variances_are_compared_with_targets(
    target: str, factor: float, tmp_path: Path
) -> None:
    """A quantile of the normal distribution is proven, so a larger variance is noticed."""
    workload = fp.Workload(fp.Domain({"x": ["a", "b"]}), [fp.marginal("x", **{target: 3.1})])
    header, arrays = describe(fp.design(workload))
    write_with_digest(
        tmp_path / "plan.npz", header, arrays | {"variances": arrays["variances"] * factor}
    )
    code, lines = checker.find_result(str(tmp_path / "plan.npz"))
    assert (code, lines) == (1, ["NOT PROVEN: a target variance is not that of its target"])


def test_no_weights_prove_more_than_is_true() -> None:
    """The nuclear norm of diag(3, 1) is 4, and of ones it is the root of what they are."""
    exact = [[Fraction(3), Fraction(0)], [Fraction(0), Fraction(1)]]
    assert 4 - Fraction(1, 10**11) < checker.lower_nuclear_norm(exact) <= 4
    ones = [[Fraction(1)] * 8 for _ in range(2)]
    assert 4 - Fraction(1, 10**11) < checker.lower_nuclear_norm(ones) <= 4


def test_it_runs_alone_and_imports_nothing_of_ours(tmp_path: Path) -> None:
    tree = ast.walk(ast.parse(CHECKER.read_text(encoding="utf-8")))
    imports = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {a.name for node in imports if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    path = save(small_plan(), tmp_path)
    command = [sys.executable, "-I", "-S", CHECKER, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plan.npz: proven" in done.stdout
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(path.read_bytes()[:-100])
    done = subprocess.run([*command, damaged], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NOT PROVEN" in done.stdout
    assert done.stderr == ""
