"""Frames where a user would try them: queries on LazyFrames work, the rest says what to write."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug_opendp import _compat
from tests.helpers.opendp_spaces import COUNTS, EXACT, PLAN, RECORDS, features  # noqa: F401

pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def registered():
    fpo.register()


def context(loss, **given):
    return dp.Context.compositor(
        data=pl.LazyFrame(RECORDS),
        privacy_unit=dp.unit_of(contributions=2),
        privacy_loss=loss,
        **given,
    )


@pytest.mark.slow
def test_a_query_on_a_lazyframe_spends_what_it_was_given():
    data = context(dp.loss_of(rho=1e12))
    measurement = data.query(rho=0.1).fitness_for_use(PLAN).resolve()
    assert 0.1 * (1 - 1e-14) <= measurement.map(2) <= 0.1
    fpo.preflight(data, measurement)
    assert data(measurement).plan is PLAN
    exact = data.query(rho=float(8 * EXACT.rho)).fitness_for_use(EXACT).release()
    np.testing.assert_allclose(exact.estimates["both"].ravel(), COUNTS, atol=1e-3)
    assert data.query(rho=0.1).select(dp.len(signed=True)).resolve() is not None


@pytest.mark.long
def test_of_stable_steps_shares_and_a_scale_that_is_given():
    steps = context(dp.loss_of(rho=0.5)).query(rho=0.5).filter(pl.col("age") < 18)
    assert isinstance(steps.fitness_for_use(PLAN).release(), fp.Release)
    shares = context(dp.loss_of(epsilon=1.0, delta=1e-6), split_evenly_over=2)
    assert isinstance(shares.query().fitness_for_use(PLAN).release(), fp.Release)
    kept = context(dp.loss_of(rho=50.0)).query(rho=50.0).fitness_for_use(PLAN, scale=2.0)
    assert kept.resolve().map(2) == pytest.approx(PLAN.rho, rel=1e-14)


def test_what_opendp_holds_is_as_expected():
    """If OpenDP changes what `_compat` reads and adds to, this says so."""
    from opendp.context import Query
    from opendp.extras.polars import LazyFrameQuery

    query = context(dp.loss_of(rho=0.5)).query(rho=0.5)
    assert type(query) is LazyFrameQuery
    inner, plan = _compat.split_frame_query(query)
    assert isinstance(inner, Query)
    assert isinstance(plan, pl.LazyFrame)
    assert len(inner._chain) == 2
    assert not hasattr(pl.LazyFrame, "fitness_for_use")


def test_a_method_of_another_is_kept(monkeypatch):
    from opendp.extras.polars import LazyFrameQuery

    monkeypatch.setattr(LazyFrameQuery, "fitness_for_use", print)
    with pytest.raises(ValueError, match="another method 'fitness_for_use'"):
        fpo.register()
    assert LazyFrameQuery.fitness_for_use is print


SECRET = "Zebedee"
FRAMES = {
    "pandas DataFrame": lambda: pd.DataFrame({"sex": [SECRET], "age": [3]}),
    "polars DataFrame": lambda: pl.DataFrame({"sex": [SECRET], "age": [3]}),
    "polars LazyFrame": lambda: pl.LazyFrame({"sex": [SECRET], "age": [3]}),
    "pyarrow Table": lambda: pa.table({"sex": [SECRET], "age": [3]}),
    "dict": lambda: {"sex": [SECRET], "age": [3]},
    "str": lambda: f"/data/{SECRET}.parquet",
    "list": lambda: [{"sex": SECRET}],
}
WRITE = {"str": "fitplug.count", "polars LazyFrame": r"from_records.*frame\.collect\(\)"}


def says(error, kind):
    text = str(error.value)
    assert SECRET not in text
    assert kind in text
    return text


@pytest.mark.parametrize("kind", FRAMES)
def test_what_is_no_tables_says_what_to_write(kind):
    frame = FRAMES[kind]()
    write = WRITE.get(kind, "fitplug.Tables.from_records")
    if kind in ("dict", "list"):  # the others are data that are counted
        with pytest.raises(fp.DataError, match="the data must be") as caught:
            fp.release(PLAN, frame)
        assert SECRET not in str(caught.value)
    metric = dp.symmetric_distance()
    with pytest.raises(ValueError, match=r"tables_domain\(plan\)") as caught:
        fpo.make_fitness_for_use(frame, metric, PLAN)
    says(caught, kind)
    with pytest.raises(ValueError, match=r"tables_domain\(plan\)") as caught:
        fpo.make_tables(frame, metric, PLAN)
    says(caught, kind)
    space = dp.vector_domain(dp.atom_domain(T="i64")), frame
    with pytest.raises(ValueError, match="metric") as caught:
        fpo.make_fitness_for_use(*space, PLAN)
    says(caught, kind)
    measurement = (fpo.tables_domain(PLAN), metric) >> fpo.then_fitness_for_use(PLAN)
    with pytest.raises(dp.OpenDPException, match=write) as caught:
        measurement(frame)
    assert SECRET not in str(caught.value)


def test_records_of_a_lazyframe():
    with pytest.raises(fp.DataError, match=r"collect\(\)"):
        fp.Tables.from_records(PLAN.domain, FRAMES["polars LazyFrame"](), PLAN.tables)
