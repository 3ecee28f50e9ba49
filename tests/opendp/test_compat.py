"""What the adapter uses of OpenDP without documentation: a test fails when OpenDP changes it."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import opendp.context
import opendp.domains
import opendp.extras.polars
import opendp.mod
import opendp.prelude as dp
import pytest

import fitplug_opendp
from fitplug_opendp import _compat
from fitplug_opendp.noise_scale import UnscaledMeasurement

pl = pytest.importorskip("polars")

INTEGER = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
NAME = "fitplug_compat_probe"


@pytest.fixture(autouse=True)
def features() -> Iterator[None]:
    enabled = opendp.mod.GLOBAL_FEATURES
    before = set(enabled)
    dp.enable_features("contrib", "honest-but-curious")
    yield
    enabled.clear()
    enabled.update(before)


def make_context(data: Any) -> Any:
    frames = isinstance(data, pl.LazyFrame)
    unit = dp.unit_of(contributions=1) if frames else dp.unit_of(l1=1, U="i64")
    return dp.Context.compositor(data=data, privacy_unit=unit, privacy_loss=dp.loss_of(rho=0.5))


def make_frame_query() -> Any:
    return make_context(pl.LazyFrame({"age": [1, 2]})).query(rho=0.25)


def make_gaussian(scale: float) -> Any:
    return dp.m.make_gaussian(*INTEGER, scale)


def probe_features() -> None:
    dp.disable_features("contrib")
    assert not _compat.is_feature_enabled("contrib")
    dp.enable_features("contrib")
    assert _compat.is_feature_enabled("contrib")


def probe_partial_constructor() -> None:
    def make(domain: Any, metric: Any) -> Any:
        return dp.m.make_gaussian(domain, metric, 2.0)

    made = INTEGER >> _compat.make_partial_constructor(make)
    assert made.map(1) == make_gaussian(2.0).map(1)
    assert type(_compat.make_partial_constructor(make)) is type(dp.m.then_gaussian(2.0))


def probe_empty_frame() -> None:
    domain = dp.lazyframe_domain([dp.series_domain("age", dp.atom_domain(T="i64"))])
    empty = _compat.make_empty_frame(domain)
    assert isinstance(empty, pl.LazyFrame)
    assert dict(empty.collect_schema()) == {"age": pl.Int64}
    assert empty.collect().height == 0


def probe_cast_measure() -> None:
    measurement = make_gaussian(2.0)
    assert _compat.cast_measure(measurement, None, 0.5) is measurement
    assert _compat.cast_measure(measurement, measurement.output_measure, 0.5) is measurement
    zcdp, pure = dp.zero_concentrated_divergence(), dp.max_divergence()
    in_zcdp = _compat.cast_measure(measurement, dp.approximate(zcdp), (0.5, 0.0))
    assert in_zcdp.map(1) == (measurement.map(1), 0.0)
    in_epsilon = _compat.cast_measure(measurement, dp.approximate(pure), (1.0, 1e-7))
    epsilon, delta = in_epsilon.map(1)
    assert epsilon > 0
    assert delta == 1e-7


def probe_register_constructor() -> None:
    def make(input_domain: Any, input_metric: Any, scale: float) -> Any:
        """Make the measurement of this probe."""
        return dp.m.make_laplace(input_domain, input_metric, scale)

    def make_other(input_domain: Any, input_metric: Any, scale: float) -> Any:
        """Make the measurement of another function."""

    for _ in range(2):
        _compat.register_constructor(NAME, make)
    try:
        with pytest.raises(ValueError, match=r"another [a-z]+ 'fitplug_compat_probe'"):
            _compat.register_constructor(NAME, make_other)
        query = make_context(np.array([1, 2])).query(rho=0.25)
        assert getattr(query, NAME)(2.0).resolve().map(1) > 0
    finally:
        del opendp.context.constructors[NAME]


def probe_frame_method() -> None:
    _compat.add_frame_method(NAME, count_steps)
    try:
        _compat.add_frame_method(NAME, count_steps)
        with pytest.raises(ValueError, match=r"another [a-z]+ 'fitplug_compat_probe'"):
            _compat.add_frame_method(NAME, print)
        assert getattr(make_frame_query().filter(pl.col("age") > 1), NAME)(3) == 3
    finally:
        delattr(opendp.extras.polars.LazyFrameQuery, NAME)
    assert not hasattr(pl.LazyFrame, "fitness_for_use")


def count_steps(query: Any, steps: int) -> int:
    """Return the argument, as a method that queries on LazyFrames get."""
    assert type(query) is opendp.extras.polars.LazyFrameQuery
    return steps


def probe_frame_query() -> None:
    query = make_frame_query()
    assert type(query) is opendp.extras.polars.LazyFrameQuery
    inner, plan = _compat.split_frame_query(query)
    assert isinstance(inner, opendp.context.Query)
    assert isinstance(plan, pl.LazyFrame)
    assert plan.collect().height == 0


def probe_query_chain() -> None:
    chain = _compat.get_query_chain(make_context(np.array([1, 2])).query(rho=0.25))
    domain, metric = chain
    assert isinstance(domain, opendp.mod.Domain)
    assert metric == dp.l1_distance(T="i64")
    inner, _ = _compat.split_frame_query(make_frame_query())
    domain, _ = _compat.get_query_chain(inner)
    assert isinstance(domain, opendp.mod.LazyFrameDomain)


def probe_partial_chain() -> None:
    theirs = inspect.signature(opendp.context.PartialChain.fix)
    ours = inspect.signature(UnscaledMeasurement.fix)
    assert list(theirs.parameters) == list(ours.parameters)
    chain = UnscaledMeasurement(make_gaussian)
    # A query holds this after `fitness_for_use`, and `resolve` calls `fix`.
    query = opendp.context.Query(chain, dp.zero_concentrated_divergence(), d_in=1, d_out=0.5)
    measurement = query.resolve()
    assert measurement.param == pytest.approx(1.0)
    assert 0.5 * (1 - 1e-14) <= measurement.map(1) <= 0.5


def remove(owner: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.delattr(owner, name)


def rename_attribute(owner: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Let objects of a class hold an attribute under another name."""

    def change(patch: pytest.MonkeyPatch) -> None:
        real = owner.__init__  # type: ignore[misc]

        def init(self: Any, *args: Any, **keywords: Any) -> None:
            real(self, *args, **keywords)
            held = object.__getattribute__(self, "__dict__")
            held[f"{name}_renamed"] = held.pop(name)

        patch.setattr(owner, "__init__", init)

    return change


