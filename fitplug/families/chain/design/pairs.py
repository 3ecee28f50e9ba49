"""The design of a chain where neighbours replace a record: dual weights of pairs, integers.

The covariance is the mean of optima for some weights of pairs, each of which is a sum of the
posterior covariances of walks (docs/theory/chains.md, "One record replaced").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.base.family import Design, Duals, evaluate_at_targets
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.chains import compute_chain_trace, sweep_chain
from fitplug.families.chain.certificate.pairs import ChainPairCertifier, PairWeights
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

_SPLITS = (0.4, 0.5, 0.6)
"""Where the parts of a covariance split the cells, as shares of the weight of all pairs."""

_TURNS, _POWER, _LEAST = 6, 6, 1e-4
"""The number of corrections of the parts; the powers of costs, and the mass of uniform weights."""

_DRIFT = 1.5
"""The multiple of a ratio below 0 for the walks of the covariance, for which the third term of P in
the certificate is left out."""

_SAME = (0.0, 0.1, 0.2, 0.3, 0.4)
"""The shares s of the pairs on the same side to try for the bound."""


class _Part(NamedTuple):
    """Weights of pairs and rows, whose optimum is a part of the covariance.

    Attributes:
        a: Weights of the cells before the split, shape (n,), 0 after it.
        b: Weights of the cells after the split, likewise.
        q: Weights of the rows, shape (rows,).
        share: The part's share of the covariance.
    """

    a: FloatArray
    b: FloatArray
    q: FloatArray
    share: float

    @property
    def weights(self) -> PairWeights:
        return PairWeights.split(self.a, self.b)


def design_chain_pairs(
    structure: ChainPairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find a strategy of a chain, and dual weights that prove how good it is.

    The arguments are those of `fitplug.families.designs.find_design`. The integers are as exact as
    64 bits allow; `loss` is not used.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    found = _ascend_dual(structure, min(options.max_iterations, _MOST_STEPS))
    if options.progress is not None:
        options.progress(found.iterations, _GAP)
    cells = PairWeights.sum_up(*found.p.reshape(2, -1)).cells
    parts = [_Part(*_split(cells, at), found.q, 1 / len(_SPLITS)) for at in _SPLITS]
    triangles, parts = _mix_optima(structure, parts)
    strategies = [round_nested(structure, triangles)]
    for _ in range(_TURNS):
        parts = _correct_parts(structure, triangles, parts)
        triangles, parts = _mix_optima(structure, parts)
    strategies.append(round_nested(structure, triangles))
    return Design.in_one_tier(
        min(strategies, key=lambda strategy: evaluate_at_targets(strategy, Objective())),
        _find_duals(structure, parts),
        bound_margin=CHAIN_MARGIN,
        iterations=found.iterations,
        ended="apart",
    )


def _ascend_dual(structure: ChainPairStructure, most_steps: int) -> Solution:
    """Find weights alpha and beta, shape (2 n,), and of queries whose bound is nearly the largest,
    if other attributes of a moved record get any of their values with equal weight."""
    n = structure.n

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        return _evaluate(structure, PairWeights.sum_up(*p.reshape(2, -1)), q, drift=0.0)

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


def _evaluate(
    structure: ChainPairStructure, weights: PairWeights, q: FloatArray, drift: float = _DRIFT
) -> DualValue:
    """Evaluate the dual for walks, and its gradients as mean costs of the pairs of each weight.

    The gradients along alpha and beta are those without drift.
    """
    alpha, beta, U, V, _ = weights
    row_weights = q / structure.targets
    value, h = 0.0, np.zeros(structure.rows)
    of_U, of_V, of_cells = np.zeros((3, structure.n))
    starts = structure.row_starts
    for block, ratio in structure.chains:
        prefixes, _ = structure.gather_weights(block, row_weights)
        scale = math.sqrt(float(structure.multiples_of_blocks[block]))
        p, v = weights.find_walk(_drift(ratio, drift))
        w = prefixes[: len(v)] * v * v
        trace = compute_chain_trace(p, w, np.zeros_like(w))
        if not trace > 0:
            continue
        quadrature = place_poles(1.0, len(p), tail=1e-4)
        sums = sweep_chain(p, w / trace, np.zeros_like(w), quadrature)
        slopes = scale * math.sqrt(trace) * sums.slopes
        value += float(p @ slopes)
        y = np.append(sums.prefixes * v * v, 0.0)[: structure.n] * scale / math.sqrt(trace)
        if ratio == 1:
            # dT = sum of slopes_j d(U_j / V_j - U_(j-1) / V_(j-1)) + y_j w_j dV_j^2 / V_j^2
            v = np.where(v > 0, v, 1.0)
            steps = (slopes - np.append(slopes[1:], 0.0)) / v
            of_U[:-1] += steps
            of_V[:-1] += 2 * y[:-1] * prefixes[:-1] / v - steps * U[:-1] / v
        else:
            of_cells += slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, multiple in zip(groups.tolist(), multiples.tolist(), strict=True):
            h[starts[group] : starts[group + 1]] += multiple * y[structure.chain_rows[group].cells]
    before = np.append(0.0, U[:-1])
    of_alpha = np.cumsum(of_U[::-1])[::-1] + of_cells * V
    of_alpha += np.append(np.cumsum((of_cells * beta)[:0:-1])[::-1], 0.0)
    of_beta = np.append(0.0, np.cumsum(of_V[:-1])) + of_cells * before
    of_beta += np.append(0.0, np.cumsum((of_cells * alpha)[:-1]))
    # The mean cost of the pairs of each weight.
    g = np.zeros((2, structure.n))
    np.divide(of_alpha, V, out=g[0], where=V > 0)
    np.divide(of_beta, before, out=g[1], where=before > 0)
    mass = float(alpha @ V)
    norm = value / math.sqrt(mass)
    g *= mass / value * norm
    return DualValue(norm, np.maximum(g, 0.0).ravel(), h / structure.targets / math.sqrt(mass), ())


def _drift(ratio: float, drift: float = _DRIFT) -> float:
    """Return the ratio of the walks of a block's covariance."""
    return drift * ratio if ratio < 0 else ratio


