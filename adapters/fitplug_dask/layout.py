"""Layout: which tables are counted jointly, and how the wanted ones are summed out of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fitplug.counts import Counts, Names
from fitplug.domain import Domain

MERGED_CELLS = 2**16
"""Largest joint table made by merging smaller ones: 256 KB of counters stay in a core's cache."""

_BLOCK_CELLS = 2**8  # two blocks make a joint table of at most MERGED_CELLS
_INCREMENT = 3  # counting a row costs about as much as combining three digits of its cell


def joint_tables(domain: Domain, wanted: Iterable[Names]) -> tuple[Names, ...]:
    """Attribute sets such that each wanted table is a marginal of one, ordered atom by atom.

    Small tables are merged: one increment per record then serves all of them. Where nearly all
    pairs of attributes are wanted, merging whole blocks of attributes leaves less to do than
    merging table by table.
    """
    tables = {frozenset(names) for names in wanted}
    used = {name for names in tables for name in names}
    by_block = {name: block for block in _blocks(domain, used) for name in block}
    ways = [_merged(domain, tables), _merged(domain, _widened(domain, tables, by_block))]
    joints = [domain.ordered(tuple(joint)) for joint in min(ways, key=_work)]
    rank = {name: i for i, atom in enumerate(atoms(joints)) for name in atom}
    # Stable, so the attributes of an atom stay in the domain's order.
    return tuple(tuple(sorted(joint, key=rank.__getitem__)) for joint in joints)


def atoms(joints: Sequence[Iterable[str]]) -> list[Names]:
    """The attributes, cut into sets that each joint table holds whole or not at all."""
    held: dict[str, list[int]] = {}
    for i, joint in enumerate(joints):
        for name in joint:
            held.setdefault(name, []).append(i)
    together: dict[tuple[int, ...], list[str]] = {}
    for name, where in held.items():
        together.setdefault(tuple(where), []).append(name)
    return [tuple(names) for names in together.values()]


def marginals(
    domain: Domain, counted: Mapping[Names, Counts], wanted: Sequence[Names]
) -> dict[Names, Counts]:
    """Each wanted table, summed out of the first joint table that holds it."""
    tables: dict[Names, Counts] = {}
    for names in wanted:
        held = next(joint for joint in counted if set(names) <= set(joint))
        cells = counted[held].reshape(domain.shape_of(held))
        out = tuple(axis for axis, name in enumerate(held) if name not in names)
        if out:
            cells = np.asarray(cells.sum(axis=out, dtype=np.int64))
        left = [name for name in held if name in names]
        tables[names] = cells.transpose([left.index(name) for name in names])
    return tables


def _cells(domain: Domain, names: Iterable[str]) -> int:
    return math.prod(domain[name].size for name in names)


def _blocks(domain: Domain, used: Iterable[str]) -> list[frozenset[str]]:
    """The attributes in blocks of at most _BLOCK_CELLS cells, first fit from the largest."""
    blocks: list[list[str]] = []
    for name in sorted(used, key=lambda name: (-domain[name].size, name)):
        for block in blocks:
            if _cells(domain, [*block, name]) <= _BLOCK_CELLS:
                block.append(name)
                break
        else:
            blocks.append([name])
    return [frozenset(block) for block in blocks]


def _widened(
    domain: Domain, tables: Iterable[frozenset[str]], by_block: Mapping[str, frozenset[str]]
) -> set[frozenset[str]]:
    """The tables, each widened to the whole blocks of its attributes where that stays small."""
    wide = set()
    for names in tables:
        union = frozenset().union(*(by_block[name] for name in names))
        wide.add(union if _cells(domain, union) <= MERGED_CELLS else names)
    return wide


def _merged(domain: Domain, tables: Iterable[frozenset[str]]) -> list[set[str]]:
    """Sets of at most MERGED_CELLS cells that hold all tables, first fit; larger tables alone."""
    joints: list[set[str]] = []
    for names in sorted(tables, key=lambda names: (-_cells(domain, names), sorted(names))):
        if any(joint.issuperset(names) for joint in joints):
            continue
        for joint in joints:
            if _cells(domain, joint.union(names)) <= MERGED_CELLS:
                joint.update(names)
                break
        else:
            joints.append(set(names))
    return joints


def _work(joints: Sequence[set[str]]) -> int:
    """What a row costs, in combinations of one digit."""
    cut = [frozenset(atom) for atom in atoms(joints)]
    return sum(_INCREMENT + sum(atom <= joint for atom in cut) for joint in joints)
