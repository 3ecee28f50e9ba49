"""Symmetry analysis: from a workload to its structure, or a sentence on why it is too large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fitplug.domain import MOST_SHARES, Domain, suggest_fewer_cells
from fitplug.errors import BudgetError, WorkloadError
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.base.subsets import Subsets, find_subsets, pad_sets
from fitplug.families.base.tree_shape import find_tree_levels, is_tree, targets_vary
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.chain.shape import ChainStructure, add_chain, is_chain
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.neighbours import MOST_PAIRS
from fitplug.numeric import to_positions
from fitplug.privacy import MOST_CONTRIBUTIONS
from fitplug.workload import ONE_RECORD, AddRemove, ReplaceOne, Unit, Workload, check_products

AnyTree = TypeVar("AnyTree", bound=TreeStructure)

MAX_PAIRS = 50_000_000
"""The largest number of pairs of a query group and a block on which its variances depend."""

MAX_TABLE = 14
"""The largest number k of attributes of one query group along which blocks are divided. The design
takes time that is quadratic in the 2^k margins of the group's table."""

MAX_ANSWERS = 2**32
"""The largest number of answers of a query group. They take 34 GB when they are released."""

MOST_CELLS, MOST_WORK = 4096, 1e11
"""The largest number of dense cells, and of operations of an iteration over all blocks, for which
the optimum over the product of several dense attributes is found, in a few minutes. For larger
workloads the optimum of the product family, or of a tree, is found.
"""

MOST_DENSE = 600
"""The most cells of the dense attributes beside a tree: a node takes time cubic in them."""

LEAST_CHAIN = 4097
"""The fewest cells, told apart by the prefixes of one attribute, that are taken for a chain. Fewer
have an optimum over a matrix, which takes minutes but costs up to a per cent less."""


def analyse_structure(
    workload: Workload,
    varying: Sequence[str] = (),
    family: bool | None = None,
    *,
    tree: Sequence[str] | None = None,
    unit: Unit = ONE_RECORD,
    chain: bool = False,
) -> Structure:
    """Find the symmetries of a workload and choose its structure.

    Args:
        workload: The workload.
        varying: Attributes that are not symmetric for another reason than the workload's.
        family: Whether to take the product family; None to take it if it is possible and the
            product of the attributes that are not symmetric is too large.
        tree: What `Structure.names_in_files` says of the tree: the attribute, and whether
            identical leaves are merged; empty for other structures. None to take a tree if there
            is one, and the product of the attributes that are not symmetric is too large.
        unit: Which data sets are neighbours.
        chain: Whether to take a chain if it is possible, however few cells it has.

    Returns:
        The structure.

    Raises:
        WorkloadError: If the workload has too many answers, blocks or coefficients.
        BudgetError: If plans for this unit cannot be made.
        DomainError: If the unit names an attribute that the domain does not have.
    """
    check_unit(unit, workload.domain)
    _check_measures(workload, unit)
    is_large = workload.groups.sizes > MAX_ANSWERS
    if is_large.any():
        group = workload.groups[int(np.argmax(is_large))]
        raise WorkloadError(
            f"query {group.name!r} has {group.size} answers, of {', '.join(group.attributes)}; "
            f"up to {MAX_ANSWERS} can be released: use fewer attributes together, or "
            + suggest_fewer_cells(workload.domain, group.attributes)
        )
    if isinstance(unit, ReplaceOne):
        return _build_pairs(workload, unit, family, tree)
    if not unit.is_of_records:
        return _build_persons(workload, unit, varying, tree)
    apart = _find_told_apart(workload, varying)
    symmetric = tuple(name for name in workload.attributes if name not in apart)
    told_apart = tuple(name for name in workload.attributes if name in apart)
    can_be_chain = len(told_apart) == 1 and is_chain(workload, told_apart[0])
    if tree:
        return _build_tree(workload, unit, symmetric, told_apart, tree, TreeStructure)
    if chain and can_be_chain:
        return _build_chain(workload, unit, symmetric, told_apart)
    if not family:
        subsets = _find_subsets(workload, symmetric, apart)
        found = MatrixStructure(workload, unit, symmetric, told_apart, subsets)
        is_possible = len(apart) > 1 or any(find_tree_levels(workload, name) for name in apart)
        if family is None and can_be_chain and _is_long(found):
            return _build_chain(workload, unit, symmetric, told_apart)
        takes_blocks = _fits(found)
        if tree is None and not takes_blocks and (name := _find_tree(workload, told_apart)):
            merged = () if name in varying else ("merged",)
            tree = (name, *merged)
            return _build_tree(workload, unit, symmetric, told_apart, tree, TreeStructure)
        if family is False or not is_possible or takes_blocks:
            found.check_size()
            return found
    check_products(workload.groups)
    subsets = _find_subsets(workload, workload.attributes, apart)
    product = ProductStructure(workload, unit, symmetric, told_apart, subsets)
    product.check_size()
    return product


