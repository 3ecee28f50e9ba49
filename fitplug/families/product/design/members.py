"""Members of the product family: covariances of several attributes that are never formed.

A member has a reference u_a and a covariance C_a for each attribute a (`AttributeCovariance`), and
a scale z_A for each block A, a subset of the attributes. See docs/theory/product-family.md.

The descent starts at the optimum of each attribute for its own factors. If some group sums an
attribute out, the sum is one of the attribute's queries.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.design.attribute_covariance import (
    AttributeCovariance,
    AttributeOptimum,
    AttributeQueries,
    SymmetricCovariance,
)
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.families.product.design.node_tree_covariance import NodeTreeCovariance
from fitplug.families.product.design.scales import Profiles, Scales
from fitplug.families.product.design.tree_covariance import TreeCovariance
from fitplug.families.product.shape.batches import BatchedGroups, DistinctFactor, gather_tables
from fitplug.numeric import FloatArray


@dataclass(frozen=True, eq=False)
class FamilyWeights:
    """Dual weights of the product family: products over the attributes.

    Attributes:
        cells: p_a of each attribute, shape (n_a,), summing to 1.
        queries: For each batch, q of its groups' rows, in the shape of the batch's targets, with
            one entry along attributes where targets do not vary. All entries of all batches sum to
            1.
        shares: For each factor, the shares of its rows in q where targets do not vary, shape (r,),
            summing to 1.
        pairs: The weights of pairs of cells, where neighbours replace a record.
    """

    cells: tuple[FloatArray, ...]
    queries: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]
    pairs: PairWeights | None = None


@dataclass(frozen=True, eq=False)
class FamilyMember:
    """A member of the family that meets every target.

    Attributes:
        batched: The groups of the workload.
        covariances: The covariance of each attribute.
        scales: The best scales for these covariances.
        profiles: The costs of differences between neighbours as a function of the scales.
        weights: The dual weights at the end of the descent.
        iterations: The iterations of the descent.
        stopped: Whether the progress callback asked to stop.
    """

    batched: BatchedGroups
    covariances: tuple[AttributeCovariance, ...]
    scales: Scales
    profiles: Profiles
    weights: FamilyWeights
    iterations: int = 0
    stopped: bool = False

    @property
    def upper(self) -> float:
        """The privacy cost."""
        return self.scales.upper


COVARIANCE_KINDS: tuple[type[AttributeCovariance], ...] = (
    SymmetricCovariance,
    NodeTreeCovariance,
    TreeCovariance,
    DenseCovariance,
)
"""The kinds of covariances. An attribute gets the first kind that fits its queries."""


def optimise_attributes(
    batched: BatchedGroups,
) -> tuple[tuple[AttributeCovariance, ...], FamilyWeights]:
    """Return the covariance of each attribute for its own queries, and initial weights.

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
    """Collect the queries of an attribute from its factors, given by index.

    A row's target is the smallest over all groups of the group's geometric mean over its other
    attributes.
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
            means = np.exp(logs.reshape(len(logs), -1).mean(axis=1))
            targets[f] = np.minimum(targets[f], means)
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
