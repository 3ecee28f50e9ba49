"""The table of designs: the function that finds the strategy and duals of each structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from fitplug.families.base.family import Design, find_family
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.design.moves import design_moves
from fitplug.families.blocks.design.optimum import design_matrices
from fitplug.families.blocks.design.pairs import design_pairs
from fitplug.families.blocks.design.persons import design_persons
from fitplug.families.blocks.shape.matrices import MatrixStructure, PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.design.bins import design_binned_chain
from fitplug.families.chain.design.optimum import design_chain
from fitplug.families.chain.design.pairs import design_chain_pairs
from fitplug.families.chain.design.periods import design_chain_persons
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.product.design.products import design_product_persons, design_products
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.families.siblings.design import design_siblings
from fitplug.families.siblings.shape import SiblingPairStructure, SiblingStructure, UnfoldedPairs
from fitplug.families.tree.design.designs import (
    design_person_trees,
    design_tree_pairs,
    design_trees,
)
from fitplug.families.tree.design.dual_optimum import find_start
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.solve import Options

DesignFunction: TypeAlias = Callable[[Any, Objective, Options, float], Design]


def _design_cells(
    structure: MatrixStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the objective over cells; those of a tree begin near the optimum."""
    start = find_start(structure, objective, options)
    return design_matrices(structure, objective, replace(options, start=start), loss)


DESIGNS: Mapping[type[Structure], DesignFunction] = {
    MatrixStructure: _design_cells,
    PersonStructure: design_persons,
    PairStructure: design_pairs,
    UnfoldedPairs: design_pairs,
    MoveStructure: design_moves,
    ProductStructure: design_products,
    ProductPairStructure: design_products,
    ProductPersonStructure: design_product_persons,
    SiblingStructure: design_siblings,
    SiblingPairStructure: design_siblings,
    TreeStructure: design_trees,
    TreePairStructure: design_tree_pairs,
    PersonTreeStructure: design_person_trees,
    ChainStructure: design_chain,
    BinnedChainStructure: design_binned_chain,
    ChainPairStructure: design_chain_pairs,
    ChainPersonStructure: design_chain_persons,
}
"""The design function of each structure."""


def find_design(
    structure: Structure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best strategy of a structure, in integers.

    Args:
        structure: The structure.
        objective: The objective; the plain privacy cost unless the structure's certifier takes
            others.
        options: How to solve.
        loss: How much rounding to integers may add to the cost, relatively.

    Returns:
        The design.

    Raises:
        WorkloadError: If the rank of the workload cannot be decided, or too many queries have
            individual targets.
        DesignError: If no integer strategy can be made, or its cost or variances cannot be bounded.
    """
    assert objective.plain or find_family(structure).certifier.takes_objectives
    return DESIGNS[type(structure)](structure, objective, options, loss)
