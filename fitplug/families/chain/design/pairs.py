"""The design of a chain where neighbours replace a record: dual weights of pairs, integers.

The weights of the pairs of cells i < j are alpha_i beta_j, and are found as those of cells are
(`fitplug.solve.dual`), with alpha and beta on a simplex each. The optimum for them is a sum of the
posterior covariances of walks, of s_j / V_j where the total is public (docs/theory/chains.md, "One
record replaced").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.base.family import Design, Duals, evaluate_at_targets
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.chain.certificate.chains import compute_chain_trace, sweep_chain
from fitplug.families.chain.certificate.pairs import PairWeights
from fitplug.families.chain.design.nested import Walks, build_nested, find_walks
from fitplug.families.chain.design.optimum import CHAIN_MARGIN, round_nested
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.chain.strategy.nested_triangles import (
    NestedTriangles,
    keep_cells,
    multiply_nested,
    multiply_nested_transposed,
    square_columns,
)
from fitplug.numeric import FloatArray
from fitplug.solve import DualValue, Options, Problem, Simplex, Solution, solve_dual

_GAP, _MOST_STEPS, _ROW_STEPS = 1e-3, 100, 2


def design_chain_pairs(
    structure: ChainPairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find a strategy of a chain, and dual weights that prove how good it is.

    The arguments are those of `fitplug.families.designs.find_design`. The integers are as exact as
    64 bits allow; `loss` is not used.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    duals = ascend_pair_dual(structure, min(options.max_iterations, _MOST_STEPS))
    if options.progress is not None:
        options.progress(duals.iterations, _GAP)
    strategy = _find_strategy(structure, duals)
    return Design.in_one_tier(
        strategy,
        Duals(duals.p, duals.q),
        bound_margin=CHAIN_MARGIN,
        iterations=duals.iterations,
        ended="apart",
    )


def ascend_pair_dual(structure: ChainPairStructure, most_steps: int) -> Solution:
    """Find weights of pairs and queries whose bound is nearly the largest of this form."""
    n = structure.n

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        return _evaluate(structure, PairWeights.sum_up(p), q)

    place = np.linspace(0, 1, n)
    start = np.concatenate([(1 - place) ** 4, place**4]) + 1e-3
    halves = [np.arange(2 * n) < n, np.arange(2 * n) >= n]
    q = np.ones(structure.rows)
    return solve_dual(
        Problem(2 * n, structure.rows, ()),
        tolerance=_GAP,
        max_iterations=most_steps,
        evaluate=evaluate,
        simplices=[Simplex(half, 0.5) for half in halves],
        start=(start, q / q.sum()),
    )


def _evaluate(structure: ChainPairStructure, weights: PairWeights, q: FloatArray) -> DualValue:
    """Evaluate the dual, and its gradients as mean costs of the pairs of each weight."""
    alpha, beta, U, V = weights
    row_weights = q / structure.targets
    value, h = 0.0, np.zeros(structure.rows)
    of_U, of_V, of_cells = np.zeros((3, structure.n))
    starts = structure.row_starts
    for block, is_grounded in structure.chains:
        prefixes, cells = structure.gather_weights(block, row_weights)
        scale = math.sqrt(float(structure.multiples_of_blocks[block]))
        p, w, v = weights.cells, prefixes, np.ones(structure.n)
        if is_grounded:
            v = V[:-1]
            p, w = weights.steps, prefixes[:-1] * v * v
            cells = cells[:-1]
        trace = compute_chain_trace(p, w, cells)
        if not trace > 0:
            continue
        quadrature = place_poles(1.0, len(p), tail=1e-4)
        sums = sweep_chain(p, w / trace, cells / trace, quadrature)
        slopes = scale * math.sqrt(trace) * sums.slopes
        value += float(p @ slopes)
        y = np.append(sums.prefixes * v * v, 0.0)[: structure.n] * scale / math.sqrt(trace)
        if is_grounded:
            # dT = sum of slopes_j d(U_j / V_j - U_(j-1) / V_(j-1)) + y_j w_j dV_j^2 / V_j^2
            steps = (slopes - np.append(slopes[1:], 0.0)) / v
            of_U[:-1] += steps
            of_V[:-1] += 2 * y[:-1] * prefixes[:-1] / v - steps * U[:-1] / v
        else:
            of_cells += slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, multiple in zip(groups.tolist(), multiples.tolist(), strict=True):
            h[starts[group] : starts[group + 1]] += multiple * y[structure.chain_rows[group].cells]
    before = weights.before
    of_alpha = np.cumsum(of_U[::-1])[::-1] + of_cells * V
    of_alpha += np.append(np.cumsum((of_cells * beta)[:0:-1])[::-1], 0.0)
    of_beta = np.append(0.0, np.cumsum(of_V[:-1])) + of_cells * before
    of_beta += np.append(0.0, np.cumsum((of_cells * alpha)[:-1]))
    # The mean cost of the pairs of each weight.
    g = np.zeros((2, structure.n))
    np.divide(of_alpha, V, out=g[0], where=V > 0)
    np.divide(of_beta, before, out=g[1], where=before > 0)
    mass = weights.mass
    norm = value / math.sqrt(mass)
    g *= mass / value * norm
    return DualValue(norm, np.maximum(g, 0.0).ravel(), h / structure.targets / math.sqrt(mass), ())


_SPLITS = (0.4, 0.5, 0.6)
"""Where the parts of a covariance split the cells, as shares of the weight of all pairs."""

_TURNS, _POWER, _LEAST = 6, 4, 1e-4
"""The number of corrections of the parts; the powers of costs, and the mass of uniform weights."""


class _Part(NamedTuple):
    """Weights of pairs and rows, whose optimum is a part of the covariance.

    Attributes:
        alpha: Weights of the cells before the split, shape (n,), 0 after it.
        beta: Weights of the cells after the split, likewise.
        q: Weights of the rows, shape (rows,).
        share: The part's share of the covariance.
    """

    alpha: FloatArray
    beta: FloatArray
    q: FloatArray
    share: float

    @property
    def weights(self) -> PairWeights:
        return PairWeights.sum_up(np.concatenate([self.alpha, self.beta]))


def _find_strategy(structure: ChainPairStructure, duals: Solution) -> IntegerStrategy[Structure]:
    """Find nested triangles near the optimum over weights of all pairs.

    The optimum for weights alpha_i beta_j costs too much for pairs of a cell near the middle and
    one at an end. The mean of the optima of several such weights costs less, as the cost of each
    pair is convex in the covariance.
    """
    of_cells = PairWeights.sum_up(duals.p).cells
    places, at = np.cumsum(of_cells) / of_cells.sum(), np.arange(structure.n)
    parts = []
    for share in _SPLITS:
        split = min(max(int(np.searchsorted(places, share)), 1), structure.n - 1)
        alpha, beta = np.where(at < split, of_cells, 0.0), np.where(at < split, 0.0, of_cells)
        parts.append(_Part(_mix(alpha), _mix(beta), duals.q, 1 / len(_SPLITS)))
    triangles, parts = _mix_optima(structure, parts)
    found = [round_nested(structure, triangles)]
    for _ in range(_TURNS):
        parts = _correct_parts(structure, triangles, parts)
        triangles, parts = _mix_optima(structure, parts)
    found.append(round_nested(structure, triangles))
    return min(found, key=lambda strategy: evaluate_at_targets(strategy, Objective()))


def _mix(weights: FloatArray) -> FloatArray:
    """Scale weights to the sum 1, and mix in uniform weights of those that are not 0."""
    used = weights > 0
    mixed = weights / weights.sum() + _LEAST / used.sum()
    return np.where(used, mixed / (1 + _LEAST), 0.0)


def _mix_optima(
    structure: ChainPairStructure, parts: list[_Part]
) -> tuple[list[NestedTriangles], list[_Part]]:
    """Find nested triangles for each noisy block, near the mean of the parts' optima.

    Returns:
        The nested triangles, and the parts with new weights of rows.
    """
    settled, scales = [], []
    for part in parts:
        q = part.q
        for _ in range(_ROW_STEPS):
            dual = _evaluate(structure, part.weights, q)
            q = _mix(q * (dual.ratios / dual.value) ** 2)
        settled.append(part._replace(q=q))
        # The variances are the targets where each part is divided by its value.
        scales.append(part.share / _evaluate(structure, part.weights, q).value)
    triangles = []
    for block, is_grounded in structure.chains:
        multiple = float(structure.multiples_of_blocks[block])
        walks, masses = [], np.zeros(structure.n - is_grounded)
        for part, scale in zip(settled, scales, strict=True):
            prefixes, cells = structure.gather_weights(block, part.q / structure.targets)
            weights = part.weights
            if is_grounded:
                prefixes = prefixes[:-1]
                found = _find_grounded_walks(weights, prefixes, multiple)
            else:
                found = find_walks(weights.cells * multiple, prefixes, cells)
            walks.append(found._replace(variances=found.variances * scale))
            masses += part.share * prefixes
        mixed = Walks(*(np.concatenate(each, axis=1) for each in zip(*walks, strict=True)))
        triangles.append(build_nested(mixed, masses, structure.n))
    return triangles, settled


def _find_grounded_walks(
    weights: PairWeights, prefix_weights: FloatArray, multiple: float
) -> Walks:
    """Find the walks of a chain whose total is public."""
    V = weights.V[:-1]
    walks = find_walks(weights.steps * multiple, prefix_weights * V * V, np.zeros(len(V)))
    scale = np.append(V[0], V)[:, None]
    return Walks(walks.variances * scale**2, walks.decays + np.log(scale))


def _correct_parts(
    structure: ChainPairStructure, triangles: list[NestedTriangles], parts: list[_Part]
) -> list[_Part]:
    """Multiply each weight by a power of the mean cost of its pairs."""
    n = structure.n
    squares, products = np.zeros(n), np.zeros((n, 2 * len(parts)))
    given = np.concatenate([np.stack([part.beta, part.alpha], axis=1) for part in parts], axis=1)
    for (block, is_grounded), A in zip(structure.chains, triangles, strict=True):
        multiple = float(structure.multiples_of_blocks[block])
        A = keep_cells(A, n - is_grounded)
        squares += multiple * square_columns(A)[0][:n]
        if is_grounded:
            x = np.zeros((A.cells, given.shape[1]))
            x[:n] = given
            seen = multiply_nested_transposed(A, multiply_nested(A, x))
            products += multiple * seen[:n]
    corrected, means = [], []
    for k, part in enumerate(parts):
        of_alpha = squares + part.beta @ squares - 2 * products[:, 2 * k]
        of_beta = squares + part.alpha @ squares - 2 * products[:, 2 * k + 1]
        means.append(float(part.alpha @ of_alpha))
        alpha = part.alpha * (of_alpha / means[-1]) ** _POWER
        beta = part.beta * (of_beta / means[-1]) ** _POWER
        corrected.append(_Part(_mix(alpha), _mix(beta), part.q, part.share))
    shares = np.array([part.share for part in parts]) * np.array(means) ** _POWER
    shares /= shares.sum()
    return [
        part._replace(share=share) for part, share in zip(corrected, shares.tolist(), strict=True)
    ]
