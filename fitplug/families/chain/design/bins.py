"""The design of chains with bins: each block over its classes of cells.

The design of a block that leaves ranges out knows the variances of prefixes only. The variance of a
range is a share of the sum of those of the two prefixes whose difference it is. So the design is
repeated with the shares that the strategy before had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cholesky

from fitplug.certify import place_poles
from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.family import Design, Duals, evaluate_at_targets
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.chain.certificate.chains import compute_chain_trace, sweep_chain
from fitplug.families.chain.design.nested import SUMS, build_nested, find_walks
from fitplug.families.chain.design.optimum import CHAIN_MARGIN, round_nested
from fitplug.families.chain.shape.bins import BinnedChainStructure, ClassQueries
from fitplug.families.chain.strategy.bins import BinnedChain
from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.families.chain.strategy.nested_triangles import NestedTriangles
from fitplug.numeric import FloatArray
from fitplug.solve import DualValue, Options, Problem, Solution, solve_dual

_GAP, _MOST_STEPS = 1e-3, 100

_TURNS = 5
"""The most designs; the first has shares of 0, and gives the bound."""

_GAIN = 1e-3
"""The turns end when the cost falls by less than this, relatively."""

_MOST_GAP = 0.5
"""A plan whose Delta is farther above the bound is refused."""


def design_binned_chain(
    structure: BinnedChainStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find a strategy of a chain with bins, and dual weights that prove how good it is.

    The arguments are those of `fitplug.families.designs.find_design`. The integers are as exact as
    64 bits allow; `loss` is not used.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded, or costs too much.
    """
    steps = min(options.max_iterations, _MOST_STEPS)
    shares = [np.zeros(len(asked.rows)) for asked in structure.class_queries]
    duals, best, least, iterations = None, None, math.inf, 0
    for _ in range(_TURNS):
        found = _ascend_dual(structure, shares, steps)
        duals, iterations = duals or found, iterations + found.iterations
        matrices = [
            _build_block(structure, block, found, share) for block, share in enumerate(shares)
        ]
        strategy = round_nested(structure, matrices, gather=_gather)
        cost, before = evaluate_at_targets(strategy, objective), least
        if cost < least:
            best, least = strategy, cost
        if options.progress is not None:
            options.progress(iterations, least / duals.lower - 1)
        shares = _find_shares(structure, strategy)
        if cost > before * (1 - _GAIN) or not any(share.any() for share in shares):
            break
    assert duals is not None
    assert best is not None
    if least > (1 + _MOST_GAP) * duals.lower:
        raise DesignError(
            "no plan near the proven lower bound was found. Give the ranges and prefixes of "
            f"{structure.chain} more similar targets."
        )
    return Design.in_one_tier(
        best,
        Duals(duals.p, duals.q),
        bound_margin=CHAIN_MARGIN,
        iterations=iterations,
        ended="apart",
    )


def _gather(structure: BinnedChainStructure, blocks: Sequence[NestedTriangles]) -> AttributeMatrix:
    """Gather the rounded nested triangles of all blocks."""
    return BinnedChain(
        np.array([structure.n], dtype=np.int64),
        tuple(asked.starts for asked in structure.class_queries),
        tuple(
            NestedChain(
                np.array([asked.classes], dtype=np.int64),
                A.triangles[None],
                A.sums[None],
                A.weights[None],
                np.zeros(1, dtype=np.int64),
            )
            for asked, A in zip(structure.class_queries, blocks, strict=True)
        ),
    )


def _find_shares(
    structure: BinnedChainStructure, strategy: IntegerStrategy[Structure]
) -> list[FloatArray]:
    """Find the variance of each range that a block leaves out, relative to its two prefixes."""
    shares = []
    for block, asked in enumerate(structure.class_queries):
        matrix, left_out = strategy.find_matrix(structure.chain_position, block), asked.left_out
        assert isinstance(matrix, BinnedChain)
        first, last = asked.first[left_out], asked.last[left_out]
        ranges, ends, starts = (
            matrix.upper_class_variances(*pair)
            for pair in ((first, last), (0 * first, last), (0 * first, first - 1))
        )
        share = np.zeros(len(asked.rows))
        share[left_out] = ranges / (ends + starts)
        shares.append(share)
    return shares


