"""Neighbours: who is protected. A difference between neighbours is a list of signed records."""

from fitplug.neighbours.cell_pairs import MOST_PAIRS as MOST_PAIRS
from fitplug.neighbours.cell_pairs import TILE as TILE
from fitplug.neighbours.cell_pairs import CellPairs as CellPairs
from fitplug.neighbours.cell_pairs import GroundedQueries as GroundedQueries
from fitplug.neighbours.cell_pairs import PairEnds as PairEnds
from fitplug.neighbours.cell_pairs import find_pairs as find_pairs
from fitplug.neighbours.cell_pairs import ground_queries as ground_queries
from fitplug.neighbours.cell_pairs import mix_sets as mix_sets
from fitplug.neighbours.move_bound import upper_costliest_move as upper_costliest_move
from fitplug.neighbours.move_costs import LARGEST_SUM as LARGEST_SUM
from fitplug.neighbours.move_costs import MOST_LISTED as MOST_LISTED
from fitplug.neighbours.move_costs import MoveCosts as MoveCosts
from fitplug.neighbours.move_costs import measure_all_moves as measure_all_moves
from fitplug.neighbours.move_costs import undo_scale as undo_scale
from fitplug.neighbours.person_cost import find_costly_at_cells as find_costly_at_cells
from fitplug.neighbours.person_cost import find_costly_differences as find_costly_differences
from fitplug.neighbours.person_cost import find_missed_differences as find_missed_differences
from fitplug.neighbours.person_cost import upper_largest_cost as upper_largest_cost
from fitplug.neighbours.persons import PersonRecords as PersonRecords
from fitplug.neighbours.persons import RecordProducts as RecordProducts
from fitplug.neighbours.persons import RecordSets as RecordSets
from fitplug.neighbours.persons import build_record_products as build_record_products
from fitplug.neighbours.persons import list_single_records as list_single_records
