"""The mechanism: an integer strategy matrix, its exact cost, its answers and estimates."""

from fitplug.mechanism.answers import may_be_clamped
from fitplug.mechanism.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.mechanism.basis import Basis, choose_basis, solve_from_right
from fitplug.mechanism.block_set import BlockSet
from fitplug.mechanism.boxed_combinations import Product
from fitplug.mechanism.causality import (
    choose_causal_basis,
    date_answers,
    date_queries,
    is_causal,
)
from fitplug.mechanism.chain_form import place_chain
from fitplug.mechanism.contrasts import build_contrasts, compute_precisions, make_contrasts
from fitplug.mechanism.costly_differences import find_costly_differences, find_missed_differences
from fitplug.mechanism.dispatch import (
    answer_exactly,
    bound_boxed_stds,
    bound_combined_stds,
    bound_overstatement,
    bound_unit_variances,
    build_dense_covariance,
    build_dense_strategy,
    build_strategy,
    build_tree_strategy,
    check_strategy,
    compute_boxed_covariance,
    compute_combined_covariance,
    compute_exact_cost,
    confirm_cost,
    cut_strategy,
    list_measured_tables,
    list_mechanisms,
    list_tables,
    make_estimates,
    read_attribute_matrices,
    restate_strategy,
)
from fitplug.mechanism.integer_chain import ChainMatrix
from fitplug.mechanism.integer_limits import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    MAX_ENTRY,
    SATURATION,
)
from fitplug.mechanism.integer_tree import TreeMatrix
from fitplug.mechanism.mechanisms import Mechanism
from fitplug.mechanism.move_bound import bound_costliest_move
from fitplug.mechanism.move_costs import LARGEST_SUM, MoveCosts
from fitplug.mechanism.parted_strategy import PART, Output, PartedStrategy, Slab
from fitplug.mechanism.person_cost import bound_largest_cost
from fitplug.mechanism.prefix_variances import bound_prefix_stds
from fitplug.mechanism.record_products import RecordProducts, build_record_products
from fitplug.mechanism.strategy import IntegerStrategy, meets_targets
from fitplug.mechanism.total_update import find_total_covariances
from fitplug.mechanism.tree_block import StepMatrices, TreeBlock

__all__ = [
    "FEWEST_RECORDS",
    "LARGEST_NOISE",
    "LARGEST_SUM",
    "LEAST_NOISE",
    "MAX_ENTRY",
    "PART",
    "SATURATION",
    "AttributeMatrix",
    "Basis",
    "BlockSet",
    "ChainMatrix",
    "DenseMatrix",
    "IntegerStrategy",
    "Mechanism",
    "MoveCosts",
    "Output",
    "PartedStrategy",
    "Product",
    "RecordProducts",
    "Slab",
    "StepMatrices",
    "TreeBlock",
    "TreeMatrix",
    "answer_exactly",
    "bound_boxed_stds",
    "bound_combined_stds",
    "bound_costliest_move",
    "bound_largest_cost",
    "bound_overstatement",
    "bound_prefix_stds",
    "bound_unit_variances",
    "build_contrasts",
    "build_dense_covariance",
    "build_dense_strategy",
    "build_record_products",
    "build_strategy",
    "build_tree_strategy",
    "check_strategy",
    "choose_basis",
    "choose_causal_basis",
    "compute_boxed_covariance",
    "compute_combined_covariance",
    "compute_exact_cost",
    "compute_precisions",
    "confirm_cost",
    "cut_strategy",
    "date_answers",
    "date_queries",
    "find_costly_differences",
    "find_missed_differences",
    "find_total_covariances",
    "is_causal",
    "list_measured_tables",
    "list_mechanisms",
    "list_tables",
    "make_contrasts",
    "make_estimates",
    "may_be_clamped",
    "meets_targets",
    "place_chain",
    "read_attribute_matrices",
    "restate_strategy",
    "solve_from_right",
]
