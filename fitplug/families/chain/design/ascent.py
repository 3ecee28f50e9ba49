"""The dual weights of a chain, by the fixed point with the sweeps of its certificate.

A step is p <- p (g / T)^1.8 and q <- q (h / T)^1.8, with the gradients that the sweeps give: the
ratios g / T and h / T fall about as the root of the weights, so a power near 2 levels them fast.
A little weight is mixed in everywhere, so that none vanishes (docs/theory/chains.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import place_poles
from fitplug.families.chain.certificate.chains import compute_chain_trace
from fitplug.families.chain.certificate.sweep import sweep_chain
from fitplug.families.chain.shape import ChainStructure
from fitplug.numeric import FloatArray

_STEP, _TAIL = 1, 1e-4
"""Poles that are enough for the gradients: fewer than those of the certificate."""

_ENOUGH = 1e-6
"""The ascent ends when a step adds no more than this to the bound, relatively."""

_POWER, _MIXING = 1.8, 1e-4
"""The power of a step, and the weight that is mixed in."""

_MOST_STEPS = 60


class ChainDuals(NamedTuple):
    """Dual weights of a chain.

    Attributes:
        p: Weights of the cells, shape (n,); they sum to 1.
        q: Weights of the structure's rows, shape (rows,); they sum to 1.
        value: T(p, q), about.
        steps: The steps made.
    """

    p: FloatArray
    q: FloatArray
    value: float
    steps: int


def ascend_chain_dual(
    structure: ChainStructure, most_steps: int, gap: float | None = None
) -> ChainDuals:
    """Find dual weights whose bound is nearly the largest.

    Args:
        structure: The structure of the workload.
        most_steps: The most steps.
        gap: How far the cost of their optimal covariance may be above the bound, relatively; None
            if the bound alone is wanted.
    """
    n, rows = structure.n, structure.rows
    p, q = np.full(n, 1 / n), np.full(rows, 1 / rows)
    found = ChainDuals(p, q, 0.0, 0)
    for step in range(min(most_steps, _MOST_STEPS)):
        g, h = _compute_gradients(structure, p, q)
        value = float(p @ g)
        gained, last = value - found.value, found.value
        if gained > 0:
            found = ChainDuals(p, q, value, step + 1)
        reached = math.sqrt(float(g.max() * h.max())) / value - 1
        if reached <= gap if gap is not None else gained <= _ENOUGH * last:
            break
        p, q = (_mix(x * (slope / value) ** _POWER) for x, slope in ((p, g), (q, h)))
    return found


def _mix(weights: FloatArray) -> FloatArray:
    """Scale weights to a sum of 1, with a little of it spread evenly."""
    return (weights / weights.sum() + _MIXING / len(weights)) / (1 + _MIXING)


def _compute_gradients(
    structure: ChainStructure, p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute twice the derivatives of T along p (n,) and q (rows,)."""
    row_weights = q / structure.targets
    g, h = np.zeros(structure.n), np.zeros(structure.rows)
    starts = structure.row_starts
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, row_weights)
        trace = compute_chain_trace(p, prefixes, cells)
        if not trace > 0:
            continue
        # The poles are placed for weights that give N a trace of 1.
        quadrature = place_poles(1.0, structure.n, step=_STEP, tail=_TAIL)
        sums = sweep_chain(p, prefixes / trace, cells / trace, quadrature)
        scale = math.sqrt(multiple)
        g += scale * math.sqrt(trace) * sums.slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, own in zip(groups.tolist(), multiples.tolist(), strict=True):
            asked = structure.chain_rows[group]
            y = np.where(asked.is_prefix, sums.prefixes[asked.cells], sums.cells[asked.cells])
            h[starts[group] : starts[group + 1]] += scale * own / math.sqrt(trace) * y
    return g, h / structure.targets
