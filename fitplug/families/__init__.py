"""Families: which covariances a workload may have, and all that follows from one of them."""

from fitplug.families.analysis import analyse_structure, check_unit
from fitplug.families.base.answers import may_be_clamped
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.basis import Basis
from fitplug.families.base.boxed_combinations import Product
from fitplug.families.base.contrasts import build_contrasts, make_contrasts
from fitplug.families.base.family import (
    NO_FRAME,
    Duals,
    Frame,
    certify_bound,
    certify_plan_tiers,
    check_duals_form,
    count_duals,
    share_weight,
)
from fitplug.families.base.integers import FEWEST_RECORDS, LARGEST_NOISE, LEAST_NOISE
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
from fitplug.families.base.strategies import (
    answer_exactly,
    build_dense_covariance,
    build_dense_strategy,
    build_strategy,
    check_strategy,
    compute_boxed_covariance,
    compute_combined_covariance,
    compute_cost,
    confirm_cost,
    cut_strategy,
    list_measured_tables,
    list_mechanisms,
    list_tables,
    make_estimates,
    read_attribute_matrices,
    restate_strategy,
    upper_boxed_stds,
    upper_combined_stds,
    upper_overstatement,
    upper_unit_variances,
)
from fitplug.families.base.strategy import BlockSet, IntegerStrategy, meets_targets
from fitplug.families.base.strategy_form import Mechanism
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.strategy.causality import date_answers, date_queries, is_causal
from fitplug.families.chain.certificate import sweep_chain
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.nested_chain import NestedChain
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.registry import register_families
from fitplug.families.tree.certificate.block_weights import average_weights
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.node_tree import TreeStep
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import StepMatrices, TreeBlock
from fitplug.families.tree.strategy.forms import build_tree_strategy

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
    "TreePairStructure",
    "TreeStep",
    "TreeStructure",
    "analyse_structure",
    "answer_exactly",
    "average_weights",
    "build_contrasts",
    "build_dense_covariance",
    "build_dense_strategy",
    "build_strategy",
    "build_tree_strategy",
    "certify_bound",
    "certify_plan_tiers",
    "check_duals_form",
    "check_strategy",
    "check_unit",
    "check_weight",
    "compute_boxed_covariance",
    "compute_combined_covariance",
    "compute_cost",
    "confirm_cost",
    "count_duals",
    "cut_strategy",
    "date_answers",
    "date_queries",
    "is_causal",
    "list_measured_tables",
    "list_mechanisms",
    "list_names",
    "list_tables",
    "make_contrasts",
    "make_estimates",
    "may_be_clamped",
    "meets_targets",
    "name_cell",
    "read_attribute_matrices",
    "read_cell_budgets",
    "restate_strategy",
    "share_weight",
    "sweep_chain",
    "upper_boxed_stds",
    "upper_combined_stds",
    "upper_overstatement",
    "upper_unit_variances",
]
