"""Examples in public docstrings: every function and class has one, and those with >>> run."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
from types import ModuleType

import numpy as np
import polars
import pytest

import fitplug as fp
from fitplug import testing

PUBLIC = (
    {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
    | {
        name: getattr(fp, name)
        for name in fp.__all__
        if not isinstance(getattr(fp, name), ModuleType)
        and not (inspect.isclass(getattr(fp, name)) and issubclass(getattr(fp, name), Exception))
    }
    | {
        f"baselines.{name}": function
        for name, function in vars(fp.baselines).items()
        if inspect.isfunction(function) and function.__module__ == fp.baselines.__name__
        if not name.startswith("_")
    }
)

METHODS = {
    f"{name}.{attribute}": method
    for name, one in PUBLIC.items()
    if inspect.isclass(one)
    for attribute in dir(one)
    if not attribute.startswith("_")
    for method in [inspect.getattr_static(one, attribute)]
    if ">>>" in (inspect.getdoc(method) or "")
}


RUN = [
    name
    for name, one in (PUBLIC | METHODS).items()
    if ">>>" in (one.__doc__ or "") and "doctest: +SKIP" not in one.__doc__
]


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    """What examples may use without making it, and cannot change."""
    domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 3)})
    workload = fp.Workload(domain, [fp.marginal("sex", "age", std=5.0), fp.total(std=5.0)])
    plan = fp.design(workload, unit=fp.AddRemove())
    tables = fp.Tables(domain, {("sex", "age"): np.full((2, 4), 1000)})
    made = {"domain": domain, "workload": workload, "plan": plan, "tables": tables}
    made["release"] = fp.release(plan, tables)
    return made | {"fp": fp, "np": np, "fitplug": fp, "polars": polars}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert ">>>" in text or "    fp." in text or "= fp." in text, text


@pytest.mark.parametrize("name", RUN)
def test_examples_run(name, made, tmp_path):
    text = inspect.getdoc((PUBLIC | METHODS)[name])
    ledger = fp.Ledger(tmp_path / "ledger.db", rho=1.0)
    names = made | {"ledger": ledger, "folder": tmp_path}
    if name == "Ledger.entries":
        ledger.charge(0.1, what="pilot")
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            example, out=shown.write
        )
    assert tried
    assert not failed, shown.getvalue()
