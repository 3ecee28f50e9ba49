"""A program in which int64 is not NumPy's default integer, as in a browser.

In a browser, Python has addresses of 32 bits, and NumPy's default integer and the type of positions
have 32 bits, too. NumPy then refuses int64 in the place of positions, and an array that is made
without a type is no array of int64. On Linux and macOS, NumPy has two types of 64 bits: that of
C's long, which is the default, and that of long long. Here `np.int64` is the latter, and what
NumPy would refuse in a browser is refused. NumPy's own rules say which type a result has.

The program designs and verifies plans, and prints the arrays of plan files that are not int64.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def _refuse_int64(numbers: Any) -> None:
    caller = sys._getframe(2).f_globals["__name__"]
    if caller.startswith("fitplug") and np.asarray(numbers).dtype.char == "q":
        raise TypeError("int64 is given where 32 bits are needed; convert it by to_positions")


class _Ufunc:
    """A ufunc whose `reduceat` refuses int64."""

    def __init__(self, ufunc: Any) -> None:
        self._ufunc = ufunc

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ufunc(*args, **kwargs)

    def reduceat(self, array: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_int64(indices)
        return self._ufunc.reduceat(array, indices, *args, **kwargs)


def _wrap(function: Any, position: int) -> Any:
    """Let a function refuse int64 as one of its arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _refuse_int64(args[position])
        return function(*args, **kwargs)

    return call


np.int64 = np.longlong  # type: ignore[misc]
for _name in ("add", "multiply", "maximum", "minimum"):
    setattr(np, _name, _Ufunc(getattr(np, _name)))
np.repeat, np.take, np.bincount = _wrap(np.repeat, 1), _wrap(np.take, 1), _wrap(np.bincount, 0)

import fitplug as fp  # noqa: E402
from fitplug.plan.plan_file import describe_plan  # noqa: E402


def _ask_tree() -> fp.Workload:
    """Counts in a tree with a level whose names are not unique."""
    rows = [(f"s{i}", f"c{j // 90}", f"t{i}-{j}") for i in range(4) for j in range(1500 + i)]
    tree = fp.Hierarchy(["state", "county", "tract"], rows)
    domain = fp.Domain({"C": tree, "A": fp.Integers(0, 99)})
    return fp.Workload(
        domain,
        [
            fp.total(std=5.0),
            fp.queries({"C": "state"}, std=8.0, name="s"),
            fp.queries({"C": "county", "A": "identity"}, std=20.0, name="c"),
            fp.queries({"C": "tract"}, std=30.0, name="t"),
        ],
    )


def _ask_ages() -> fp.Workload:
    domain = fp.Domain({"S": ["1", "2"], "A": fp.Integers(0, 95)})
    adults = fp.queries({"A": fp.ranges([(18, 95)])}, moe=12.0, confidence=0.90, name="adults")
    pyramid = fp.queries({"S": "identity", "A": "prefix"}, std=12.0, name="pyramid")
    return fp.Workload(domain, [pyramid, adults, fp.total(std=5.0)])


def _ask_marginals(*sizes: int) -> fp.Workload:
    domain = fp.Domain({f"A{i}": fp.Integers(1, n) for i, n in enumerate(sizes)})
    both = [fp.marginal("A0", "A1", std=4.0)] if len(sizes) > 2 else []
    return fp.Workload(
        domain, [*both, *(fp.marginal(a, std=3.0 + i) for i, a in enumerate(domain.names))]
    )


def _ask_prefixes(n: int) -> fp.Workload:
    asked = [fp.queries({"A": "prefix"}, std=5.0), fp.total(std=2.0)]
    return fp.Workload(fp.Domain({"A": fp.Integers(0, n - 1)}), asked)


def _ask_rectangles(m: int, n: int) -> fp.Workload:
    """Queries over so many cells that the covariance of each attribute is found by itself."""
    domain = fp.Domain({"A": fp.Integers(1, m), "B": fp.Integers(1, n)})
    return fp.Workload(domain, [fp.queries({"A": "prefix", "B": "prefix"}, std=5.0, name="both")])


def _ask_apart() -> fp.Workload:
    """Queries that share no cell, so that components have tiers of their own."""
    asked = [fp.queries({"A": fp.ranges([(0, 4), (2, 3)])}, std=2.0, name="low")]
    asked.append(fp.queries({"A": fp.ranges([(5, 9), (6, 8)])}, std=5.0, name="high"))
    return fp.Workload(fp.Domain({"A": fp.Integers(0, 9)}), asked)


def _ask_incomes() -> fp.Workload:
    domain = fp.Domain({"S": ["1", "2"], "P": fp.Measure(0, 200_000, unit=100)})
    sums = fp.queries({"S": "identity", "P": "sum"}, std=2e6)
    return fp.Workload(domain, [sums, fp.marginal("S", std=10.0)])


PLANS: dict[str, tuple[fp.Workload, dict[str, Any]]] = {
    "ages": (_ask_ages(), {}),
    "tree": (_ask_tree(), {}),
    "tree, replaced": (_ask_tree(), {"unit": fp.ReplaceOne()}),
    "marginals": (_ask_marginals(50, 10), {}),
    "marginals, replaced": (_ask_marginals(50, 10), {"unit": fp.ReplaceOne()}),
    "marginals, replaced within": (_ask_marginals(50, 10), {"unit": fp.ReplaceOne(within=("A0",))}),
    "marginals of many": (_ask_marginals(50, 50, *[9] * 16), {}),
    "once per period": (
        _ask_marginals(5, 4),
        {"unit": fp.AddRemove(records=5, once_per="A0")},
    ),
    "distinct": (_ask_marginals(4, 3), {"unit": fp.AddRemove(records=3, distinct=True)}),
    "marginals of many, replaced": (
        _ask_marginals(50, 50, *[9] * 16),
        {"unit": fp.ReplaceOne()},
    ),
    "rectangles": (_ask_rectangles(200, 100), {"max_iterations": 9}),
    "rectangles, replaced": (
        _ask_rectangles(90, 40),
        {"unit": fp.ReplaceOne(), "max_iterations": 9},
    ),
    "tree, once per period": (_ask_tree(), {"unit": fp.AddRemove(records=3, once_per="A")}),
    "prefixes": (_ask_prefixes(60), {}),
    "prefixes, replaced": (_ask_prefixes(30), {"unit": fp.ReplaceOne()}),
    "chain": (_ask_prefixes(5000), {"max_iterations": 9}),
    "components": (_ask_apart(), {"refine": True}),
    "incomes": (_ask_incomes(), {}),
    "sm2": (_ask_marginals(20, 10), {"solver": "sm2"}),
}

if __name__ == "__main__":
    for _name, (_workload, _options) in PLANS.items():
        plan = fp.design(_workload, **_options)
        plan.verify()
        plan.summary()
        for _array, _values in describe_plan(plan)[1].items():
            if _values.dtype.kind == "i" and _values.dtype.char != "q":
                print(f"{_name}: {_array} is made without a type")
