"""Leaf columns: the labels of all leaves on each level of a tree, read from what a user gives.

The usual input, lists of paths or an array of codes, is checked in a few passes that run in C. Only
if something is wrong does a loop in Python find what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.domain.label_array import LabelArray, make_label_array
from fitplug.domain.texts import Texts
from fitplug.errors import DomainError

_KINDS_OF_QUERIES = ("identity", "prefix", "all_ranges", "total", "ranges", "matrix")
"""Kinds of queries that a level must not be named after."""

_NO_LEAVES = "the hierarchy has no leaves. Give at least one."


def read_level_names(levels: Any) -> tuple[str, ...]:
    """Read the names of levels, or raise DomainError.

    Args:
        levels: The user's levels: names, or a mapping from names.
    """
    if isinstance(levels, str) or not isinstance(levels, (Sequence, Mapping)):
        raise DomainError(f"levels must be a list or a mapping of names, not {levels!r}")
    if not levels:
        raise DomainError("a hierarchy needs at least one level")
    names = tuple(levels)
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise DomainError(f"level {name!r} must be a non-empty string")
        if name in _KINDS_OF_QUERIES:
            raise DomainError(f"the level name {name!r} is reserved. Rename the level.")
        if name in names[:i]:
            raise DomainError(f"level {name!r} is named twice. Give each level a different name.")
    return names


def read_leaves(names: tuple[str, ...], levels: Any, leaves: Any) -> list[LabelArray]:
    """Read the leaves of a tree.

    Args:
        names: The names of the levels.
        levels: The user's levels: names, or a mapping to lengths of prefixes.
        leaves: The user's leaves; or `Texts`, if levels have lengths of prefixes.

    Returns:
        The label of each leaf, for each level.

    Raises:
        DomainError: If these are not the leaves of a tree with these levels.
    """
    if isinstance(leaves, Texts) and isinstance(levels, Mapping) and len(leaves):
        return _split_codes(levels, leaves)
    by_columns = isinstance(leaves, np.ndarray) and leaves.shape[1:] == (len(names),)
    if by_columns and len(leaves) and not isinstance(levels, Mapping):
        return _read_columns(names, leaves.T.tolist())
    if isinstance(leaves, np.ndarray):
        leaves = leaves.tolist()
    if isinstance(leaves, str) or not isinstance(leaves, Sequence):
        raise DomainError(f"leaves must be a list, not {type(leaves).__name__}")
    if not leaves:
        raise DomainError(_NO_LEAVES)
    if isinstance(levels, Mapping):
        return _split_codes(levels, leaves)
    return _read_columns(names, _split_paths(names, leaves))


def name_columns(columns: Any) -> dict[Any, Any]:
    """Return the columns of a mapping, a pandas or Polars frame or an Arrow table, by name.

    Raises:
        DomainError: If it has the wrong type.
    """
    if isinstance(columns, Mapping):
        return dict(columns)
    names = getattr(columns, "column_names", getattr(columns, "columns", None))
    if names is None or not hasattr(columns, "__getitem__"):
        raise DomainError(
            "columns must be a table or a mapping of level names to labels, not "
            f"{type(columns).__name__}"
        )
    return {name: columns[name] for name in names}


def read_columns(columns: Mapping[str, Any]) -> list[LabelArray]:
    """Read the labels of all leaves from a column for each level, whose names are valid.

    Raises:
        DomainError: If the columns are not lists of labels, or do not have one label per leaf.
    """
    read: list[Texts | list[Any]] = []
    for name, column in columns.items():
        if isinstance(column, Texts):
            read.append(column)
            continue
        try:
            read.append(_list_values(column))
        except TypeError:
            raise DomainError(
                f"level {name!r} must be a list or an array of labels, not {type(column).__name__}"
            ) from None
    lengths = set(map(len, read))
    if len(lengths) > 1:
        raise DomainError(
            f"the levels have different numbers of labels, {sorted(lengths)}. Give one label per "
            "leaf."
        )
    if lengths == {0}:
        raise DomainError(_NO_LEAVES)
    return _read_columns(tuple(columns), read)


def _list_values(column: Any) -> list[Any]:
    """List the values of a column; raise TypeError if it is not a column."""
    for name in ("tolist", "to_pylist", "to_list"):
        if hasattr(column, name):
            values = getattr(column, name)()
            break
    else:
        values = column
    if not isinstance(values, (list, tuple)):
        raise TypeError
    return list(values)


def _split_paths(levels: tuple[str, ...], leaves: Sequence[Any]) -> list[list[Any]]:
    """Split paths into columns, one with the labels of each level."""
    kinds = set(map(type, leaves))
    if not kinds <= {list, tuple} or set(map(len, leaves)) != {len(levels)}:
        for leaf in leaves:
            if not isinstance(leaf, (list, tuple)) or len(leaf) != len(levels):
                raise DomainError(
                    f"leaf {leaf!r} must be a list with one label per level: {', '.join(levels)}"
                )
    return [[leaf[place] for leaf in leaves] for place in range(len(levels))]


def _read_columns(levels: tuple[str, ...], columns: Sequence[Any]) -> list[LabelArray]:
    """Make arrays from columns of labels, which are lists or texts."""
    for column in columns:
        if not isinstance(column, Texts) and not set(map(type, column)) <= {str, int}:
            _refuse_label(columns)
    return [
        column if isinstance(column, Texts) else _make_array(level, column)
        for level, column in zip(levels, columns, strict=True)
    ]


def _refuse_label(columns: Sequence[Any]) -> None:
    """Raise DomainError for the first label, leaf by leaf, that is neither text nor integer."""
    for leaf in zip(*columns, strict=True):
        for label in leaf:
            if type(label) not in (str, int):
                raise DomainError(
                    f"label {label!r} must be a string or an integer, not {type(label).__name__}"
                )


def _make_array(level: str, labels: list[Any]) -> LabelArray:
    """Make an array of the labels of one level, which are strings or integers."""
    kinds = set(map(type, labels))
    if len(kinds) > 1:
        raise DomainError(
            f"level {level!r} mixes strings and integers. Use one type for its labels."
        )
    if kinds == {int} and max(map(abs, labels)) >= 2**62:
        large = next(label for label in labels if abs(label) >= 2**62)
        raise DomainError(
            f"label {large!r} must be between -2**62 and 2**62. Use strings for larger numbers."
        )
    return make_label_array(labels)


def _split_codes(levels: Mapping[str, Any], codes: Sequence[Any] | Texts) -> list[LabelArray]:
    """Split codes into their paths: the prefixes of the levels' lengths."""
    lengths = list(levels.values())
    for length, before in zip(lengths, [0, *lengths], strict=False):
        if type(length) is not int or length <= before:
            raise DomainError(
                "the prefix lengths of the levels must be increasing positive integers, not "
                f"{lengths}"
            )
    texts = codes if isinstance(codes, Texts) else _read_codes(codes)
    counts = texts.count_characters()
    wrong = np.flatnonzero(counts != lengths[-1])
    if len(wrong):
        raise DomainError(
            f"leaf {texts[int(wrong[0])]!r} must have {lengths[-1]} characters, not "
            f"{counts[wrong[0]]}"
        )
    return [*(texts.cut_prefixes(length) for length in lengths[:-1]), texts]


def _read_codes(codes: Sequence[Any]) -> Texts:
    """Read codes, or raise DomainError for one that is not a string."""
    if set(map(type, codes)) != {str}:
        for code in codes:
            if not isinstance(code, str):
                raise DomainError(f"leaf {code!r} must be a string to have prefixes")
    return Texts.from_list(codes)
