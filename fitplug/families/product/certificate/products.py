"""Certificates of the product family: the norm of a product that is never formed.

See `fitplug.families.product.certificate.product_bound`. Both p and q are products, whose factors
are stored one after another. p has the weights of each attribute's cells. q has the weights of the
groups, and then the weights of the rows of each distinct factor. A symmetric attribute has one
number in each.

Where neighbours replace a record, p continues with the sides of the asymmetric attributes along
which a record may move, and with the shares of its moves.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.families.base.family import Certifier, Duals, Frame
from fitplug.families.base.objective import Objective
from fitplug.families.base.periods import PeriodCertifier
from fitplug.families.product.certificate.product_bound import (
    lower_product_cost,
    share_product_weight,
)
from fitplug.families.product.certificate.product_duals import PairWeights, ProductDuals
from fitplug.families.product.shape.products import ProductPairStructure, ProductStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray


class ProductCertifier(Certifier[ProductStructure]):
    """The certificate of `ProductStructure`."""

    is_refined = False

    has_frame = True

    def count_duals(self, structure: ProductStructure) -> tuple[int, int]:
        cells, counts = _count_numbers(structure)
        return sum(cells), sum(counts)

    def unpack(self, structure: ProductStructure, duals: Duals) -> ProductDuals:
        """Split p and q into the factors of product weights.

        Raises:
            ValueError: If they are of other sizes.
        """
        cells, counts = _count_numbers(structure)
        if (duals.p.shape, duals.q.shape) != ((sum(cells),), (sum(counts),)):
            raise ValueError(BAD_PROOF)
        w, *y = np.split(duals.q, np.cumsum(counts)[:-1])
        p = np.split(duals.p, np.cumsum(cells)[:-1])
        return ProductDuals(tuple(p), tuple(y), w, *duals.frame)

    def lower_cost(
        self, structure: ProductStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        bound = lower_product_cost(structure.batched, self.unpack(structure, duals))
        return bound / math.sqrt(scale) * (1 - 4 * UNIT_ROUNDOFF)

    def share_weight(self, structure: ProductStructure, duals: Duals) -> FloatArray:
        return share_product_weight(structure.batched, self.unpack(structure, duals))


class ProductPersonCertifier(PeriodCertifier[ProductStructure], ProductCertifier):
    """The certificate of `ProductPersonStructure`."""

    def multiply_groups(
        self, structure: ProductStructure, duals: Duals, times: FloatArray
    ) -> Duals:
        return duals._replace(q=np.append(duals.q[: len(times)] * times, duals.q[len(times) :]))

    def lower_period(
        self, structure: ProductStructure, scale: float, duals: Duals, mean: float
    ) -> float:
        bound = lower_product_cost(structure.batched, self.unpack(structure, duals), mean)
        return bound / math.sqrt(scale) * (1 - 4 * UNIT_ROUNDOFF)


def pack_duals(duals: ProductDuals) -> Duals:
    """Concatenate the factors of product weights, as plans store them."""
    pairs = () if duals.pairs is None else (*duals.pairs.sides, duals.pairs.shares)
    return Duals(
        np.concatenate([*duals.p, *pairs]),
        np.concatenate([duals.w, *duals.y]),
        Frame(duals.t, duals.rests, duals.tilt),
    )


def _count_numbers(structure: ProductStructure) -> tuple[list[int], list[int]]:
    """Count the numbers in each factor of p and of q."""
    batched = structure.batched
    cells = [1 if one else n for one, n in zip(batched.symmetric, structure.sizes, strict=True)]
    counts = [len(structure.workload.groups), *(distinct.count for distinct in batched.factors)]
    return cells, counts


class ProductPairCertifier(ProductCertifier):
    """The certificate of `ProductPairStructure`."""

    def count_duals(self, structure: ProductStructure) -> tuple[int, int]:
        assert isinstance(structure, ProductPairStructure)
        p, q = super().count_duals(structure)
        return p + int(count_sides(structure).sum()) + len(structure.moves), q

    def unpack(self, structure: ProductStructure, duals: Duals) -> ProductDuals:
        assert isinstance(structure, ProductPairStructure)
        sizes = count_sides(structure)
        ends = np.cumsum([*sizes, len(structure.moves)])
        first = len(duals.p) - int(ends[-1])
        *sides, shares = np.split(duals.p[first:], ends[:-1])
        unpacked = super().unpack(structure, duals._replace(p=duals.p[:first]))
        moves, near = structure.moves, structure.near
        return replace(unpacked, pairs=PairWeights(moves, near, shares, tuple(sides)))


def count_sides(structure: ProductPairStructure) -> IntArray:
    """Count the sides of each attribute, shape (attributes,)."""
    moved = structure.moves.any(axis=0) & ~np.array(structure.batched.symmetric)
    moved &= np.array([tree is None for tree in structure.trees])
    return np.where(moved, np.array(structure.sizes, dtype=np.int64), 0)
