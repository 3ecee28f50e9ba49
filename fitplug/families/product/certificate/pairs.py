"""The certificate of the product family where neighbours replace a record.

For product weights p of cells that sum to 1, let each pair (i, j) of one region have the weight
p_i p_j over the sum P_r of p in the region. These weights sum to 1 at most, and with u_r the square
roots of p in region r over P_r^1/2,

    P = 2 diag(p)^1/2 (I - sum_r u_r u_r') diag(p)^1/2

So the bound is that of `fitplug.families.product.certificate.product_bound` times the square root
of 2, with the columns that the u_r span projected out. These are the columns whose states are 0 for
all attributes along which a record may move (docs/theory/units.md).
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.product.certificate.product_bound import lower_product_cost
from fitplug.families.product.certificate.products import ProductCertifier, unpack_duals
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import UNIT_ROUNDOFF


class ProductPairCertifier(ProductCertifier):
    """The certificate of `ProductPairStructure`, for the plain objective."""

    def lower_cost(
        self, structure: ProductStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, ProductPairStructure)
        moved = np.zeros(len(structure.block_attributes), dtype=np.bool_)
        moved[structure.free] = True
        bound = lower_product_cost(structure.batched, unpack_duals(structure, duals), moved)
        return bound * math.sqrt(2 / scale) * (1 - 6 * UNIT_ROUNDOFF)
