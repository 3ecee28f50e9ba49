"""Families: which covariances a workload may have, and all that follows from one of them."""

from fitplug.families.analysis import (
    analyse_structure,
    find_nearer_structure,
    find_substitute_structure,
)
from fitplug.families.base.dense_mechanism import (
    build_dense_covariance,
    build_dense_strategy,
    list_measured_tables,
)
from fitplug.families.base.family import Duals, Frame, certify_bound, find_family
from fitplug.families.base.mechanism import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    SATURATION,
    Mechanism,
    Product,
    may_be_clamped,
)
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
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, PersonStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.causality import (
    date_answers,
    date_queries,
    is_causal,
    separates_periods,
)
from fitplug.families.registry import register_families
from fitplug.families.tree.shape.persons import PersonTreeStructure

register_families()

__all__ = [
    "FEWEST_RECORDS",
    "LARGEST_NOISE",
    "LARGEST_WEIGHT",
    "LEAST_NOISE",
    "MAX_AXES",
    "MAX_ENTRIES",
    "PART",
    "SATURATION",
    "CellBudgets",
    "Duals",
    "Frame",
    "IntegerStrategy",
    "Mechanism",
    "Objective",
    "Output",
    "PairStructure",
    "PartedStrategy",
    "PersonStructure",
    "PersonTreeStructure",
    "Product",
    "Slab",
    "Structure",
    "analyse_structure",
    "build_dense_covariance",
    "build_dense_strategy",
    "certify_bound",
    "check_weight",
    "date_answers",
    "date_queries",
    "find_family",
    "find_nearer_structure",
    "find_substitute_structure",
    "is_causal",
    "list_measured_tables",
    "list_names",
    "may_be_clamped",
    "meets_targets",
    "name_cell",
    "read_cell_budgets",
    "separates_periods",
]
