"""The beginning of the descent: the optimum of each attribute for its own factors.

If some group sums an attribute out, the sum is one of the attribute's queries too.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np

from fitplug.families.product.design.attribute_covariance import (
    AttributeCovariance,
    AttributeOptimum,
    AttributeQueries,
)
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.members import FamilyWeights
from fitplug.families.product.design.node_tree_covariance import NodeTreeCovariance
from fitplug.families.product.design.symmetric_covariance import SymmetricCovariance
from fitplug.families.product.design.tree_covariance import TreeCovariance
from fitplug.families.product.shape.batches import BatchedGroups, DistinctFactor, gather_tables
from fitplug.numeric import FloatArray

COVARIANCE_KINDS: tuple[type[AttributeCovariance], ...] = (
    SymmetricCovariance,
    NodeTreeCovariance,
    TreeCovariance,
    DenseCovariance,
)
"""The kinds of covariances. The first that fits the queries of an attribute serves them."""


def optimise_attributes(
    batched: BatchedGroups,
) -> tuple[tuple[AttributeCovariance, ...], FamilyWeights]:
    """Return the covariance of each attribute for its own queries, and weights to begin with.

    Raises:
        WorkloadError, DesignError: As the dual solver does.
    """
    covariances, cells = [], []
    shares: dict[int, FloatArray] = {}
    known: dict[Hashable, AttributeOptimum] = {}
    for a in range(len(batched.sizes)):
        factors = {f: factor for f, factor in enumerate(batched.factors) if factor.attribute == a}
        queries = _collect_queries(batched, a, factors)
        if queries.key not in known:
            kind = next(kind for kind in COVARIANCE_KINDS if kind.fits(queries))
            known[queries.key] = kind.optimise(queries)
        optimum = known[queries.key]
        covariances.append(optimum.covariance)
        cells.append(optimum.cells)
        shares |= dict(zip(factors, optimum.rows, strict=True))
    weights = []
    for batch in batched.batches:
        q = np.ones(batch.targets.shape)
        for axis, (used, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            if varies:
                along = gather_tables(shares, used)
                q *= np.expand_dims(along, [i + 1 for i in range(q.ndim - 1) if i != axis])
        weights.append(q / len(batched.workload.groups))
    by_factor = tuple(shares[f] for f in range(len(batched.factors)))
    return tuple(covariances), FamilyWeights(tuple(cells), tuple(weights), by_factor)


def _collect_queries(
    batched: BatchedGroups, attribute: int, factors: Mapping[int, DistinctFactor]
) -> AttributeQueries:
    """Collect the queries of an attribute, whose factors are given by their index.

    A row's target is the smallest of all groups', where a group counts with the geometric mean over
    its other attributes.
    """
    targets = {f: np.full(factor.count, np.inf) for f, factor in factors.items()}
    total = np.inf
    for batch in batched.batches:
        here = batch.attributes == attribute
        for g in np.flatnonzero(~here.any(axis=1)):
            total = min(total, math.exp(float(np.log(batch.targets[g]).mean())))
        for g, axis in np.argwhere(here):
            logs = np.moveaxis(np.log(batch.targets[g]), axis, 0)
            f = batch.factors[g, axis]
            own = np.exp(logs.reshape(len(logs), -1).mean(axis=1))
            targets[f] = np.minimum(targets[f], own)
    if total < np.inf:
        targets = {f: c / total for f, c in targets.items()}
    return AttributeQueries(
        size=batched.sizes[attribute],
        symmetric=batched.symmetric[attribute],
        tree=batched.trees[attribute],
        grades=batched.grades[attribute],
        factors=tuple(factors.values()),
        targets=tuple(targets.values()),
        summed=bool(total < np.inf),
    )
