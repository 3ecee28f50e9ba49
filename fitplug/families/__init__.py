"""Families: which covariances a workload may have, and all that follows from one of them."""

from fitplug.families.analysis import analyse_structure as analyse_structure
from fitplug.families.analysis import find_nearer_structure as find_nearer_structure
from fitplug.families.analysis import find_substitute_structure as find_substitute_structure
from fitplug.families.base.dense_mechanism import build_dense_covariance as build_dense_covariance
from fitplug.families.base.dense_mechanism import build_dense_strategy as build_dense_strategy
from fitplug.families.base.dense_mechanism import list_measured_tables as list_measured_tables
from fitplug.families.base.family import Duals as Duals
from fitplug.families.base.family import Frame as Frame
from fitplug.families.base.family import certify_bound as certify_bound
from fitplug.families.base.family import find_family as find_family
from fitplug.families.base.mechanism import FEWEST_RECORDS as FEWEST_RECORDS
from fitplug.families.base.mechanism import LARGEST_NOISE as LARGEST_NOISE
from fitplug.families.base.mechanism import LEAST_NOISE as LEAST_NOISE
from fitplug.families.base.mechanism import SATURATION as SATURATION
from fitplug.families.base.mechanism import Mechanism as Mechanism
from fitplug.families.base.mechanism import Product as Product
from fitplug.families.base.mechanism import may_be_clamped as may_be_clamped
from fitplug.families.base.objective import LARGEST_WEIGHT as LARGEST_WEIGHT
from fitplug.families.base.objective import MAX_AXES as MAX_AXES
from fitplug.families.base.objective import CellBudgets as CellBudgets
from fitplug.families.base.objective import Objective as Objective
from fitplug.families.base.objective import check_weight as check_weight
from fitplug.families.base.objective import name_cell as name_cell
from fitplug.families.base.objective import read_cell_budgets as read_cell_budgets
from fitplug.families.base.parted_strategy import PartedStrategy as PartedStrategy
from fitplug.families.base.pieces import PART as PART
from fitplug.families.base.pieces import Output as Output
from fitplug.families.base.pieces import Slab as Slab
from fitplug.families.base.strategy import IntegerStrategy as IntegerStrategy
from fitplug.families.base.strategy import meets_targets as meets_targets
from fitplug.families.base.structure import Structure as Structure
from fitplug.families.base.structure import list_names as list_names
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES as MAX_ENTRIES
from fitplug.families.blocks.shape.matrices import PersonStructure as PersonStructure
from fitplug.families.blocks.shape.pairs import PairStructure as PairStructure
from fitplug.families.blocks.strategy.causality import date_answers as date_answers
from fitplug.families.blocks.strategy.causality import date_queries as date_queries
from fitplug.families.blocks.strategy.causality import is_causal as is_causal
from fitplug.families.blocks.strategy.causality import separates_periods as separates_periods
from fitplug.families.registry import register_families
from fitplug.families.tree.shape.persons import PersonTreeStructure as PersonTreeStructure

register_families()
