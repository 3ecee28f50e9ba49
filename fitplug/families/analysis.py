"""Symmetry analysis: from a workload to its structure, or a sentence on why it is too large."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitplug.domain import get_codec, get_shape, suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import Structure
from fitplug.families.base.tree_shape import find_tree_levels, is_tree, targets_vary
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.blocks.shape.matrices import MAX_ENTRIES, MatrixStructure, PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.shape.bins import BinnedChainStructure, build_chain
from fitplug.families.chain.shape.chains import ChainStructure, build_person_chain
from fitplug.families.chain.shape.pairs import build_chain_pairs
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.families.siblings.shape import SiblingPairStructure, SiblingStructure, unfold_siblings
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.work import check_work, count_rows, estimate_tree_work, estimate_work
from fitplug.workload import (
    ONE_RECORD,
    AddRemove,
    ReplaceOne,
    Unit,
    Workload,
    allows_any_rows,
    check_measures,
    check_products,
    check_unit,
)

MAX_ANSWERS = 2**32
"""The most answers of a query group. Their release takes 34 GB."""

MOST_CELLS, MOST_WORK = 100_000, 1e11
"""The most dense cells, and the most operations per iteration over all blocks, for which fitplug
finds the optimum over the product of several dense attributes. It takes a few minutes. Larger
workloads get the optimum of the product family, or of a tree.
"""

MANY_CELLS, MOST_WIDE_WORK, MOST_AGAIN, MOST_WIDE_ENTRIES = 4096, 2.5e9, 1e10, 40_000_000
"""Limits for more than `MANY_CELLS` dense cells: the most operations per iteration, the most where
the gap of the product family is large, and the most coefficients of all blocks together. The
queries then have far fewer dimensions than cells, and the optimum takes about a minute."""

MOST_STARTED_WORK = 2.5e11
"""The most operations of an iteration over the cells of a tree: one or two are made."""

LARGE_GAP = 0.02
"""The gap of rho above which the optimum is worth a few minutes."""

MOST_TREE_WORK = 6e8
"""The most operations per sweep through one of several trees, which is tried if the gap of the
product family is large. The design takes about a minute."""

MOST_SIBLING_WORK, MOST_WIDE_SIBLING_WORK = 2e8, 1e9
"""The most operations per iteration over unfolded hierarchies: instead of a product, or of more
operations over all cells, where the design takes about ten seconds; and after a product or a tree,
where it takes about half a minute. After one whose gap is large, it is `MOST_WORK`."""

MOST_SMALL_CELLS = 512
"""The most cells whose pairs are distinguished even where hierarchies could be unfolded."""

_ONCE = 1 / 12
"""The share of the work over cells per iteration, where cells are many: it is done only once."""

MOST_DENSE = 600
"""The most cells of dense attributes crossed with a tree. Time per node is cubic in them."""

MOST_BEFORE_TREE = 1e9
"""The most operations per iteration over the cells of one tree, or of an attribute whose cells have
individual targets. Above, a tree takes a hundredth of the time and costs 0.1% to 0.3% more Delta.
Where its gap is large, as for lopsided trees, the optimum is found as well."""

LEAST_CHAIN = 1025
"""The fewest cells, distinguished by the prefixes of one attribute, for which a chain is used. With
fewer cells, and unless blocks are many, the optimum over a matrix costs 0.2% to 0.6% less rho."""


def analyse_structure(
    workload: Workload,
    varying: Sequence[str] = (),
    family: bool | None = None,
    *,
    tree: Sequence[str] | None = None,
    unit: Unit = ONE_RECORD,
    chain: bool = False,
    siblings: bool = False,
) -> Structure:
    """Find the symmetries of a workload and choose its structure.

    Args:
        workload: The workload.
        varying: Further attributes that must not be treated as symmetric.
        family: Whether to take the product family; None to take it if it is possible and the
            product of the asymmetric attributes is too large.
        tree: The tree as in `Structure.names_in_files`: the attribute and, if identical leaves are
            merged, "merged"; empty for other structures. None to take a tree if there is one and
            the product of the asymmetric attributes is too large.
        unit: Which data sets are neighbours.
        chain: Whether to take a chain wherever possible, however few cells it has.
        siblings: Whether to unfold hierarchies.

    Returns:
        The structure.

    Raises:
        WorkloadError: If the workload has too many answers, blocks or coefficients.
        BudgetError: If fitplug cannot make plans for this unit.
        DomainError: If the unit names an attribute that the domain does not have.
    """
    check_unit(unit, workload.domain)
    check_measures(unit, workload.domain, workload.attributes)
    is_large = workload.groups.sizes > MAX_ANSWERS
    if is_large.any():
        group = workload.groups[int(np.argmax(is_large))]
        raise WorkloadError(
            f"query {group.name!r} has {group.size:,} answers; the limit is {MAX_ANSWERS:,}. Use "
            f"{suggest_fewer_cells(workload.domain, group.attributes)}."
        )
    if isinstance(unit, ReplaceOne):
        return _build_pairs(workload, unit, family, tree, siblings, chain)
    if not allows_any_rows(unit):
        return _build_persons(workload, unit, varying, family, tree, chain)
    symmetric = _find_symmetric(workload, varying)
    if tree:
        return _build_tree(workload, unit, symmetric, tree, TreeStructure)
    matrices = MatrixStructure(
        workload, unit, symmetric, find_workload_subsets(workload, symmetric)
    )
    if siblings:
        return _check_size(unfold_siblings(matrices) or matrices)
    asymmetric = matrices.asymmetric
    chained = _choose_chain(matrices, chain) if chain or family is None else None
    if chained is not None:
        return _check_size(chained)
    if not family:
        levels = (find_tree_levels(workload, name) for name in asymmetric)
        can_be_product = len(asymmetric) > 1 or any(levels)
        takes_blocks = _fits(matrices)
        is_small = takes_blocks and matrices.cells <= MANY_CELLS
        # A single tree takes so little time that it is tried first.
        is_slow = len(asymmetric) == 1 and estimate_work(matrices, 1.0) > MOST_BEFORE_TREE
        tries_tree = tree is None and (is_slow or not is_small)
        if tries_tree and (name := _find_tree(workload, symmetric)):
            tree = (name, *(() if name in varying else ("merged",)))
            return _build_tree(workload, unit, symmetric, tree, TreeStructure)
        if family is False or not can_be_product:
            return check_work(matrices, 1.0 if matrices.cells <= MANY_CELLS else _ONCE)
        takes_long = not takes_blocks or estimate_work(matrices, 1.0) > MOST_SIBLING_WORK
        if takes_long and (unfolded := _unfold(matrices, MOST_SIBLING_WORK)) is not None:
            return unfolded
        if takes_blocks:
            return _check_size(matrices)
    return _build_product(matrices, ProductStructure)


def find_nearer_structure(structure: Structure, gap: float) -> Structure | None:
    """Find a structure whose optimum may be better, if it is affordable.

    Instead of a product, these are matrices over all cells, or one of several trees over the cells
    of the other attributes; instead of pairs in a tree, pairs of cells, some of them named.

    Args:
        structure: The structure of a plan.
        gap: The gap of the plan's rho.
    """
    workload, unit, symmetric = structure.workload, structure.unit, structure.symmetric
    most = MOST_WORK if gap > LARGE_GAP else MOST_WIDE_SIBLING_WORK
    if type(structure) in (TreePairStructure, ProductPairStructure):
        subsets = find_workload_subsets(workload, symmetric)
        pairs = PairStructure(workload, structure.unit, symmetric, subsets)
        if (unfolded := _unfold(pairs, most)) or type(structure) is ProductPairStructure:
            return unfolded
        return pairs if pairs.fits_named else None
    if type(structure) is PersonStructure:
        return build_person_chain(structure)
    if type(structure) not in (ProductStructure, TreeStructure, BinnedChainStructure):
        return None
    matrices = MatrixStructure(
        workload, unit, symmetric, find_workload_subsets(workload, symmetric)
    )
    if (unfolded := _unfold(matrices, most)) is not None:
        return unfolded
    if type(structure) is BinnedChainStructure:
        return matrices if gap > LARGE_GAP and _fits(matrices) else None
    if type(structure) is TreeStructure:
        # Only over the cells of the tree alone does an iteration start near the optimum.
        alone = len(matrices.asymmetric) == 1
        started = alone and estimate_work(matrices, 1.0) <= MOST_STARTED_WORK
        fits = matrices.cells <= MANY_CELLS and (started or _fits(matrices))
        return matrices if fits and gap > LARGE_GAP else None
    if gap > LARGE_GAP and _fits_widely(matrices, MOST_AGAIN):
        return matrices
    trees = [
        TreeStructure(workload, unit, symmetric, matrices.subsets, name, True)
        for name in _list_trees(workload, symmetric)
        if _fits_beside(workload, symmetric, name)
    ]
    tree = min(trees, key=estimate_tree_work, default=None)
    return tree if tree is not None and estimate_tree_work(tree) <= MOST_TREE_WORK else None


def _build_persons(
    workload: Workload,
    unit: AddRemove,
    varying: Sequence[str],
    family: bool | None,
    tree: Sequence[str] | None,
    chain: bool,
) -> Structure:
    """Build the structure of persons with several records: blocks, a chain, tree or product."""
    symmetric = _find_symmetric(workload, varying)
    persons = PersonStructure(workload, unit, symmetric, find_workload_subsets(workload, symmetric))
    fits = persons.has_room and persons.cells <= MOST_CELLS and persons.entries <= MAX_ENTRIES
    is_large = tree is None and family is None and not fits
    if is_large and (name := _find_tree(workload, symmetric)):
        if unit.distinct:
            raise WorkloadError(
                f"the hierarchy {name!r} is too large for the setting 'distinct'. Remove "
                "'distinct'."
            )
        if unit.once_per in workload.attributes:
            tree = (name, *(() if name in varying else ("merged",)))
    if chain or (is_large and not tree):
        chained = build_person_chain(persons)
        if chained is not None:
            return _check_size(chained)
    if tree:
        return _build_tree(workload, unit, symmetric, tree, PersonTreeStructure)
    takes_product = family or (is_large and len(persons.asymmetric) > 1)
    if takes_product and persons.has_periods:
        return _build_product(persons, ProductPersonStructure)
    return _check_size(persons)


def _build_product(matrices: MatrixStructure, kind: type[ProductStructure]) -> Structure:
    """Build the structure of the product family instead of matrices."""
    workload = matrices.workload
    check_products(workload.groups)
    subsets = find_workload_subsets(workload, matrices.symmetric, workload.attributes)
    return _check_size(kind(workload, matrices.unit, matrices.symmetric, subsets))


def _build_pairs(
    workload: Workload,
    unit: ReplaceOne,
    family: bool | None,
    tree: Sequence[str] | None,
    siblings: bool,
    chain: bool,
) -> Structure:
    """Build the structure for neighbours that replace a record.

    The cells of asymmetric attributes are distinguished, unless there are too many.
    """
    symmetric = _find_symmetric(workload, ())
    subsets = find_workload_subsets(workload, symmetric)
    pairs = PairStructure(workload, unit, symmetric, subsets)
    asymmetric = pairs.asymmetric
    if not asymmetric:
        return _check_size(MoveStructure(workload, unit, symmetric, subsets))
    if siblings:
        return _check_size(unfold_siblings(pairs) or pairs)
    is_chosen = tree is None and family is None
    takes_chain = chain or (is_chosen and not (pairs.fits or pairs.fits_named))
    chain_pairs = build_chain_pairs(pairs) if takes_chain else None
    # A product has no limit.
    if chain_pairs is not None and (chain_pairs.fits or not _can_be_product(pairs)):
        return _check_size(chain_pairs)
    name = _find_tree(workload, symmetric) if is_chosen else None
    if is_chosen and pairs.cells > MOST_SMALL_CELLS:
        # Without a tree to try first, unfolding gets more time: no other structure is as good.
        tries_tree = name is not None and name not in unit.within
        unfolded = _unfold(pairs, MOST_SIBLING_WORK if tries_tree else MOST_AGAIN)
        # Independent pairs are tried later, where the gap of another structure is large.
        if isinstance(unfolded, SiblingPairStructure) and not unfolded.unfolded.is_independent:
            return _check_size(unfolded)
    if name is not None and not pairs.fits:
        tree = (name, "merged")
    if tree:
        try:
            return _build_tree(workload, unit, symmetric, tree, TreePairStructure)
        except WorkloadError:
            if not (is_chosen and _can_be_product(pairs)):
                raise
            family = True
    takes_product = family or (family is None and not (pairs.fits or pairs.fits_named))
    if takes_product and _can_be_product(pairs):
        return _build_product(pairs, ProductPairStructure)
    return _check_size(pairs)


def _can_be_product(pairs: PairStructure) -> bool:
    """Tell whether pairs of cells can have a product."""
    return len(pairs.workload.attributes) > 1


def find_substitute_structure(structure: Structure) -> Structure | None:
    """Find the product to use where the design for pairs, some of them named, fails."""
    if type(structure) is not PairStructure or structure.fits or not _can_be_product(structure):
        return None
    return _build_product(structure, ProductPairStructure)


def _find_tree(workload: Workload, symmetric: Sequence[str]) -> str | None:
    """Find the one attribute that is a tree, if the others are small enough.

    An attribute without levels is a tree only where it is the only asymmetric one.
    """
    trees = _list_trees(workload, symmetric)
    if len(trees) != 1 or not _fits_beside(workload, symmetric, trees[0]):
        return None
    is_alone = len(symmetric) == len(workload.attributes) - 1
    return trees[0] if is_alone or get_codec(workload.domain[trees[0]]).levels else None


def _list_trees(workload: Workload, symmetric: Sequence[str]) -> list[str]:
    """List the asymmetric attributes that are trees, the largest first.

    Attributes without levels count as trees only if no others are trees.
    """
    names = [name for name in workload.attributes if name not in symmetric]
    trees = [name for name in names if is_tree(workload, name)]
    deep = [name for name in trees if get_codec(workload.domain[name]).levels]
    return sorted(deep or trees, key=lambda name: -workload.domain[name].size)


def _fits_beside(workload: Workload, symmetric: Sequence[str], tree: str) -> bool:
    """Tell whether the other asymmetric attributes have few enough cells."""
    others = [name for name in workload.attributes if name not in (*symmetric, tree)]
    return math.prod(get_shape(workload.domain, others)) <= MOST_DENSE


def _build_tree(
    workload: Workload,
    unit: Unit,
    symmetric: tuple[str, ...],
    tree: Sequence[str],
    kind: type[TreeStructure],
) -> Structure:
    """Build the structure of one tree, or raise WorkloadError if it is too large."""
    name, *merged = tree
    subsets = find_workload_subsets(workload, symmetric)
    return _check_size(kind(workload, unit, symmetric, subsets, name, bool(merged)))


def _check_size(structure: Structure) -> Structure:
    """Return a structure, or raise WorkloadError if it is too large."""
    structure.check_size()
    return structure


def _find_symmetric(workload: Workload, varying: Sequence[str]) -> tuple[str, ...]:
    """Find the symmetric attributes, in the domain's order."""
    groups = workload.groups
    asymmetric = set(varying)
    asymmetric.update(f.attribute for f in groups.factors if f.kind not in ("identity", "total"))
    for group in map(groups.__getitem__, groups.with_arrays.tolist()):
        for axis, factor in enumerate(group.factors):
            if factor.kind == "total" or factor.attribute in asymmetric:
                continue
            if targets_vary(group.variances, axis):
                asymmetric.add(factor.attribute)
    return tuple(name for name in workload.attributes if name not in asymmetric)


