"""Neighbours: who is protected. A difference between neighbours is a list of signed records."""

from fitplug.neighbours.cell_pairs import (
    MOST_PAIRS,
    TILE,
    CellPairs,
    GroundedQueries,
    PairEnds,
    find_pairs,
    ground_queries,
    mix_sets,
)
from fitplug.neighbours.move_bound import upper_costliest_move
from fitplug.neighbours.move_costs import (
    LARGEST_SUM,
    MOST_LISTED,
    MoveCosts,
    measure_all_moves,
    undo_scale,
)
from fitplug.neighbours.person_cost import (
    find_costly_at_cells,
    find_costly_differences,
    find_missed_differences,
    upper_largest_cost,
)
from fitplug.neighbours.persons import (
    PersonRecords,
    RecordProducts,
    RecordSets,
    build_record_products,
    list_single_records,
)

__all__ = [
    "LARGEST_SUM",
    "MOST_LISTED",
    "MOST_PAIRS",
    "TILE",
    "CellPairs",
    "GroundedQueries",
    "MoveCosts",
    "PairEnds",
    "PersonRecords",
    "RecordProducts",
    "RecordSets",
    "build_record_products",
    "find_costly_at_cells",
    "find_costly_differences",
    "find_missed_differences",
    "find_pairs",
    "ground_queries",
    "list_single_records",
    "measure_all_moves",
    "mix_sets",
    "undo_scale",
    "upper_costliest_move",
    "upper_largest_cost",
]
