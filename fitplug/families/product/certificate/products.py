"""Certificates of the product family: the norm of a product that is never written down.

See `fitplug.families.product.certificate.product_bound`. Both p and q are products, whose factors
are stored one after another. p holds the weights of the cells of each attribute. q holds the
weights of the groups, and then the weights of the rows of each distinct factor. A symmetric
attribute has one number in each.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.families.base.family import Certifier, Duals, Frame
from fitplug.families.base.objective import Objective
from fitplug.families.product.certificate.product_bound import (
    lower_product_cost,
    share_product_weight,
)
from fitplug.families.product.certificate.product_duals import ProductDuals
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray


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
        return unpack_duals(structure, duals)

    def lower_cost(
        self, structure: ProductStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        bound = lower_product_cost(structure.batched, self.unpack(structure, duals))
        return bound / math.sqrt(scale) * (1 - 4 * UNIT_ROUNDOFF)

    def share_weight(self, structure: ProductStructure, duals: Duals) -> FloatArray:
        return share_product_weight(structure.batched, self.unpack(structure, duals))


def pack_duals(duals: ProductDuals) -> Duals:
    """Put the factors of product weights one after another, as plans have them."""
    return Duals(
        np.concatenate(duals.p),
        np.concatenate([duals.w, *duals.y]),
        Frame(duals.t, duals.rests, duals.tilt),
    )


def unpack_duals(structure: ProductStructure, duals: Duals) -> ProductDuals:
    """Split p and q into their factors, or raise ValueError if they have other sizes."""
    cells, counts = _count_numbers(structure)
    if (duals.p.shape, duals.q.shape) != ((sum(cells),), (sum(counts),)):
        raise ValueError("dual weights p and q are not of the structure's attributes and groups")
    w, *y = np.split(duals.q, np.cumsum(counts)[:-1])
    p = np.split(duals.p, np.cumsum(cells)[:-1])
    return ProductDuals(tuple(p), tuple(y), w, *duals.frame)


def _count_numbers(structure: ProductStructure) -> tuple[list[int], list[int]]:
    """Count the numbers in each factor of p and of q."""
    batched = structure.batched
    cells = [1 if one else n for one, n in zip(batched.symmetric, structure.sizes, strict=True)]
    counts = [len(structure.workload.groups), *(distinct.count for distinct in batched.factors)]
    return cells, counts
