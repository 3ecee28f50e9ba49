"""Chains that are short enough for the dense solver, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

import fitplug as fp
from fitplug.families import Objective, analyse_structure, certify_bound
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.families.designs import find_design
from fitplug.numeric import guard_linear_algebra
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD


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


def analyse_chain(workload: fp.Workload, unit: Any = ONE_RECORD) -> ChainStructure:
    """The structure of a chain, however short."""
    structure = analyse_structure(workload, chain=True, unit=unit)
    assert isinstance(structure, ChainStructure)
    return structure


def draft_chain(workload: fp.Workload, unit: Any = ONE_RECORD) -> tuple[Any, float, float]:
    """A strategy of a chain, its privacy cost at the targets, and its certified bound."""
    structure = analyse_chain(workload, unit)
    with guard_linear_algebra():
        design = find_design(structure, Objective(), Options("dual", 1e-4, 100, True, None), 1e-5)
        bound = certify_bound(structure, Objective(), 1.0, design.duals)
    strategy = design.strategy
    worst = float((strategy.unit_variances / structure.targets).max())
    return strategy, strategy.sensitivity * math.sqrt(worst), bound


def make_nested(n: int, leaves: int, K: int, grounded: Sequence[int] = (0, 0)) -> NestedChain:
    """Random nested triangles, which are far from symmetric and well conditioned."""
    rng = np.random.default_rng(n)
    b, blocks = -(-n // leaves), len(grounded)
    shape = (blocks, leaves.bit_length() - 1, leaves * b // 2, K)
    triangles = np.tril(rng.integers(-300, 300, (blocks, leaves, b, b)), -1)
    triangles += np.eye(b, dtype=np.int64) * rng.integers(900, 1000, (blocks, leaves, b, 1))
    sums = rng.integers(-9, 9, shape)
    weights = rng.integers(-30, 30, shape)
    sums[..., 0] = 1
    rows = triangles.reshape(blocks, -1, b)
    for block, cells in enumerate(n - np.array(grounded)):
        rows[block, cells:] = np.tile(np.eye(b, dtype=np.int64), (leaves, 1))[cells:]
        for level in range(shape[1]):
            half = b << level
            place = np.arange(shape[2])
            first = place // half * 2 * half
            weights[block, level, first + half + place % half >= cells] = 0
            sums[block, level, first + half >= cells] = 0
    of_blocks = np.array(grounded, dtype=np.int64)
    return NestedChain(np.array([n], dtype=np.int64), triangles, sums, weights, of_blocks)


def write_out(chain: NestedChain) -> np.ndarray:
    """Write out a matrix entry by entry; rows and columns of cells not measured are zero."""
    n, b = chain.n, chain.triangles.shape[2]
    A = np.zeros((n, n), dtype=object)
    for j in range(n - int(chain.grounded[chain.block])):
        for i in range(j + 1):
            if j // b == i // b:
                A[j, i] = int(chain.triangles[chain.block, j // b, j % b, i % b])
                continue
            level = (j // b ^ i // b).bit_length() - 1
            half = b << level
            start = i // (2 * half) * half
            U = chain.weights[chain.block, level, start + j % half].tolist()
            V = chain.sums[chain.block, level, start + i % half].tolist()
            A[j, i] = sum(u * v for u, v in zip(U, V, strict=True))
    return A
