"""Families: which covariances a workload may have, and all that follows from one of them."""

from fitplug.families.analysis import analyse_structure, check_unit, find_optimum_structure
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts, make_contrasts
from fitplug.families.base.dense_mechanism import (
    build_dense_covariance,
    build_dense_strategy,
    list_measured_tables,
)
from fitplug.families.base.family import (
    NO_FRAME,
    Duals,
    Frame,
    build_strategy,
    certify_bound,
    find_family,
)
from fitplug.families.base.integers import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    may_be_clamped,
)
from fitplug.families.base.mechanism import Mechanism, Product
from fitplug.families.base.objective import (
    LARGEST_WEIGHT,
    MAX_AXES,
    CellBudgets,
    Objective,
    check_weight,
    name_cell,
    read_cell_budgets,
)
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART, Output, Slab
from fitplug.families.base.strategy import IntegerStrategy, meets_targets
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.strategy.causality import date_answers, date_queries, is_causal
from fitplug.families.chain.certificate import sweep_chain
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.registry import register_families
from fitplug.families.tree.certificate.block_weights import average_weights
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import TreeBlock, TreeIntegers
from fitplug.families.tree.strategy.child_matrices import StepMatrices

register_families()

__all__ = [
    "FEWEST_RECORDS",
    "LARGEST_NOISE",
    "LARGEST_WEIGHT",
    "LEAST_NOISE",
    "MAX_AXES",
    "MAX_ENTRIES",
    "NO_FRAME",
    "PART",
    "Basis",
    "BlockSet",
    "CellBudgets",
    "ChainMatrix",
    "ChainStructure",
    "DenseMatrix",
    "Duals",
    "Frame",
    "IntegerStrategy",
    "MatrixStructure",
    "Mechanism",
    "MoveStructure",
    "NestedChain",
    "Objective",
    "Output",
    "PairStructure",
    "PartedStrategy",
    "PersonStructure",
    "PersonTreeStructure",
    "Product",
    "ProductPairStructure",
    "ProductStructure",
    "Slab",
    "StepMatrices",
    "Structure",
    "TreeBlock",
    "TreeIntegers",
    "TreePairStructure",
    "TreeStep",
    "TreeStructure",
    "analyse_structure",
    "average_weights",
    "build_contrasts",
    "build_dense_covariance",
    "build_dense_strategy",
    "build_strategy",
    "certify_bound",
    "check_unit",
    "check_weight",
    "date_answers",
    "date_queries",
    "find_family",
    "find_optimum_structure",
    "is_causal",
    "list_measured_tables",
    "list_names",
    "make_contrasts",
    "may_be_clamped",
    "meets_targets",
    "name_cell",
    "read_cell_budgets",
    "sweep_chain",
]
