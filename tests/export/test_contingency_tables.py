"""A plan as the algorithm of OpenDP's contingency tables: its accuracy, charged once by OpenDP."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_export as fpe
from tests.helpers.opendp_spaces import features  # noqa: F401

pl = pytest.importorskip("polars")

HAS_MBI = importlib.util.find_spec("mbi") is not None and version("mbi").startswith("1.1.")
needs_mbi = pytest.mark.skipif(not HAS_MBI, reason="OpenDP's mbi is not installed")

SEX, AGE = fp.Categories(["1", "2"], other="?"), fp.Integers(0, 3, other="older")
DOMAIN = fp.Domain({"sex": SEX, "age": AGE})
PYRAMID = fp.queries({"sex": "identity", "age": "prefix"}, std=3.0, name="pyramid")
GROUPS = [PYRAMID, fp.marginal("sex", std=4.0, name="sexes"), fp.total(std=4.0)]


def make_algorithm(
    *groups: Any, domain: fp.Domain = DOMAIN, unit: Any = None, **options: Any
) -> Any:
    plan = fp.design(fp.Workload(domain, list(groups or GROUPS)), unit=unit or fp.AddRemove())
    return fpe.FitnessForUse(plan=plan, **options)


def draw_people() -> Any:
    """600 people, some of whom have no value, or one that the plan does not name."""
    rng = np.random.default_rng(0)
    sexes = rng.choice(["1", "2", "3", None], 600, p=[0.5, 0.4, 0.05, 0.05])
    return pl.DataFrame({"sex": sexes, "age": rng.integers(0, 6, 600)})


def make_context(contributions: int = 1, **loss: float) -> Any:
    return dp.Context.compositor(
        data=draw_people().lazy(),
        privacy_unit=dp.unit_of(contributions=contributions),
        privacy_loss=dp.loss_of(**loss),
    )


@needs_mbi
@pytest.mark.slow
@pytest.mark.parametrize("records", [1, 2])
def test_a_table_has_the_accuracy_of_the_plan_and_is_charged_once(
    records: int,
    features: None,  # noqa: F811
) -> None:
    algorithm = make_algorithm(unit=fp.AddRemove(records=records))
    rho = algorithm.plan.rho
    context = make_context(records, rho=2.5 * rho)
    query = context.query(rho=rho).contingency_table(keys=algorithm.keys, algorithm=algorithm)
    table = query.release()
    assert context.current_privacy_loss() == rho
    release = table.marginals.release
    assert 1 <= release.noise_scale < 1 + 1e-9
    assert release.rho <= rho
    # Null and other values are in the last cell, as counts by hand are.
    people = draw_people()
    known = people["sex"].fill_null("?").replace("3", "?")
    exact = [int((known == value).sum()) for value in ("1", "2", "?")]
    assert (np.abs(release.estimates["sexes"] - exact) < 8 * 4.0).all()
    # The model fits the release: where no count is negative, as well as its own noise.
    model = np.asarray(table.project("sex"))
    assert (np.abs(model - release.estimates["sexes"]) < 4.0).all()
    with pytest.raises(dp.OpenDPException, match=r"insufficient|exceed"):
        context.query(rho=2 * rho).contingency_table(
            keys=algorithm.keys, algorithm=algorithm
        ).release()


@needs_mbi
@pytest.mark.slow
def test_another_rho_scales_the_noise_and_synthetic_rows_have_the_values(
    features: None,  # noqa: F811
) -> None:
    pytest.importorskip("pandas")
    algorithm = make_algorithm()
    context = make_context(rho=1.0)
    query = context.query(rho=algorithm.plan.rho / 4)
    table = query.contingency_table(keys=algorithm.keys, algorithm=algorithm).release()
    assert table.marginals.release.noise_scale == pytest.approx(2.0, rel=1e-9)
    rows = table.synthesize()
    assert set(rows["sex"].unique()) <= {"1", "2", None}
    assert rows.height == pytest.approx(600, abs=100)


@needs_mbi
@pytest.mark.slow
def test_keys_of_other_values_are_refused_before_anything_is_charged(
    features: None,  # noqa: F811
) -> None:
    algorithm = make_algorithm()
    context = make_context(rho=1.0)
    keys = algorithm.keys | {"age": [0, 1]}
    query = context.query(rho=0.1).contingency_table(keys=keys, algorithm=algorithm)
    with pytest.raises(dp.OpenDPException, match="its values differ from the plan's"):
        query.release()


def test_the_keys_are_the_values_without_other() -> None:
    assert make_algorithm().keys == {"sex": ["1", "2"], "age": [0, 1, 2, 3]}


REFUSED: dict[str, tuple[Any, str]] = {
    "no other": (lambda: make_algorithm(domain=fp.Domain({"sex": SEX, "age": fp.Integers(0, 3)})),
                 "'age' must be Integers or Categories with other="),
    "replaced": (lambda: make_algorithm(unit=fp.ReplaceOne()), "not support the unit of privacy"),
    "no total": (lambda: make_algorithm(fp.queries({"age": fp.ranges([(0, 1)])}, std=2.0)),
                 "need the number of all rows"),
    "no table": (lambda: make_algorithm(fp.total(std=2.0)), "the plan only counts all rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_plans_that_have_no_contingency_table_are_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(fp.WorkloadError, match=message):
        make()


def test_other_marginals_of_each_column_are_refused() -> None:
    with pytest.raises(ValueError, match="Remove oneway="):
        make_algorithm(oneway="all")
