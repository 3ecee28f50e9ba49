"""Joint tables: which tables to count together, and how to sum out the wanted ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fitplug.counts.consistency import AttributeSet, Counts, sum_out
from fitplug.domain import Attribute, Domain, get_codec, get_shape

MERGED_CELLS = 2**16
"""Largest joint table made by merging smaller ones: 256 KB of counters stay in a core's cache."""

_GROUP_CELLS = 2**8  # two groups make a joint table of at most MERGED_CELLS
_INCREMENT = 3  # counting a row costs about as much as combining three digits of its cell


def choose_joint_tables(domain: Domain, wanted: Iterable[AttributeSet]) -> tuple[AttributeSet, ...]:
    """Choose joint tables so that each wanted table is a marginal of one of them.

    Small tables are merged, so that one increment per row serves all of them. If nearly all pairs
    of attributes are wanted, merging groups of attributes saves more work than merging table by
    table.

    Args:
        domain: The domain.
        wanted: The attribute sets of the wanted tables.

    Returns:
        The attribute sets of the joint tables, each with the attributes of one atom together, and
        with its measures last. No joint table has more measures than some wanted table.
    """
    tables = {frozenset(names) for names in wanted}
    used = {name for names in tables for name in names}
    measures = frozenset(name for name in used if is_measure(domain[name]))
    group_of = {name: frozenset([name]) for name in measures}
    group_of |= {
        name: group for group in _group_attributes(domain, used - measures) for name in group
    }
    candidates = [
        _merge_tables(domain, tables),
        _merge_tables(domain, _widen_tables(domain, tables, group_of)),
    ]
    joints = [domain.ordered(tuple(joint)) for joint in min(candidates, key=_estimate_work)]
    rank = {name: i for i, atom in enumerate(split_into_atoms(joints)) for name in atom}
    # Measures come last, so that a record's shares are in adjacent cells. The sort is stable, so
    # the attributes of an atom stay in the domain's order.
    return tuple(
        tuple(sorted(joint, key=lambda name: (is_measure(domain[name]), rank[name])))
        for joint in joints
    )


def is_measure(attribute: Attribute) -> bool:
    """Return whether records are divided between the cells of an attribute."""
    return bool(get_codec(attribute).quantities)


def split_into_atoms(joints: Sequence[Iterable[str]]) -> list[AttributeSet]:
    """Split the attributes into atoms.

    An atom is a largest set of attributes that occur in the same joint tables, so that each joint
    table is a union of atoms.
    """
    joints_of: dict[str, list[int]] = {}
    for i, joint in enumerate(joints):
        for name in joint:
            joints_of.setdefault(name, []).append(i)
    together: dict[tuple[int, ...], list[str]] = {}
    for name, where in joints_of.items():
        together.setdefault(tuple(where), []).append(name)
    return [tuple(names) for names in together.values()]


def sum_to_tables(
    domain: Domain, counted: Mapping[AttributeSet, Counts], wanted: Sequence[AttributeSet]
) -> dict[AttributeSet, Counts]:
    """Sum each wanted table out of the first joint table that contains it.

    Args:
        domain: The domain.
        counted: The counts (cells,) of each joint table.
        wanted: The attribute sets of the wanted tables.

    Returns:
        The counts of each wanted table, with one axis for each of its attributes.

    Raises:
        TablesError: The counts of a joint table are not of whole records.
    """
    tables: dict[AttributeSet, Counts] = {}
    for names in wanted:
        joint = next(joint for joint in counted if set(names) <= set(joint))
        cells = counted[joint].reshape(get_shape(domain, joint))
        if len(names) < len(joint):
            cells = sum_out(domain, joint, cells, names)
        left = [name for name in joint if name in names]
        tables[names] = cells.transpose([left.index(name) for name in names])
    return tables


def _count_cells(domain: Domain, names: Iterable[str]) -> int:
    return math.prod(domain[name].size for name in names)


def _group_attributes(domain: Domain, used: Iterable[str]) -> list[frozenset[str]]:
    """Group attributes to at most _GROUP_CELLS cells a group, by first fit from the largest."""
    groups: list[list[str]] = []
    for name in sorted(used, key=lambda name: (-domain[name].size, name)):
        for group in groups:
            if _count_cells(domain, [*group, name]) <= _GROUP_CELLS:
                group.append(name)
                break
        else:
            groups.append([name])
    return [frozenset(group) for group in groups]


def _widen_tables(
    domain: Domain, tables: Iterable[frozenset[str]], group_of: Mapping[str, frozenset[str]]
) -> set[frozenset[str]]:
    """Widen each table to the groups of its attributes, where the result is small."""
    wide = set()
    for names in tables:
        union = frozenset().union(*(group_of[name] for name in names))
        wide.add(union if _count_cells(domain, union) <= MERGED_CELLS else names)
    return wide


def _merge_tables(domain: Domain, tables: Iterable[frozenset[str]]) -> list[set[str]]:
    """Merge tables to at most MERGED_CELLS cells by first fit. Larger tables are not merged."""
    joints: list[set[str]] = []
    measures = {name for names in tables for name in names if is_measure(domain[name])}
    for names in sorted(tables, key=lambda names: (-_count_cells(domain, names), sorted(names))):
        if any(joint.issuperset(names) for joint in joints):
            continue
        for joint in joints:
            # A joint table has no more measures than a wanted one: they multiply its shares.
            joint_measures, others = joint & measures, names & measures
            if not (joint_measures <= others or others <= joint_measures):
                continue
            if _count_cells(domain, joint.union(names)) <= MERGED_CELLS:
                joint.update(names)
                break
        else:
            joints.append(set(names))
    return joints


def _estimate_work(joints: Sequence[set[str]]) -> int:
    """Return the cost of one row, in combinations of one digit."""
    atoms = [frozenset(atom) for atom in split_into_atoms(joints)]
    return sum(_INCREMENT + sum(atom <= joint for atom in atoms) for joint in joints)