def _build_persons(
    workload: Workload, unit: AddRemove, varying: Sequence[str], tree: Sequence[str] | None
) -> Structure:
    """Build the structure of persons with several records.

    All periods are told apart, unless there are too many cells and one attribute is a tree.
    """
    told = workload.attributes if unit.once_per is None else (unit.once_per,)
    apart = _find_told_apart(workload, (*varying, *told))
    symmetric = tuple(name for name in workload.attributes if name not in apart)
    told_apart = tuple(name for name in workload.attributes if name in apart)
    subsets = _find_subsets(workload, symmetric, apart)
    persons = PersonStructure(workload, unit, symmetric, told_apart, subsets)
    if tree is None and not _holds_persons(persons):
        # A tree leaves periods symmetric if no query tells them apart otherwise.
        apart = _find_told_apart(workload, varying)
        name = _find_tree(workload, [name for name in workload.attributes if name in apart])
        if name and unit.once_per in workload.attributes:
            tree = (name, *(() if name in varying else ("merged",)))
        elif name and unit.distinct:
            raise WorkloadError(
                f"hierarchies of this size are not designed for in the unit of privacy {unit}; "
                "give once_per, or records alone"
            )
    if not tree:
        persons.check_size()
        return persons
    apart = _find_told_apart(workload, varying)
    symmetric = tuple(name for name in workload.attributes if name not in apart)
    told_apart = tuple(name for name in workload.attributes if name in apart)
    return _build_tree(workload, unit, symmetric, told_apart, tree, PersonTreeStructure)


def _holds_persons(persons: PersonStructure) -> bool:
    """Tell whether the optimum over all pairs of records can be found."""
    return persons.has_room and persons.cells <= MOST_CELLS


def _check_measures(workload: Workload, unit: Unit) -> None:
    """Raise WorkloadError if plans of the workload's measures cannot be made for a unit."""
    domain = workload.domain
    measures = [name for name in workload.attributes if domain[name].quantities]
    shares = domain.count_shares(measures)
    if shares > MOST_SHARES:
        raise WorkloadError(
            f"the measures {', '.join(measures)} have {shares:,} units together (their numbers are "
            f"multiplied), and up to {MOST_SHARES:,} can be designed for; give them larger units"
        )
    if measures and isinstance(unit, AddRemove) and unit.distinct:
        raise WorkloadError(
            f"records with the measure {measures[0]} are divided over two cells, so that no two "
            "are in distinct cells; give records alone, or once_per"
        )


def check_unit(unit: Unit, domain: Domain) -> None:
    """Check that plans can be made for a unit of privacy.

    Raises:
        BudgetError: If they cannot.
        DomainError: If the unit names an attribute that the domain does not have.
    """
    unit.check_domain(domain)
    if isinstance(unit, ReplaceOne):
        return
    if unit.records > MOST_CONTRIBUTIONS:
        raise BudgetError(f"records = {unit.records} must be at most {MOST_CONTRIBUTIONS}")


def _build_chain(
    workload: Workload,
    unit: Unit,
    symmetric: tuple[str, ...],
    told_apart: tuple[str, ...],
) -> Structure:
    """Build the structure of a chain."""
    subsets = add_chain(_find_subsets(workload, symmetric, set()), workload, *told_apart)
    found = ChainStructure(workload, unit, symmetric, told_apart, subsets)
    found.check_size()
    return found


def _build_pairs(
    workload: Workload, unit: ReplaceOne, family: bool | None, tree: Sequence[str] | None
) -> Structure:
    """Build the structure of neighbours that replace a record.

    The cells of attributes that are not symmetric are told apart, unless they are too many.
    """
    names = workload.attributes
    apart = _find_told_apart(workload, ())
    if not apart:
        subsets = _find_subsets(workload, names, set())
        moves = MoveStructure(workload, unit, names, (), subsets)
        moves.check_size()
        return moves
    symmetric_names = tuple(name for name in names if name not in apart)
    told_apart = tuple(name for name in names if name in apart)
    subsets = _find_subsets(workload, symmetric_names, apart)
    found = PairStructure(workload, unit, symmetric_names, told_apart, subsets)
    own = _find_tree(workload, told_apart) if tree is None and family is None else None
    if own is not None and (_has_many_nodes(found, own) or not found.fits):
        tree = (own, "merged")
    if tree:
        return _build_tree(workload, unit, symmetric_names, told_apart, tree, TreePairStructure)
    is_possible = len(names) > 1 and not any(find_tree_levels(workload, name) for name in apart)
    if is_possible and (family or (family is None and not found.fits)):
        check_products(workload.groups)
        of_all = _find_subsets(workload, names, apart)
        pairs = ProductPairStructure(workload, unit, symmetric_names, told_apart, of_all)
        pairs.check_size()
        return pairs
    found.check_size()
    return found