def _ascend_dual(
    structure: BinnedChainStructure, shares: Sequence[FloatArray], steps: int
) -> Solution:
    """Find dual weights whose bound is nearly the largest, for some shares of ranges left out."""

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        g, h = np.zeros(structure.n), np.zeros(structure.rows)
        for asked, multiple, share in zip(
            structure.class_queries, structure.multiples_of_blocks.tolist(), shares, strict=True
        ):
            unit = asked.multiples / structure.targets[asked.rows]
            of_classes = np.add.reduceat(p, asked.starts)
            of_block, variances = _differentiate(asked, of_classes, q[asked.rows] * unit, share)
            sizes = np.diff(asked.starts, append=structure.n)
            g += math.sqrt(multiple) * np.repeat(of_block, sizes)
            h[asked.rows] += math.sqrt(multiple) * unit * variances
        return DualValue(float(p @ g), g, h, ())

    return solve_dual(
        Problem(structure.n, structure.rows, ()),
        tolerance=_GAP,
        max_iterations=steps,
        evaluate=evaluate,
    )


def _differentiate(
    asked: ClassQueries, p: FloatArray, weights: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute twice the derivatives of tr N^1/2 along p (m,) and the rows' weights (r,)."""
    if asked.is_dense:
        rows, cells = np.sqrt(weights), np.sqrt(p)
        U, s, Vt = np.linalg.svd(rows[:, None] * asked.build_matrix() * cells, full_matrices=False)
        return (s @ Vt**2) / p, (U**2 @ s) / weights
    prefixes, cells = _gather_shares(asked, weights, share)
    trace = compute_chain_trace(p, prefixes, cells)
    quadrature = place_poles(1.0, len(p), tail=1e-4)
    sums = sweep_chain(p, prefixes / trace, cells / trace, quadrature)
    y = np.where(asked.first == 0, sums.prefixes[asked.last], sums.cells[asked.last])
    pairs = sums.prefixes[asked.last] + sums.prefixes[asked.first - 1]
    y = np.where(asked.left_out, share * pairs, y)
    return math.sqrt(trace) * sums.slopes, y / math.sqrt(trace)


def _gather_shares(
    asked: ClassQueries, weights: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sum weights over prefixes and single classes, with a share of ranges left out, (m,) each."""
    prefixes, cells = asked.gather(weights)
    of_pairs = (weights * share)[asked.left_out]
    for place in (asked.last, asked.first - 1):
        prefixes += np.bincount(place[asked.left_out], of_pairs, asked.classes)
    return prefixes, cells


_FLOOR = 1e-12
"""The least eigenvalue of N, relative to the largest: what no query asks may cost nothing."""


def _build_block(
    structure: BinnedChainStructure, block: int, duals: Solution, share: FloatArray
) -> NestedTriangles:
    """Build the nested triangles of a block, near the optimum for dual weights."""
    asked = structure.class_queries[block]
    p = np.add.reduceat(duals.p, asked.starts) * structure.multiples_of_blocks[block]
    weights = duals.q[asked.rows] / structure.targets[asked.rows] * asked.multiples
    if not asked.is_dense:
        prefixes, cells = _gather_shares(asked, weights, share)
        return build_nested(find_walks(p, prefixes, cells), prefixes, asked.classes)
    # Sigma^-1 = D^-1/2 N^1/2 D^-1/2 = A'A, with a lower triangle A.
    half, m = np.sqrt(weights)[:, None] * asked.build_matrix() * np.sqrt(p), asked.classes
    values, vectors = np.linalg.eigh(half.T @ half)
    roots = np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    precision = (vectors * roots) @ vectors.T / np.sqrt(np.outer(p, p))
    A = cholesky(precision[::-1, ::-1])[::-1, ::-1]
    sums = np.zeros((0, m // 2, SUMS))
    return NestedTriangles(np.ascontiguousarray(A)[None], sums, sums)