def _choose_chain(matrices: MatrixStructure, chain: bool) -> ChainStructure | None:
    """Choose a chain, if queries are one, wherever possible or instead of a slow design."""
    if not (chain or _is_long(matrices)):
        return None
    chained = build_chain(matrices)
    if chain or not isinstance(chained, BinnedChainStructure):
        return chained
    if is_tree(matrices.workload, chained.chain):
        return None
    is_slow = estimate_work(matrices, 1.0) > MOST_AGAIN
    return chained if is_slow and (chained.fits or not _fits(matrices)) else None


def _is_long(matrices: MatrixStructure) -> bool:
    """Tell whether the queries of one attribute distinguish too many cells for a matrix."""
    classes = min(float(count_rows(matrices).max()), float(matrices.cells))
    is_large = matrices.entries > MAX_ENTRIES or estimate_work(matrices, 1.0) > MOST_AGAIN
    return classes >= LEAST_CHAIN or is_large


def _fits(matrices: MatrixStructure) -> bool:
    """Tell whether the product of the dense attributes is small enough for its optimum."""
    if matrices.cells <= MANY_CELLS:
        return matrices.cells <= MOST_CELLS and estimate_work(matrices, 1.0) <= MOST_WORK
    return _fits_widely(matrices, MOST_WIDE_WORK)


def _fits_widely(matrices: MatrixStructure, most: float) -> bool:
    """Tell whether the optimum over many dense cells takes at most so many operations."""
    has_room = matrices.cells <= MOST_CELLS and matrices.entries <= MOST_WIDE_ENTRIES
    return has_room and estimate_work(matrices, _ONCE) <= most


def _unfold(matrices: MatrixStructure, most: float) -> SiblingStructure | None:
    """Unfold a workload's hierarchies if an iteration then takes at most so many operations."""
    structure = unfold_siblings(matrices)
    if structure is None or not _fits_widely(structure.unfolded, most):
        return None
    unfolded = structure.unfolded
    return structure if not isinstance(unfolded, PairStructure) or unfolded.fits else None
