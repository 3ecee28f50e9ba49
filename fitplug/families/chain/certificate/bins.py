"""The certificate of chains with bins: each block over its classes of cells.

The cells of a class are columns that are equal, so their weights add up. A block of few classes has
a nuclear norm. Longer blocks leave out ranges, which only lowers the trace of a root.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.certify import divide_by_mass, scale_weights, sum_nuclear_norms
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.chains import ChainCertifier, lower_chain_trace
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.numeric import gamma


class BinnedChainCertifier(ChainCertifier):
    """The certificate of `BinnedChainStructure`, for the plain objective."""

    def lower_cost(
        self, structure: ChainStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, BinnedChainStructure)
        p = scale_weights(duals.p, structure.n)
        q = scale_weights(duals.q, structure.rows)
        row_weights = q / (scale * structure.targets)
        total = 0.0
        for asked, multiple in zip(
            structure.class_queries, structure.multiples_of_blocks.tolist(), strict=True
        ):
            weights = row_weights[asked.rows] * asked.multiples
            of_classes = np.add.reduceat(p, asked.starts)
            if asked.is_dense:
                trace = sum_nuclear_norms([(asked.build_matrix(), weights, of_classes)])
            else:
                largest = float(of_classes.max())
                trace = lower_chain_trace(of_classes / largest, *asked.gather(weights))
                trace *= math.sqrt(largest)
            total += math.sqrt(multiple) * trace
        total *= 1 - gamma(structure.n + len(structure.blocks) + structure.rows + 32)
        return divide_by_mass(total, p, q)
