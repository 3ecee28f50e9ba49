"""Plans of every shape that a plan can have, small and large, for tests of every way to release.

Each has rows, and the true answers from a count of these rows by NumPy alone.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.blocks.shape import pairs as pair_blocks

ROWS = 600
TARGET = 1.0
"""The variance that is asked of every answer."""
STDS = 6
"""An estimate lies within so many standard deviations of the truth."""


@dataclass(frozen=True)
class Shape:
    """A plan of one shape, and rows that are released with it.

    Attributes:
        make: Makes the workload.
        structure: The name of the structure of its plan.
        keywords: Arguments of `fitplug.design`.
        limits: Constants that are lower while the plan is made, so that few cells count as many.
        periods: The attribute whose cells are periods, if the plan can be drawn by them.
    """

    make: Callable[[], fp.Workload]
    structure: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[tuple[Any, str, int], ...] = ()
    periods: str | None = None

    @functools.cached_property
    def plan(self) -> fp.Plan:
        with pytest.MonkeyPatch.context() as patch:
            for module, name, value in self.limits:
                patch.setattr(module, name, value)
            plan = fp.design(self.make(), tolerance=0.05, **self.keywords)
        assert type(plan.strategy.structure).__name__ == self.structure
        return plan

    @functools.cached_property
    def codes(self) -> dict[str, np.ndarray]:
        """The cell of each row on each attribute; of a measure the value."""
        rng = np.random.default_rng(len(self.plan.digest))
        domain = self.plan.domain
        return {
            name: rng.integers(int(domain[name].low), int(domain[name].high) + 1, ROWS)
            if isinstance(domain[name], fp.Measure)
            else rng.integers(0, domain[name].size, ROWS)
            for name in domain
        }

    @functools.cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The values of the rows by column, with a person for each row, also by two columns."""
        domain = self.plan.domain
        return {
            **{name: [_name_value(domain[name], int(code)) for code in codes]
               for name, codes in self.codes.items()},
            "person": [f"p{i}" for i in range(ROWS)],
            "household": [i // 3 for i in range(ROWS)],
            "line": [f"{i % 3}" for i in range(ROWS)],
        }  # fmt: skip

    @functools.cached_property
    def tables(self) -> fp.Tables:
        return fp.Tables.from_records(self.plan.domain, self.columns, self.plan.tables)

    @functools.cached_property
    def truth(self) -> dict[str, np.ndarray]:
        """The true answers of each group."""
        return {group.name: self._answer(group) for group in self.plan.workload.groups}

    def _answer(self, group: Any) -> np.ndarray:
        """Answer a group from counts of the rows over the attributes that it uses."""
        domain = self.plan.domain
        factors = [factor for factor in group.factors if factor.kind != "total"]
        names = [factor.attribute for factor in factors]
        counts = np.zeros([domain[name].size for name in names])
        for row in range(ROWS):
            parts = [_divide(domain[name], int(self.codes[name][row])) for name in names]
            for corner in itertools.product(*parts):
                counts[tuple(cell for cell, _ in corner)] += np.prod([part for _, part in corner])
        for axis, factor in enumerate(factors):
            counts = _apply(factor, counts, axis)
        return counts.reshape(group.shape)

    def check(self, released: Any) -> None:
        """Check that estimates are the truth, within the noise that is claimed."""
        for name, truth in self.truth.items():
            variances, errors = released.variances[name], abs(released.estimates[name] - truth)
            assert (variances <= TARGET).all(), name
            # Public totals have no noise, and estimates of them are rounded.
            assert (errors <= STDS * np.sqrt(variances) + 1e-9 * ROWS).all(), name

    def check_power(self) -> None:
        """Check that `check` fails for estimates of nothing, and of half of the rows."""
        most = max(float(np.abs(truth).max()) for truth in self.truth.values())
        assert most / 2 > 2 * STDS * np.sqrt(TARGET)


def _name_value(attribute: Any, code: int) -> Any:
    """Return a value of a cell; of a measure the value itself."""
    if isinstance(attribute, fp.Measure):
        return code
    label = attribute.labels[code]
    return int(label) if isinstance(attribute, fp.Integers) else label


def _divide(attribute: Any, code: int) -> list[tuple[int, float]]:
    """List the cells of a record and its part in each."""
    if not isinstance(attribute, fp.Measure):
        return [(code, 1.0)]
    high = (code - attribute.low) / (attribute.high - attribute.low)
    return [(0, 1 - high), (1, high)]


def _apply(factor: Any, counts: np.ndarray, axis: int) -> np.ndarray:
    """Answer the queries of one attribute."""
    if factor.kind == "identity":
        return counts
    if factor.kind == "prefix":
        return counts.cumsum(axis)
    return np.moveaxis(np.tensordot(factor.matrix(), counts, (1, axis)), 0, axis)


def _ask(domain: Mapping[str, Any], *groups: Any) -> Callable[[], fp.Workload]:
    return lambda: fp.Workload(fp.Domain(domain), list(groups))


def _total(**keywords: Any) -> Any:
    return fp.total(variance=TARGET, **keywords)


def _query(name: str = "", **asked: Any) -> Any:
    return fp.queries(asked, variance=TARGET, **({"name": name} if name else {}))


A, B = ["1", "2", "3"], fp.Integers(0, 3)
PLACE = fp.Hierarchy(
    ["state", "county", "tract"],
    [(f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
     for s, counties in enumerate([[4, 1], [2]]) for c, n in enumerate(counties)
     for t in range(n)],
)  # fmt: skip
ONE_LEAF = fp.Hierarchy(["state", "tract"], [("s", "t")])
PATH = fp.Hierarchy(["state", "tract"], [("s", "t1"), ("s", "t2")])
MONTH = fp.Integers(1, 3)
MEASURE = fp.Measure(0, 10)

_TREE = ((analysis, "MOST_CELLS", 0),)
_FAMILY = ((analysis, "MOST_CELLS", 4),)
_CHAIN = ((analysis, "LEAST_CHAIN", 1),)
_PAIRS = ((pair_blocks, "MOST_PAIR_CELLS", 0),)


SMALL: dict[str, Shape] = {
    "one cell": Shape(_ask({"a": ["1"]}, _query(a="identity")), "MatrixStructure"),
    "total of one cell": Shape(_ask({"a": ["1"]}, _total()), "MatrixStructure"),
    "total alone": Shape(_ask({"a": A, "b": B}, _total()), "MatrixStructure"),
    "one query": Shape(
        _ask({"b": B}, _query(b=fp.ranges([(1, 2)]))), "MatrixStructure", periods="b"
    ),
    "one attribute": Shape(_ask({"a": A}, _query(a="identity")), "MatrixStructure"),
    "an attribute without queries": Shape(
        _ask({"a": A, "b": B}, _query(b="prefix")), "MatrixStructure"
    ),
    "groups of one row": Shape(
        _ask(
            {"a": A, "b": B},
            *(_query(f"q{i}", b=fp.ranges([(0, i)])) for i in range(4)),
            *(_query(f"r{i}", a=np.eye(3)[[i]]) for i in range(3)),
        ),
        "MatrixStructure",
    ),
    "one leaf": Shape(
        _ask({"p": ONE_LEAF}, _query("t", p="tract"), _query("s", p="state")), "MatrixStructure"
    ),
    "one path": Shape(
        _ask({"p": PATH}, _query("t", p="tract"), _query("s", p="state")), "MatrixStructure"
    ),
    "total of a hierarchy": Shape(_ask({"p": PLACE}, _total()), "MatrixStructure"),
    "chain of one": Shape(
        _ask({"x": fp.Integers(0, 0)}, _query(x="prefix")), "ChainStructure", limits=_CHAIN
    ),
    "chain of two": Shape(
        _ask({"x": fp.Integers(0, 1)}, _query(x="prefix")), "ChainStructure", limits=_CHAIN
    ),
    "measure": Shape(_ask({"m": MEASURE}, _query(m="sum")), "MatrixStructure"),
    "total of a measure": Shape(_ask({"m": MEASURE}, _total()), "MatrixStructure"),
    "measure by cell": Shape(
        _ask({"m": MEASURE, "a": A}, _query(m="sum", a="identity"), _total()), "MatrixStructure"
    ),
    "two measures": Shape(
        _ask({"m": MEASURE, "n": fp.Measure(0, 5)}, _query("mn", m="sum", n="sum"), _total()),
        "MatrixStructure",
    ),
}
"""Plans of one cell, one answer, one level or one measure."""

_TREE_TABLES = (
    {"p": PLACE, "a": A},
    _query("t", p="tract", a="identity"),
    _query("s", p="state"),
    _total(),
)

STRUCTURES: dict[str, Shape] = {
    "matrix": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="prefix"), _total()), "MatrixStructure"
    ),
    "scalar": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="identity"), _total()), "MatrixStructure"
    ),
    "product": Shape(
        _ask({"a": B, "b": B}, _query("ab", a="prefix", b="prefix"), _total()),
        "ProductStructure",
        limits=_FAMILY,
    ),
    "product with grades": Shape(
        _ask(
            {"a": B, "b": B},
            _query("ab", a="prefix", b="prefix"),
            _query("sums", a=fp.ranges([(0, 1)])),
            _total(),
        ),
        "ProductStructure",
        limits=_FAMILY,
    ),
    "tree": Shape(
        _ask(*_TREE_TABLES),
        "TreeStructure",
        limits=_TREE,
    ),
    "siblings": Shape(
        _ask(
            {"p": PLACE, "q": PLACE},
            _query("home", p="tract", q="state"),
            _query("work", p="state", q="tract"),
        ),
        "SiblingStructure",
        limits=_FAMILY,
    ),
    "tree of one path": Shape(
        _ask({"p": PATH, "b": B}, _query("t", p="tract", b="prefix"), _total()),
        "MatrixStructure",
    ),
    "chain": Shape(
        _ask({"x": fp.Integers(0, 9), "a": A}, _query(x="prefix", a="identity")),
        "ChainStructure",
        limits=_CHAIN,
    ),
    "chain of pairs": Shape(
        _ask({"x": fp.Integers(0, 9), "a": A}, _query(x="prefix", a="identity"), _total()),
        "ChainPairStructure",
        {"unit": fp.ReplaceOne()},
        limits=((pair_blocks, "MOST_PAIR_CELLS", 1),),
    ),
    "chain of pairs within": Shape(
        _ask(
            {"x": fp.Integers(0, 9), "a": A}, _query(x="prefix", a="identity"), _query(a="identity")
        ),
        "ChainPairStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
        limits=((pair_blocks, "MOST_PAIR_CELLS", 1),),
    ),
    "records": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="prefix")),
        "MatrixStructure",
        {"unit": fp.AddRemove(records=3)},
    ),
    "total of records": Shape(
        _ask({"a": A}, _total()), "MatrixStructure", {"unit": fp.AddRemove(records=3)}
    ),
    "distinct": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="prefix")),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, distinct=True)},
    ),
    "once per": Shape(
        _ask({"a": A, "month": MONTH}, _query("months", a="identity", month="identity"), _total()),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
    ),
    "one month once per": Shape(
        _ask({"a": A, "month": fp.Integers(1, 1)}, _query(a="identity", month="identity")),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
    ),
    "one cell distinct": Shape(
        _ask({"a": ["1"]}, _query(a="identity")),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, distinct=True)},
    ),
    "measure once per": Shape(
        _ask({"month": MONTH, "m": MEASURE}, _query(month="identity", m="sum")),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
    ),
    "person chain": Shape(
        _ask(
            {"x": fp.Integers(0, 4), "month": MONTH},
            _query("months", x="prefix", month="identity"),
            _query("all", x="prefix"),
        ),
        "ChainPersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
        limits=((analysis, "MOST_CELLS", 1),),
    ),
    "person product": Shape(
        _ask(
            {"x": fp.Integers(0, 4), "y": fp.Integers(0, 2), "month": MONTH},
            _query("months", x="prefix", y="prefix", month="identity"),
            _query("all", x="prefix"),
        ),
        "ProductPersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
        limits=((analysis, "MOST_CELLS", 1),),
    ),
    "person tree": Shape(
        _ask(
            {"p": PLACE, "month": MONTH},
            _query("t", p="tract", month="identity"),
            _query("s", p="state", month="identity"),
        ),
        "PersonTreeStructure",
        {"unit": fp.AddRemove(records=2, once_per="month")},
        limits=_TREE,
    ),
    "measure in a tree": Shape(
        _ask({"p": PLACE, "m": MEASURE}, _query("s", p="tract"), _query("m", m="sum", p="county")),
        "TreeStructure",
        limits=_TREE,
    ),
    "measure of pairs": Shape(
        _ask({"m": MEASURE}, _query(m="sum"), _total()), "PairStructure", {"unit": fp.ReplaceOne()}
    ),
    "pairs": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="prefix")),
        "PairStructure",
        {"unit": fp.ReplaceOne()},
    ),
    "total of pairs": Shape(
        _ask({"a": A}, _query(a="identity"), _total()),
        "MoveStructure",
        {"unit": fp.ReplaceOne()},
    ),
    "pairs within": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="prefix")),
        "PairStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
    ),
    "pairs within ages": Shape(
        _ask({"a": A, "b": B}, _query("ab", a="identity", b="prefix"), _query(a="identity")),
        "PairStructure",
        {"unit": fp.ReplaceOne(within=("b",))},
    ),
    "pairs over blocks": Shape(
        _ask(
            {"a": A, "b": B, "c": ["1", "2"]},
            _query("ab", a="identity", b="prefix"),
            _query("ac", a="identity", c="identity"),
            _query("b", b="identity"),
            _total(),
        ),
        "PairStructure",
        {"unit": fp.ReplaceOne()},
    ),
    "pairs over blocks within": Shape(
        _ask(
            {"a": A, "b": B, "c": ["1", "2"]},
            _query("ab", a="identity", b="prefix"),
            _query("ac", a="identity", c="identity"),
            _query("b", b="identity"),
            _total(),
        ),
        "PairStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
    ),
    "symmetric pairs": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="identity")),
        "MoveStructure",
        {"unit": fp.ReplaceOne()},
    ),
    "symmetric pairs within": Shape(
        _ask({"a": A, "b": B}, _query(a="identity", b="identity")),
        "MoveStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
    ),
    "split pairs": Shape(
        _ask({"a": B, "b": B}, _query("ab", a="prefix", b="prefix"), _total()),
        "ProductPairStructure",
        {"unit": fp.ReplaceOne()},
        limits=_PAIRS,
    ),
    "split pairs within": Shape(
        _ask({"a": B, "b": B}, _query("ab", a="prefix", b="prefix"), _total()),
        "ProductPairStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
        limits=_PAIRS,
    ),
    "moves": Shape(
        _ask(
            {f"x{i}": ["1", "2"] for i in range(16)},
            *(_query(**{f"x{i}": "identity"}) for i in range(16)),
        ),
        "MoveStructure",
        {"unit": fp.ReplaceOne()},
    ),
    "tree pairs": Shape(
        _ask(*_TREE_TABLES),
        "TreePairStructure",
        {"unit": fp.ReplaceOne()},
        limits=_PAIRS,
    ),
    "tree pairs within": Shape(
        _ask(*_TREE_TABLES),
        "TreePairStructure",
        {"unit": fp.ReplaceOne(within=("a",))},
        limits=_PAIRS,
    ),
    "periods": Shape(
        _ask(
            {"a": A, "month": MONTH},
            _query("months", a="identity", month="identity"),
            _query("so far", month="prefix"),
        ),
        "MatrixStructure",
        {"periods": "month"},
        periods="month",
    ),
    "periods alone": Shape(
        _ask({"month": MONTH}, _query(month="identity")),
        "MatrixStructure",
        {"periods": "month"},
        periods="month",
    ),
    "periods once per": Shape(
        _ask({"month": MONTH, "a": A}, _query(month="identity", a="identity"), _total()),
        "PersonStructure",
        {"unit": fp.AddRemove(records=2, once_per="month"), "periods": "month"},
        periods="month",
    ),
    "measure by period": Shape(
        _ask({"month": MONTH, "m": MEASURE}, _query(month="identity", m="sum")),
        "MatrixStructure",
        {"periods": "month"},
        periods="month",
    ),
    "total of periods": Shape(
        _ask({"month": MONTH}, _total(), _query(month="identity")),
        "MatrixStructure",
        {"periods": "month"},
        periods="month",
    ),
}
"""Plans of every structure and unit of privacy."""

SHAPES = SMALL | STRUCTURES


def write_spec(shape: Shape, rows: Path, parts: bool) -> str:
    """Write the spec file by which the command releases a shape, whose queries have names."""
    workload = shape.make()
    lines = ["[data]", f"path = {json.dumps(str(rows))}", "[domain]"]
    lines += [f"{name} = {_write_toml(spec)}" for name, spec in workload.domain.spec().items()]
    for group in workload.groups:
        asked = {factor.attribute: factor.kind for factor in group.factors}
        lines += ["[[query]]", f"name = {json.dumps(group.name)}", f"variance = {TARGET}"]
        lines += [f"{name} = {json.dumps(kind)}" for name, kind in asked.items()]
    unit = shape.keywords.get("unit", fp.AddRemove())
    lines += ["[privacy]", f"unit = {_write_toml(unit.to_spec())}"]
    lines += ["[ledger]", 'path = "budget.db"', "rho = 1e6"]
    return "\n".join([*lines, "[output]", 'path = "out"', f"parts = {json.dumps(parts)}", ""])


def _write_toml(value: Any) -> str:
    """Write a value of a spec as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_write_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)
