"""Every structure is in the table of families, and in that of designs."""

from __future__ import annotations

import inspect

import pytest

import fitplug as fp
from fitplug.families import (
    PersonStructure,
    PersonTreeStructure,
    Structure,
    analyse_structure,
    designs,
)
from fitplug.families.base.family import FAMILIES
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.families.siblings.shape import SiblingPairStructure, SiblingStructure, UnfoldedPairs
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from tests.helpers.plans import MIXED, PRODUCTS


def test_every_structure_is_registered_everywhere() -> None:
    structures = {
        MatrixStructure,
        ProductStructure,
        TreeStructure,
        ChainStructure,
        BinnedChainStructure,
        ChainPersonStructure,
        PairStructure,
        PersonStructure,
        PersonTreeStructure,
        MoveStructure,
        SiblingStructure,
        SiblingPairStructure,
        UnfoldedPairs,
        ProductPairStructure,
        ChainPairStructure,
        ProductPersonStructure,
        TreePairStructure,
    }
    found: set[type[Structure]] = set()
    below: list[type[Structure]] = [Structure]
    while below:
        below = [own for kind in below for own in kind.__subclasses__()]
        found.update(kind for kind in below if not inspect.isabstract(kind))
    assert found == structures
    assert set(FAMILIES) == structures
    assert set(designs.DESIGNS) == structures


@pytest.mark.parametrize(
    ("workload", "family", "tree", "kind"),
    [
        (MIXED["pyramid"], None, None, MatrixStructure),
        (MIXED["marginals"], None, None, MatrixStructure),
        (PRODUCTS["prefixes"], None, None, MatrixStructure),
        (PRODUCTS["prefixes"], True, None, ProductStructure),
        (PRODUCTS["geography"], True, None, ProductStructure),
        (PRODUCTS["geography"], None, None, MatrixStructure),
        (PRODUCTS["geography"], None, ("place", "merged"), TreeStructure),
        (PRODUCTS["geography"], None, ("place",), TreeStructure),
    ],
)
def test_the_structure_is_chosen_once(workload, family, tree, kind) -> None:
    structure = analyse_structure(workload(), family=family, tree=tree)
    assert type(structure) is kind
    holds_optimum = kind is MatrixStructure
    assert structure.holds_optimum == holds_optimum
    assert bool(structure.remedy) != holds_optimum
    # What a plan file says of the structure finds it again.
    named = structure.names_in_files
    again = analyse_structure(
        workload(), named["dense"], family=bool(named["ordered"]), tree=named.get("tree", ())
    )
    assert type(again) is kind
    assert again.names_in_files == named


def test_one_cell_is_what_blocks_of_numbers_are_over() -> None:
    for workload, family in ((MIXED["marginals"], None), (PRODUCTS["mixed"], True)):
        structure = analyse_structure(workload(), family=family)
        assert structure.cells == structure.differences == 1
        assert structure.build_block_matrix(0).tolist() == [[1.0]]


def test_a_design_of_each_structure_is_verified() -> None:
    for workload in (MIXED["pyramid"], MIXED["marginals"]):
        fp.design(workload()).verify()
