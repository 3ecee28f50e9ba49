"""The strategies of chains: R T M with the Toeplitz matrix T that suits a chain without ends.

With equal weights everywhere, the optimum along a chain that never ends is the Toeplitz matrix of

    ((1 - x z) / (1 - z))^1/2        0 <= x < 1

where x grows from 0 with the weight of single cells against that of prefixes. The ends, and targets
that vary, are left to R and M: M makes the privacy profile level, and R the variances over their
targets (docs/theory/chains.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fitplug.families.chain.design.ascent import ChainDuals
from fitplug.families.chain.shape import ChainStructure
from fitplug.numeric import FloatArray, convolve


@dataclass(frozen=True, eq=False)
class ToeplitzPair:
    """The sequences of T, of T^-1 and of its prefix sums, each of shape (n,)."""

    t: FloatArray
    v: FloatArray
    u: FloatArray


def build_toeplitz(n: int, x: float) -> ToeplitzPair:
    """Build the sequences of T for a weight x of single cells."""
    rising, falling = _build_powers(n)
    powers = x ** np.arange(n)
    t = convolve(rising, falling * powers)
    v = convolve(falling, rising * powers)
    return ToeplitzPair(t, v, np.cumsum(v))


def choose_cell_weight(structure: ChainStructure, duals: ChainDuals) -> float:
    """Choose x for the dual weights that prefixes and cells have, on the average, in all blocks.

    With q_s per prefix and q_c per cell T has the squared spectrum (q_s / |1 - z|^2 + q_c)^1/2,
    which factors into the form above: with a - b = q_s^1/2 and a b = q_c it is x = b / a.
    """
    row_weights = duals.q / structure.targets
    prefixes, cells = 0.0, 0.0
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        own = structure.gather_weights(block, row_weights)
        # The total may have a row of its own, and says nothing of the chain without ends.
        prefixes += math.sqrt(multiple) * float(own[0][:-1].sum())
        cells += math.sqrt(multiple) * float(own[1].sum())
    difference = math.sqrt(prefixes)
    a = (difference + math.sqrt(prefixes + 4 * cells)) / 2
    return (a - difference) / a if a > 0 else 0.0


def place_cells(n: int) -> FloatArray:
    """Place cells on a line on which the ends of chains of different lengths coincide, (n,)."""
    middle = (np.arange(n) + 0.5) / n
    return np.asarray(np.log(middle / (1 - middle)))


def _build_powers(n: int) -> tuple[FloatArray, FloatArray]:
    """Build the sequences of (1 - z)^-1/2 and (1 - z)^1/2, each of shape (n,)."""
    k = np.arange(1.0, n)
    rising = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    falling = np.concatenate([[1.0], np.cumprod((2 * k - 3) / (2 * k))])
    return rising, falling