def _has_many_nodes(found: PairStructure, tree: str) -> bool:
    """Tell whether a hierarchy has too many pairs of nodes, or too large matrices of queries.

    This is known before the matrices are made.
    """
    factors = found.workload.groups.factors
    nodes = max(factor.rows for factor in factors if factor.attribute == tree)
    # Each region has cells of all nodes of the finest level, unless it has those of one.
    is_kept = tree in (found.public_attributes or ())
    return found.entries > MAX_ENTRIES or (not is_kept and nodes * (nodes - 1) > 2 * MOST_PAIRS)


def _find_tree(workload: Workload, told_apart: Sequence[str]) -> str | None:
    """Find the attribute that is a tree, if there is one and the others are small enough."""
    trees = [name for name in told_apart if is_tree(workload, name)]
    if len(trees) != 1:
        return None
    others = [name for name in told_apart if name != trees[0]]
    return trees[0] if math.prod(workload.domain.shape_of(others)) <= MOST_DENSE else None


def _build_tree(
    workload: Workload,
    unit: Unit,
    symmetric: tuple[str, ...],
    told_apart: tuple[str, ...],
    tree: Sequence[str],
    kind: type[AnyTree],
) -> AnyTree:
    """Build the structure of one tree, or raise WorkloadError where it is too large."""
    name, *merged = tree
    subsets = _find_subsets(workload, symmetric, set(told_apart))
    found = kind(workload, unit, symmetric, told_apart, subsets, name, bool(merged))
    found.check_size()
    return found


def _find_told_apart(workload: Workload, varying: Sequence[str]) -> set[str]:
    """Find the attributes that are not symmetric."""
    groups = workload.groups
    apart = set(varying)
    apart.update(f.attribute for f in groups.factors if f.kind not in ("identity", "total"))
    for group in map(groups.__getitem__, groups.with_arrays.tolist()):
        for axis, factor in enumerate(group.factors):
            if factor.kind == "total" or factor.attribute in apart:
                continue
            if targets_vary(group.variances, axis):
                apart.add(factor.attribute)
    return apart


def _is_long(found: MatrixStructure) -> bool:
    """Tell whether the cells that one attribute's queries tell apart are too many for a matrix."""
    groups, blocks = found.subsets.pairs
    counts = np.array([float(rows) for rows in found.row_counts])
    rows = np.bincount(blocks, counts[groups], len(found.blocks))
    told_apart = min(float(rows.max()), float(found.cells))
    return told_apart >= LEAST_CHAIN or found.entries > MAX_ENTRIES


def _fits(found: Structure) -> bool:
    """Tell whether the product of the dense attributes is small enough for its optimum."""
    groups, blocks = found.subsets.pairs
    rows = np.bincount(blocks, found.row_counts[groups].astype(np.float64), len(found.blocks))
    rank = np.minimum(rows, float(found.cells))
    work = float((rank**2 * (rank + rows + float(found.cells))).sum())
    return found.cells <= MOST_CELLS and work <= MOST_WORK


def _find_subsets(workload: Workload, attributes: Sequence[str], apart: set[str]) -> Subsets:
    """Find the subsets of the groups' sets A_t of the attributes that blocks are made of."""
    position = {name: i for i, name in enumerate(attributes)}
    groups, domain = workload.groups, workload.domain
    # The one cell of an attribute without others has no contrasts.
    members = [
        position[f.attribute]
        if f.kind != "total"
        and f.attribute in position
        and (f.attribute in apart or domain[f.attribute].size > 1)
        else -1
        for f in groups.factors
    ]
    counts, used = groups.gather_sets(np.array(members, dtype=np.int64))
    if not apart.intersection(attributes):
        zero = [f.kind == "matrix" and not f.matrix().any() for f in groups.factors]
        asks_nothing = groups.find_any(np.array(zero, dtype=bool))
        used = used[~np.repeat(asks_nothing, to_positions(counts))]
        counts = np.where(asks_nothing, 0, counts)
    largest = int(np.argmax(counts))
    if counts[largest] > MAX_TABLE:
        group = groups[largest]
        name = repr(group.name) if len(group.name) < 60 else list_names(group.attributes)
        raise WorkloadError(
            f"query {name} is a table of {counts[largest]} attributes; up to {MAX_TABLE} can be "
            "designed for, ask tables of fewer attributes together"
        )
    pairs = int((2**counts).sum())
    if pairs > MAX_PAIRS:
        raise WorkloadError(
            f"the workload's tables hold {pairs} tables of fewer attributes, and up to {MAX_PAIRS} "
            "can be designed for; ask fewer tables, or of fewer attributes"
        )
    sets = pad_sets(counts, used)
    return find_subsets(domain.shape_of(tuple(attributes)), sets)
