"""The design of a chain where neighbours replace a record: dual weights of pairs, integers.

The weights of the pairs of cells i < j are alpha_i beta_j, and are found as those of cells are
(`fitplug.solve.dual`), with alpha and beta on a simplex each. The optimum for them is a sum of the
posterior covariances of walks, of s_j / V_j where the total is public (docs/theory/chains.md, "One
record replaced").
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.base.family import Design, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.chains import compute_chain_trace, sweep_chain
from fitplug.families.chain.certificate.pairs import PairWeights
from fitplug.families.chain.design.nested import Walks, build_nested, find_walks
from fitplug.families.chain.design.optimum import CHAIN_MARGIN, round_nested
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.chain.strategy.nested_triangles import NestedTriangles
from fitplug.numeric import FloatArray
from fitplug.solve import DualValue, Options, Problem, Simplex, Solution, solve_dual

_GAP, _MOST_STEPS = 1e-3, 100


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
    strategy = round_nested(structure, _approximate_optimum(structure, duals.p, duals.q))
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
    for block, is_grounded in zip(
        structure.noisy_blocks.tolist(), structure.grounded.tolist(), strict=True
    ):
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


def _approximate_optimum(
    structure: ChainPairStructure, p: FloatArray, q: FloatArray
) -> list[NestedTriangles]:
    """Find nested triangles for each noisy block, near the optimum for dual weights."""
    weights = PairWeights.sum_up(p)
    triangles = []
    for block, is_grounded in zip(
        structure.noisy_blocks.tolist(), structure.grounded.tolist(), strict=True
    ):
        prefixes, cells = structure.gather_weights(block, q / structure.targets)
        multiple = float(structure.multiples_of_blocks[block])
        if is_grounded:
            prefixes = prefixes[:-1]
            walks = _find_grounded_walks(weights, prefixes, multiple)
        else:
            walks = find_walks(weights.cells * multiple, prefixes, cells)
        triangles.append(build_nested(walks, prefixes, structure.n))
    return triangles


def _find_grounded_walks(
    weights: PairWeights, prefix_weights: FloatArray, multiple: float
) -> Walks:
    """Find the walks of a chain whose total is public."""
    V = weights.V[:-1]
    walks = find_walks(weights.steps * multiple, prefix_weights * V * V, np.zeros(len(V)))
    scale = np.append(V[0], V)[:, None]
    return Walks(walks.variances * scale**2, walks.decays + np.log(scale))
