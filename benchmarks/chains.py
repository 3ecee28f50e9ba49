"""Compare plans for the prefixes of one long attribute with their bounds and with published peers.

python benchmarks/chains.py > benchmarks/chains.md
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import numpy as np
from markdown_table import compute_delta_gap, heading, line
from scipy.signal import fftconvolve

import fitplug as fp

SIZES = (10_000, 100_000, 1_000_000)

CHAINS = """# Chains

The workload has all prefixes of one attribute of n cells, with targets of 1: the problem of
continual counting. Delta is the privacy cost of the plan, with the loss by rounding to integers
included. No mechanism with Gaussian noise costs less than the bound. The peers are exact
evaluations of published formulas, for real numbers: the square root of the prefix matrix as a
Toeplitz matrix (Fichtenberger, Henzinger, Upadhyay 2023), the factorization through the group
algebra (Mathias 1993; Henzinger, Upadhyay 2025), and the square root with normalized columns
(Henzinger, Kalinin, Upadhyay, https://arxiv.org/abs/2509.14334). More rho says how much more of the
privacy budget the last, the best of them, needs than the plan for the same accuracy. Verification
reads the plan file and proves everything anew.
"""

OTHERS = """
# Chains with other queries

All targets of prefixes are 1, and n is 10,000.
"""

REPLACED = """
# Chains where one record is replaced

The unit is `fp.ReplaceOne()`, or keeps the state. Targets of prefixes are 1 unless the table says
otherwise, and n is 10,000. "Two changes" is the bound for `fp.AddRemove(records=2)`.
"""


def evaluate_square_root(n: int) -> float:
    """Evaluate Delta of (1 - z)^-1/2 as a Toeplitz matrix: the sum of its squared entries."""
    k = np.arange(1, n)
    return float(1 + np.sum(np.cumprod((2 * k - 1) / (2 * k)) ** 2))


def evaluate_normalized_square_root(n: int) -> float:
    """Evaluate Delta of the square root S of the prefix matrix, columns divided by their norms.

    With the norms N on the diagonal, the encoder is S N^-1, of sensitivity 1, and the decoder is
    S S N S^-1. Its row i has the first i + 1 norms correlated with the first column of S^-1. The
    rows' norms rise to one maximum, which a search by thirds finds.
    """
    k = np.arange(1, n)
    root = np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))
    inverse = np.cumprod(np.concatenate([[1.0], (2 * k - 3) / (2 * k)]))
    norms = np.sqrt(np.cumsum(root**2))[::-1]

    def evaluate(i: int) -> float:
        row = fftconvolve(norms[: i + 1][::-1], inverse[: i + 1])[: i + 1]
        return float(np.linalg.norm(row))

    low, high = 0, n - 1
    while high - low > 2:
        third = (high - low) // 3
        if evaluate(low + third) < evaluate(high - third):
            low += third
        else:
            high -= third
    return max(evaluate(i) for i in range(low, high + 1))


def evaluate_group_algebra(n: int) -> float:
    """Evaluate Delta of the factorization through the group algebra."""
    angles = (2 * np.arange(1, n + 1) - 1) * math.pi / (2 * n)
    return float(0.5 + np.mean(1 / np.abs(np.sin(angles))) / 2)


def ask(n: int, *groups: object, **attributes: list[str]) -> fp.Workload:
    domain = fp.Domain({**attributes, "x": fp.Integers(0, n - 1)})
    return fp.Workload(domain, [fp.queries({"x": "prefix"}, variance=1e6), *groups])


def design(workload: fp.Workload, unit: fp.AddRemove | fp.ReplaceOne) -> tuple[fp.Plan, float]:
    start = time.perf_counter()
    plan = fp.design(workload, unit=unit)
    return plan, time.perf_counter() - start


def time_verification(plan: fp.Plan) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.npz"
        plan.save(path)
        start = time.perf_counter()
        fp.Plan.load(path).verify()
        return time.perf_counter() - start


def main() -> None:
    print(CHAINS)
    columns = ["n", "Delta", "bound", "gap of Delta", "square root", "group algebra"]
    columns += ["normalized square root", "more rho", "draws", "design s", "verification s"]
    print(heading(columns))
    for n in SIZES:
        plan, seconds = design(ask(n), fp.AddRemove())
        cost, best = plan.privacy_cost * 1e3, evaluate_normalized_square_root(n)
        numbers = [f"{cost:.4f}", f"{plan.lower_bound * 1e3:.4f}", f"{compute_delta_gap(plan):.2%}"]
        peers = [f"{p:.4f}" for p in (evaluate_square_root(n), evaluate_group_algebra(n), best)]
        peers.append(f"{(best / cost) ** 2 - 1:.1%}")
        times = [f"{seconds:.2g}", f"{time_verification(plan):.2g}"]
        draws = f"{plan.strategy.size:,}"
        print(line([f"{n:,}", *numbers, *peers, draws, *times]), flush=True)
    print(OTHERS)
    print(heading(["besides", "Delta", "bound", "gap of Delta", "design s"]))
    n = SIZES[0]
    by_sex = fp.queries({"s": "identity", "x": "prefix"}, variance=1e6)
    bins, deciles = (fp.ranges([(a, a + k - 1) for a in range(0, n, k)]) for k in (100, 1000))
    of_states = [
        fp.queries({"x": asked, "s": "identity"}, variance=variance)
        for asked, variance in ((bins, 6.4e5), (deciles, 1.6e5))
    ]
    sexes, states = ["a", "b"], [str(i) for i in range(51)]
    rough = np.where(np.arange(n) % 10 == 9, 1e6, 1e8)
    cases = {
        "cells, target 0.2": ask(n, fp.marginal("x", variance=2e5)),
        "total, target 0.1": ask(n, fp.total(variance=1e5)),
        "prefixes by sex": ask(n, by_sex, s=sexes),
        "targets of 9 in 10 prefixes 100": fp.Workload(
            fp.Domain({"x": fp.Integers(0, n - 1)}), [fp.queries({"x": "prefix"}, variance=rough)]
        ),
        "100 bins by 51 states, target 0.64": ask(n, of_states[0], s=states),
        "10 bins by 51 states, target 0.16, too": ask(n, *of_states, s=states),
        "100 bins by 5 regions, target 0.64": ask(n, of_states[0], s=states[:5]),
        "100 bins by sex, target 0.64": ask(n, of_states[0], s=sexes),
        "10 bins by sex, target 0.16": ask(n, of_states[1], s=sexes),
        "100 bins, target 1": ask(n, fp.queries({"x": bins}, variance=1e6)),
        "100 bins, target 0.64": ask(n, fp.queries({"x": bins}, variance=6.4e5)),
    }
    for name, workload in cases.items():
        plan, seconds = design(workload, fp.AddRemove())
        numbers = [f"{plan.privacy_cost * 1e3:.4f}", f"{plan.lower_bound * 1e3:.4f}"]
        numbers.append(f"{compute_delta_gap(plan):.2%}")
        print(line([name, *numbers, f"{seconds:.2g}"]), flush=True)
    compare_replaced()


def compare_replaced() -> None:
    """Print the table of chains where one record is replaced."""
    print(REPLACED)
    columns = ["workload", "Delta", "bound", "gap of Delta", "two changes"]
    print(heading([*columns, "design s", "verification s"]))
    n = SIZES[0]
    rough = np.where(np.arange(n) % 10 == 9, 1e6, 1e8)
    by_state = fp.queries({"s": "identity", "x": "prefix"}, variance=1e6)
    states = ask(n, by_state, s=[str(i) for i in range(51)])
    tight = fp.queries({"x": "prefix"}, variance=rough)
    cases = {
        "prefixes": (ask(n), fp.ReplaceOne()),
        "targets of 9 in 10 prefixes 100": (
            fp.Workload(fp.Domain({"x": fp.Integers(0, n - 1)}), [tight]),
            fp.ReplaceOne(),
        ),
        "prefixes by two sexes": (ask(n, by_state, s=["a", "b"]), fp.ReplaceOne()),
        "prefixes by 51 states": (states, fp.ReplaceOne()),
        "prefixes by 51 states, within a state": (states, fp.ReplaceOne(within=("s",))),
    }
    for name, (workload, unit) in cases.items():
        plan, seconds = design(workload, unit)
        other, _ = design(workload, fp.AddRemove())
        costs = [plan.privacy_cost, plan.lower_bound]
        numbers = [f"{cost * 1e3:.4f}" for cost in costs]
        numbers += [f"{compute_delta_gap(plan):.2%}", f"{2e3 * other.lower_bound:.4f}"]
        times = [f"{seconds:.2g}", f"{time_verification(plan):.2g}"]
        print(line([name, *numbers, *times]), flush=True)


if __name__ == "__main__":
    main()
