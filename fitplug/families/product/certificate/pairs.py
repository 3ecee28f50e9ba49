"""The certificate of the product family where neighbours replace a record.

As plans have them, the weights p of cells come first, then the sides of the attributes that are not
symmetric and along which a record may move, and the shares of its moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fitplug.families.base.family import Duals
from fitplug.families.product.certificate.product_duals import PairWeights, ProductDuals
from fitplug.families.product.certificate.products import (
    ProductCertifier,
    pack_duals,
    unpack_duals,
)
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import IntArray


class ProductPairCertifier(ProductCertifier):
    """The certificate of `ProductPairStructure`, for the plain objective."""

    def count_duals(self, structure: ProductStructure) -> tuple[int, int]:
        assert isinstance(structure, ProductPairStructure)
        p, q = super().count_duals(structure)
        return p + int(_count_sides(structure).sum()) + len(structure.moves), q

    def unpack(self, structure: ProductStructure, duals: Duals) -> ProductDuals:
        assert isinstance(structure, ProductPairStructure)
        sizes = _count_sides(structure)
        ends = np.cumsum([*sizes, len(structure.moves)])
        first = len(duals.p) - int(ends[-1])
        *sides, shares = np.split(duals.p[first:], ends[:-1])
        unpacked = unpack_duals(structure, duals._replace(p=duals.p[:first]))
        return replace(unpacked, pairs=PairWeights(structure.moves, shares, tuple(sides)))


def pack_pair_duals(duals: ProductDuals) -> Duals:
    """Put the factors of product weights one after another, as plans have them."""
    assert duals.pairs is not None
    packed = pack_duals(duals)
    parts = packed.p, *duals.pairs.sides, duals.pairs.shares
    return packed._replace(p=np.concatenate(parts))


def _count_sides(structure: ProductPairStructure) -> IntArray:
    """Count the sides of each attribute, shape (attributes,)."""
    moved = structure.moves.any(axis=0) & ~np.array(structure.batched.symmetric)
    return np.where(moved, np.array(structure.sizes, dtype=np.int64), 0)
