"""Designs of chains in several periods: what contrasts of the periods' totals save.

Records that are drawn independently from weights p of the cells, in periods that have one with the
probability sum p, have the moment D - p p' on contrasts of periods. Its geometric mean Z^-1 is what
the contrasts' covariance would be if no person changed the contrasts of totals. h is sqrt(x) Z p /
sqrt(p'Z p), and the common covariance is Z^-1 + kappa p p'. A cell then costs Z_ii - 2 mu h_i +
mu^2, and a period without a record mu^2, with mu = h'p (docs/theory/persons.md, "Contrasts of
totals").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.base.family import Design, Duals, evaluate_at_targets
from fitplug.families.base.objective import Objective
from fitplug.families.base.period_design import choose_kinds, choose_ratio
from fitplug.families.base.periods import Periods
from fitplug.families.chain.certificate.chains import (
    ChainPersonCertifier,
    compute_chain_trace,
    sweep_chain,
)
from fitplug.families.chain.design.nested import (
    add_common_noise,
    approximate_optimum,
    ascend_chain_dual,
    build_nested,
    find_walks,
)
from fitplug.families.chain.design.optimum import CHAIN_MARGIN, round_nested
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.strategy.nested_triangles import NestedTriangles
from fitplug.numeric import FloatArray
from fitplug.solve import Options, Solution

_GAP = 1.5e-3
"""The gap of the covariance that nested triangles approximate."""

_STEPS = 60
"""The steps of the weights."""

_LEAST = 1e-12
"""The least weight of a cell, as a share of all."""

_LEAST_REST = 1e-3
"""The least probability of a period without a record."""


def design_chain_persons(
    structure: ChainPersonStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the strategy of a chain for one period, and measure each period by it.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    periods = structure.periods

    def find(ratio: float) -> tuple[float, ChainStructure, Solution]:
        reduced = structure.reduce(ratio)
        duals = ascend_chain_dual(reduced, options.max_iterations, _GAP)
        return periods.price(ratio) * duals.lower**2, reduced, duals

    ratio = choose_ratio(periods, lambda ratio: find(ratio)[0])
    _, reduced, found = find(ratio)
    matrices = approximate_optimum(reduced, found)
    strategy = round_nested(
        structure,
        [matrices[block] for block in structure.reduced_blocks.tolist()],
        periods.choose_multiples(ratio),
    )
    weights = [Duals(found.p, found.q)]
    if periods.partners[0] >= 0 and periods.most > 1:
        reduced, shares = structure.reduced, np.ones(structure.reduced.rows)
        counting = np.repeat(periods.find_counting(structure.workload), reduced.row_counts)
        shares[counting] = 1 / periods.n
        centred = find_centred_weights(reduced, periods, shares, found.p, found.q)
        # Without common noise no contrasts of totals are needed.
        if centred.common > 0:
            matrices = approximate_centred(reduced, centred)
            other = round_nested(
                structure,
                [matrices[block] for block in structure.reduced_blocks.tolist()],
                periods.choose_multiples(),
                totals=centred.h,
            )
            strategy = min(strategy, other, key=lambda one: evaluate_at_targets(one, objective))
        weights.append(Duals(centred.p, centred.q))
    certifier = ChainPersonCertifier()
    kinds = [
        duals._replace(p=np.append(duals.p, choose_kinds(certifier, structure, duals)))
        for duals in weights
    ]
    duals = max(kinds, key=lambda one: certifier.lower_cost(structure, objective, 1.0, one))
    return Design.in_one_tier(
        strategy, duals, bound_margin=CHAIN_MARGIN, iterations=found.iterations, ended="apart"
    )


class CentredWeights(NamedTuple):
    """Weights of cells and rows where contrasts of totals are measured.

    Attributes:
        p: Weights of the cells, shape (n,). Their sum is the probability of a record in a period.
        q: Weights of the rows, shape (rows,), which sum to 1.
        h: The further row, for noise of variance 1, shape (n,).
        common: kappa.
    """

    p: FloatArray
    q: FloatArray
    h: FloatArray
    common: float


class _Costs(NamedTuple):
    """What cells (n,), a period without a record, and rows (rows,) cost."""

    cells: FloatArray
    rest: float
    rows: FloatArray


def find_centred_weights(
    structure: ChainStructure, periods: Periods, shares: FloatArray, p: FloatArray, q: FloatArray
) -> CentredWeights:
    """Find weights of a chain whose costs are nearly level.

    Args:
        structure: The structure of one period.
        periods: The periods.
        shares: The share of the variance of the mean in that of each row, shape (rows,).
        p: Weights of the cells to start from, shape (n,).
        q: Weights of the rows to start from, shape (rows,).
    """
    least = max(_LEAST_REST, 1 - periods.most / periods.n)
    p = p / p.sum() * (1 - max(least, 1 / (periods.n + 1)))
    for _ in range(_STEPS):
        costs, _ = _measure(structure, shares, p, q)
        rest = (1 - float(p.sum())) * costs.rest
        p = p * costs.cells
        rest = max(least, rest / (rest + float(p.sum())))
        p = np.maximum(p / p.sum(), _LEAST)
        p = p / p.sum() * (1 - rest)
        q = q * costs.rows
        q = q / q.sum()
    return _measure(structure, shares, p, q)[1]


def approximate_centred(
    structure: ChainStructure, weights: CentredWeights
) -> list[NestedTriangles]:
    """Find nested triangles for each block, near the common covariance."""
    triangles = []
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, weights.q / structure.targets)
        total = 0.0 if block else 1 / (1 - float(weights.p.sum()))
        walks = find_walks(weights.p * multiple, prefixes, cells, total)
        if block == 0:
            walks = add_common_noise(walks, weights.p * math.sqrt(weights.common))
        triangles.append(build_nested(walks, prefixes, structure.n))
    return triangles


def _measure(
    structure: ChainStructure, shares: FloatArray, p: FloatArray, q: FloatArray
) -> tuple[_Costs, CentredWeights]:
    """Measure the costs of the best covariance for some weights."""
    row_weights, starts = q / structure.targets, structure.row_starts
    total = 1 / (1 - float(p.sum()))
    g, variances = np.zeros(structure.n), np.zeros(structure.rows)
    quadrature = place_poles(1.0, structure.n, tail=1e-6)
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, row_weights)
        trace = compute_chain_trace(p, prefixes, cells)
        if not trace > 0:
            continue
        observed = 0.0 if block else total
        sums = sweep_chain(p, prefixes / trace, cells / trace, quadrature, observed)
        scale = math.sqrt(multiple)
        slopes = sums.slopes
        if block == 0:
            # P^-1 - t P^-1 S P^-1 with P^-1 = D^-1 + total 1 1'.
            once = quadrature.weights.sum()
            of_total = float(sums.shared @ p)
            slopes = slopes + total * once - 2 * total * sums.shared - total**2 * of_total
            Zp = total * (once - sums.shared - total * of_total) * math.sqrt(trace)
        g += scale * math.sqrt(trace) * slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, of_group in zip(groups.tolist(), multiples.tolist(), strict=True):
            asked = structure.chain_rows[group]
            y = np.where(asked.is_prefix, sums.prefixes[asked.cells], sums.cells[asked.cells])
            rows = slice(starts[group], starts[group + 1])
            variances[rows] += scale * of_group / math.sqrt(trace) * y
    means, summed = np.zeros(structure.rows), np.cumsum(p)
    groups, multiples = structure.subsets.find_groups(0)
    for group, of_group in zip(groups.tolist(), multiples.tolist(), strict=True):
        asked = structure.chain_rows[group]
        answers = np.where(asked.is_prefix, summed[asked.cells], p[asked.cells])
        means[starts[group] : starts[group + 1]] = of_group * np.square(answers)
    means *= shares
    a = float(p @ Zp)
    left = min(1.0, math.sqrt(float(row_weights @ means)) / a)
    x = 1 - left
    common = x / (left * a)
    costs = _Costs(g - 2 * x * Zp + x * a, x * a, (variances + common * means) / structure.targets)
    return costs, CentredWeights(p, q, math.sqrt(x / a) * Zp, common)
