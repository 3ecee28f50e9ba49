"""Families: which covariances a workload may have, and all that follows from one of them."""

from fitplug.families.analysis import (
    analyse_structure as analyse_structure,
    find_nearer_structure as find_nearer_structure,
    find_substitute_structure as find_substitute_structure,
)
from fitplug.families.base.dense_mechanism import (
    build_dense_covariance as build_dense_covariance,
    build_dense_strategy as build_dense_strategy,
    list_measured_tables as list_measured_tables,
)
from fitplug.families.base.family import (
    Duals as Duals,
    Frame as Frame,
    certify_bound as certify_bound,
    find_family as find_family,
)
from fitplug.families.base.mechanism import (
    FEWEST_RECORDS as FEWEST_RECORDS,
    LARGEST_NOISE as LARGEST_NOISE,
    LEAST_NOISE as LEAST_NOISE,
    SATURATION as SATURATION,
    Mechanism as Mechanism,
    Product as Product,
    may_be_clamped as may_be_clamped,
)
from fitplug.families.base.objective import (
    LARGEST_WEIGHT as LARGEST_WEIGHT,
    MAX_AXES as MAX_AXES,
    CellBudgets as CellBudgets,
    Objective as Objective,
    check_weight as check_weight,
    name_cell as name_cell,
    read_cell_budgets as read_cell_budgets,
)
from fitplug.families.base.parted_strategy import PartedStrategy as PartedStrategy
from fitplug.families.base.pieces import PART as PART, Output as Output, Slab as Slab
from fitplug.families.base.strategy import (
    IntegerStrategy as IntegerStrategy,
    meets_targets as meets_targets,
)
from fitplug.families.base.structure import Structure as Structure, list_names as list_names
from fitplug.families.blocks.shape.matrices import (
    MAX_ENTRIES as MAX_ENTRIES,
    PersonStructure as PersonStructure,
)
from fitplug.families.blocks.shape.pairs import PairStructure as PairStructure
from fitplug.families.blocks.strategy.causality import (
    date_answers as date_answers,
    date_queries as date_queries,
    is_causal as is_causal,
    separates_periods as separates_periods,
)
from fitplug.families.registry import register_families
from fitplug.families.tree.shape.persons import PersonTreeStructure as PersonTreeStructure

register_families()
