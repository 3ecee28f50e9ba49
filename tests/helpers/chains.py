"""Chains that are short enough for the dense solver, and what they cost."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

import fitplug as fp
from fitplug.families import Objective, analyse_structure, certify_bound
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.designs import find_design
from fitplug.numeric import guard_linear_algebra
from fitplug.solve import Options


def build_square_root(n: int) -> np.ndarray:
    """The coefficients of (1 - z)^-1/2."""
    k = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def invert_triangle(A: np.ndarray) -> np.ndarray:
    """The inverse of a lower triangular matrix, column by column, in rational numbers."""
    n = len(A)
    rows = [[Fraction(int(a)) for a in row] for row in A]
    E = [[Fraction(0)] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            rest = (1 if i == j else 0) - sum(rows[i][k] * E[k][j] for k in range(j, i))
            E[i][j] = rest / rows[i][i]
    return np.array(E, dtype=object)


def ask_chain(n: int, *groups: Any, **attributes: Any) -> fp.Workload:
    """Query groups of an attribute x of n ordered cells, and of other attributes."""
    return fp.Workload(fp.Domain({**attributes, "x": fp.Integers(0, n - 1)}), list(groups))


def analyse_chain(workload: fp.Workload) -> ChainStructure:
    """The structure of a chain, however short."""
    structure = analyse_structure(workload, chain=True)
    assert isinstance(structure, ChainStructure)
    return structure


def draft_chain(workload: fp.Workload) -> tuple[Any, float, float]:
    """A strategy of a chain, its privacy cost at the targets, and its certified bound."""
    structure = analyse_chain(workload)
    with guard_linear_algebra():
        design = find_design(structure, Objective(), Options("dual", 1e-4, 100, True, None), 1e-5)
        bound = certify_bound(structure, Objective(), 1.0, design.duals)
    strategy = design.strategy
    worst = float((strategy.unit_variances / structure.targets).max())
    return strategy, strategy.sensitivity * math.sqrt(worst), bound
