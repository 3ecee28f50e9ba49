"""Neighbours: who is protected. A difference between neighbours is a list of signed records."""

from fitplug.neighbours.cell_pairs import (
    MOST_PAIRS as MOST_PAIRS,
    TILE as TILE,
    CellPairs as CellPairs,
    GroundedQueries as GroundedQueries,
    PairEnds as PairEnds,
    find_pairs as find_pairs,
    ground_queries as ground_queries,
    mix_sets as mix_sets,
)
from fitplug.neighbours.move_bound import upper_costliest_move as upper_costliest_move
from fitplug.neighbours.move_costs import (
    LARGEST_SUM as LARGEST_SUM,
    MOST_LISTED as MOST_LISTED,
    MoveCosts as MoveCosts,
    measure_all_moves as measure_all_moves,
    undo_scale as undo_scale,
)
from fitplug.neighbours.person_cost import (
    find_costly_at_cells as find_costly_at_cells,
    find_costly_differences as find_costly_differences,
    find_missed_differences as find_missed_differences,
    upper_largest_cost as upper_largest_cost,
)
from fitplug.neighbours.persons import (
    PersonRecords as PersonRecords,
    RecordProducts as RecordProducts,
    RecordSets as RecordSets,
    build_record_products as build_record_products,
    list_single_records as list_single_records,
)