def _split(cells: FloatArray, at: float) -> tuple[FloatArray, FloatArray]:
    """Split weights of cells where they reach a share of their sum."""
    places = np.cumsum(cells) / cells.sum()
    split = min(max(int(np.searchsorted(places, at)), 1), len(cells) - 1)
    is_first = np.arange(len(cells)) < split
    return _mix(cells * is_first), _mix(cells * ~is_first)


def _find_duals(structure: ChainPairStructure, parts: list[_Part]) -> Duals:
    """Find the best bound for the parts' mean weights and some shares of pairs on a side."""
    cells = np.sum([part.share * (part.a + part.b) for part in parts], axis=0)
    q = np.sum([part.share * part.q for part in parts], axis=0)
    tried = [Duals(np.concatenate([*_split(cells, 0.5), [s, 1 - s]]), q) for s in _SAME]
    lower = ChainPairCertifier().lower_cost
    return max(tried, key=lambda duals: lower(structure, Objective(), 1.0, duals))


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
    for block, ratio in structure.chains:
        multiple = float(structure.multiples_of_blocks[block])
        walks, masses = [], np.zeros(structure.n)
        for part, scale in zip(settled, scales, strict=True):
            prefixes, _ = structure.gather_weights(block, part.q / structure.targets)
            steps, V = part.weights.find_walk(_drift(ratio))
            prefixes = prefixes[: len(V)]
            found = find_walks(steps * multiple, prefixes * V * V, np.zeros(len(V)))
            V = np.append(V[0], V)[:, None]
            walks.append(Walks(found.variances * scale * V**2, found.decays + np.log(V)))
            masses[: len(prefixes)] += part.share * prefixes
        mixed = Walks(*(np.concatenate(each, axis=1) for each in zip(*walks, strict=True)))
        triangles.append(build_nested(mixed, masses[: len(prefixes)], structure.n))
    return triangles, settled


def _correct_parts(
    structure: ChainPairStructure, triangles: list[NestedTriangles], parts: list[_Part]
) -> list[_Part]:
    """Multiply each weight by a power of the mean cost of its pairs."""
    n = structure.n
    squares, products = np.zeros(n), np.zeros((n, 2 * len(parts)))
    given = np.stack([x for part in parts for x in (part.b, part.a)], axis=1)
    for (block, ratio), A in zip(structure.chains, triangles, strict=True):
        multiple = float(structure.multiples_of_blocks[block])
        A = keep_cells(A, n - (ratio == 1))
        squares += multiple * square_columns(A)[0][:n]
        if ratio:
            x = np.zeros((A.cells, given.shape[1]))
            x[:n] = given
            seen = multiply_nested_transposed(A, multiply_nested(A, x))
            products += ratio * multiple * seen[:n]
    corrected, means = [], []
    for k, part in enumerate(parts):
        of_a = squares + part.b @ squares - 2 * products[:, 2 * k]
        of_b = squares + part.a @ squares - 2 * products[:, 2 * k + 1]
        means.append(float(part.a @ of_a))
        a = _mix(part.a * (of_a / means[-1]) ** _POWER)
        b = _mix(part.b * (of_b / means[-1]) ** _POWER)
        corrected.append(part._replace(a=a, b=b))
    shares = np.array([part.share for part in parts]) * np.array(means) ** _POWER
    shares /= shares.sum()
    return [
        part._replace(share=share) for part, share in zip(corrected, shares.tolist(), strict=True)
    ]
