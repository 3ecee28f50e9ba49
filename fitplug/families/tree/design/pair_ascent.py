"""Ascent of the lower bound of a tree where neighbours replace a record, by the weights of rows.

The optimum of the family leaves the weights of rows open where its variances are products over
nodes and dense cells, and the bound over all covariances depends on them. Nothing here is proven:
the certificate evaluates the bound anew.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.families.base.family import Duals
from fitplug.families.tree.design.bound_ascent import choose_error, count_steps
from fitplug.families.tree.design.bound_gradient import differentiate_rows
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import (
    MIXING,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
    normalise_logarithms,
)


def ascend_pair_rows(structure: TreePairStructure, duals: Duals, tolerance: float) -> Duals:
    """Raise the lower bound that dual weights prove by those of rows, as far as work allows.

    Args:
        structure: The structure.
        duals: The dual weights to start from.
        tolerance: The relative gap that ends the ascent.

    Returns:
        Dual weights with other q.
    """
    if structure.cells == 1:
        return duals
    error = choose_error(tolerance)
    cells = duals.p[: -structure.kinds].reshape(-1, structure.cells)
    shares = cells / cells.sum(axis=0)
    kappas, thetas = structure.weigh_blocks(duals.p[-structure.kinds :])
    multiples = structure.subsets.profile_multiples
    blocks = []
    for block in structure.noisy_blocks.tolist():
        merge = structure.classes[block][0].merge_counts
        root = np.diag(merge(kappas[block]))
        if not structure.keeps_tree:
            root = root - merge(merge(structure.unfold_pairs(thetas[block])).T)
        factor = float(multiples[block])
        blocks.append((block, factor * kappas[block] * shares, factor * root))

    def evaluate(x: FloatArray) -> Iterate[None] | None:
        q = np.exp(x)
        rows = q / structure.targets
        try:
            h = sum(
                differentiate_rows(structure, block, p, rows, root, error)
                for block, p, root in blocks
            )
        except np.linalg.LinAlgError:
            return None
        h = np.maximum(np.asarray(h) / structure.targets, 0.0)
        value = float(q @ h)
        if not 0 < value < math.inf:
            return None
        following = mix_with_uniform(q * h / value, MIXING * tolerance)
        upper = math.sqrt(value * float(h.max()))
        return Iterate(x, following, value, max(upper, value), value, None)

    start = normalise_logarithms(np.log(duals.q))
    found = find_fixed_point(
        evaluate,
        normalise_logarithms,
        start,
        tolerance=tolerance,
        max_iterations=count_steps(structure),
    )
    return duals._replace(q=np.exp(found.best_lower.x))