def change_fix(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opendp.context.PartialChain, "fix", lambda self, d_in, d_out, measure: None)


USES: dict[str, tuple[Callable[[], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "is_feature_enabled": (probe_features, remove(opendp.mod, "GLOBAL_FEATURES")),
    "make_partial_constructor": (
        probe_partial_constructor,
        remove(opendp.mod, "_PartialConstructor"),
    ),
    "make_empty_frame": (probe_empty_frame, remove(opendp.domains, "_lazyframe_from_domain")),
    "cast_measure": (probe_cast_measure, remove(opendp.context, "_cast_measure")),
    "register_constructor": (probe_register_constructor, remove(opendp.context, "constructors")),
    "add_frame_method": (probe_frame_method, remove(opendp.extras.polars, "LazyFrameQuery")),
    "split_frame_query": (
        probe_frame_query,
        rename_attribute(opendp.extras.polars.LazyFrameQuery, "_query"),
    ),
    "get_query_chain": (probe_query_chain, rename_attribute(opendp.context.Query, "_chain")),
    "noise_scale.UnscaledMeasurement.fix": (probe_partial_chain, change_fix),
}
"""For each use: a probe that OpenDP has what is used, and a change that the probe must notice."""


@contextmanager
def name_the_use(function: str) -> Iterator[None]:
    where = f"fitplug_opendp.{function}" if "." in function else f"_compat.{function}"
    try:
        yield
    except Exception as error:
        pytest.fail(f"OpenDP changed what {where} uses: {type(error).__name__}: {error}")


@pytest.mark.parametrize("function", USES)
def test_opendp_has_what_is_used_without_documentation(function: str) -> None:
    with name_the_use(function):
        USES[function][0]()


@pytest.mark.parametrize("function", USES)
def test_a_change_of_opendp_is_noticed(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    probe, change = USES[function]
    said = f"OpenDP changed what .*{function} uses"
    with monkeypatch.context() as patch:
        change(patch)
        with pytest.raises(pytest.fail.Exception, match=said), name_the_use(function):
            probe()


def test_every_function_of_compat_has_a_probe() -> None:
    functions = {
        name
        for name, value in vars(_compat).items()
        if inspect.isfunction(value) and value.__module__ == _compat.__name__
    }
    assert functions - {"import_opendp", "enable_contrib"} == {
        name for name in USES if "." not in name
    }


ADAPTERS = Path(fitplug_opendp.__file__).parents[1]
MODULES = [
    path
    for package in (
        "fitplug_cli",
        "fitplug_dask",
        "fitplug_explore",
        "fitplug_export",
        "fitplug_opendp",
    )
    for path in (ADAPTERS / package).rglob("*.py")
    if path.name != "_compat.py"
]
OF_QUERIES = {name for name in opendp.context.Query.__annotations__ if name.startswith("_")}


def test_only_compat_touches_what_opendp_does_not_document() -> None:
    for path in MODULES:
        check_module(path)


def check_module(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                check_documented(alias.name, [])
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            check_documented(node.module, [alias.name for alias in node.names])
        elif isinstance(node, ast.Attribute) and path.parent.name == "fitplug_opendp":
            assert node.attr not in OF_QUERIES, f"{path.name}: use _compat.get_query_chain"


def check_documented(module: str, names: list[str]) -> None:
    """Assert that a module of OpenDP, and names imported from it, are not private."""
    if module.partition(".")[0] != "opendp":
        return
    advice = "is not documented by OpenDP; use it in fitplug_opendp/_compat.py alone"
    assert not any(name.startswith("_") for name in module.split(".")), f"{module} {advice}"
    public = getattr(importlib.import_module(module), "__all__", names)
    for name in names:
        assert name in public, f"{module}.{name} {advice}"
        assert not name.startswith("_"), f"{module}.{name} {advice}"
