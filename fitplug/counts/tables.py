"""Tables: exact counts over the attribute sets a plan needs. Confidential: never printed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts.columns import hint, names_of, value_count, values_of
from fitplug.counts.seals import NONCE_BYTES, draw_nonce, seal_counts
from fitplug.counts.weights_and_filters import (
    WEIGHT,
    Where,
    check_rows,
    filters_of,
    rows_inside,
    say_rows,
)
from fitplug.domain import OUTSIDE, Domain
from fitplug.errors import DataError, TablesError, suggest_nearest
from fitplug.numeric import AnyArray, IntArray, freeze

Names: TypeAlias = tuple[str, ...]
Counts: TypeAlias = IntArray

MAX_RECORDS = 2**53
"""Largest total of a table; far above any count of people, far below what int64 holds."""


class Tables(Mapping[Names, Counts]):
    """Exact marginal tables of one histogram, keyed by attribute names.

    tables: {attribute names: integer array whose axes are those attributes}. A table may be read
    back under any order of its names. The key () is the table of the total, of shape ().
    contributions: the most records of one person among those counted, if whoever counted them saw
    to it, and person: the column by which persons were told apart; None if nobody did.
    rows: how rows were understood, in words, if they were weighted or filtered; public.
    copy: False may keep the arrays given, for those who will not change them, as large ones take
    long to copy. nonce: that of tables that were written and are read back, which keeps their
    `seal`; new tables draw one.

    Raises TablesError for negative or fractional counts, a wrong shape, an unknown attribute, a
    table given twice, a total above MAX_RECORDS, or tables that are not marginals of one
    histogram (their shared marginals differ): estimates from such tables would be biased.
    """

    def __init__(
        self,
        domain: Domain,
        tables: Mapping[Any, npt.ArrayLike],
        *,
        contributions: int | None = None,
        person: str | None = None,
        rows: str | None = None,
        copy: bool = True,
        nonce: bytes | None = None,
    ) -> None:
        if contributions is not None and (type(contributions) is not int or contributions < 1):
            raise TablesError(
                f"contributions = {contributions!r} must be a whole number of records, or None"
            )
        if nonce is not None and (type(nonce) is not bytes or len(nonce) != NONCE_BYTES):
            raise TablesError(f"the nonce of a seal is {NONCE_BYTES} bytes; leave it out")
        self.domain = domain
        self.contributions = contributions
        self.person = person
        self.rows = rows
        self._counts: dict[Names, Counts] = {}
        for key, value in tables.items():
            names = (key,) if isinstance(key, str) else tuple(key)
            for name in names:
                if name not in domain:
                    raise TablesError(
                        f"table {names}: the domain has no attribute {name!r}; "
                        f"{suggest_nearest(name, domain.names)}"
                    )
            if len(set(names)) != len(names):
                raise TablesError(f"table {names} names an attribute twice; name each once")
            canonical = domain.ordered(names)
            if canonical in self._counts:
                raise TablesError(f"table {canonical} is given twice")
            counts = _checked_counts(names, np.asarray(value), domain.shape_of(names))
            ordered = counts.transpose([names.index(n) for n in canonical])
            frozen = (np.array if copy else np.asarray)(ordered, order="C")
            frozen.setflags(write=False)
            self._counts[canonical] = frozen
        if not self._counts:
            raise TablesError("no table was given; give one array of counts per attribute set")
        _check_one_histogram(self._counts)
        # Now, and not with the seal, so that copies and pickles of these tables have the same.
        self._nonce = draw_nonce() if nonce is None else nonce

    @property
    def nonce(self) -> bytes:
        """What hides the counts in `seal`. As confidential as they are: whoever has it can hold
        guesses of the counts against the seal.
        """
        return self._nonce

    @cached_property
    def seal(self) -> str:
        """64 hexadecimal digits that only this count has: a commitment to the domain, the counts,
        `contributions`, `person` and `rows`.

        Tables that were written and read back, copied or pickled keep it; a count made anew has
        another, even of the same records. It may be published, as SHA-256 over 32 random bytes
        that stay secret tells nothing of what else went in.
        """
        said = {
            "domain": list(self.domain.spec().items()),
            "contributions": self.contributions,
            "person": self.person,
        } | ({} if self.rows is None else {"rows": self.rows})
        return seal_counts(self._nonce, said, self._counts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self._counts)  # unpickled arrays may be written to

    @classmethod
    def from_records(
        cls,
        domain: Domain,
        columns: Any,
        tables: Sequence[Sequence[str]],
        *,
        weights: str | npt.ArrayLike | None = None,
        where: Where | None = None,
    ) -> Tables:
        """Count records held in memory.

        columns: {attribute: values, shape (n,)}, or a data frame of Polars or pandas, or a table
        of Arrow, with nulls, categories and nullable integers as they are there, and nothing else:
        what is not named by attributes may be rows, of which no error tells. tables: the
        attribute sets to count, for instance `plan.tables`. A record outside the domain on any
        attribute that any of these tables uses is left out of all of them.
        weights: the number of records that each row stands for, integers (n,) or the name of their
        column, if rows are aggregates and not one record each (`weights_and_filters.py`). Not a
        survey's sampling weights: there one person is one row, which would count many times.
        where: {column: value, or values}: only rows that hold one of the values in each of these
        columns are counted; null is none. The columns may be attributes or not.
        Raises DataError, TablesError, and DomainError for weights or filters that are none.
        """
        wanted = [domain.ordered(tuple(t)) for t in tables]
        used = domain.ordered(tuple({name for t in wanted for name in t}))
        given = names_of(columns)
        filters = filters_of(where)
        weight = weights if isinstance(weights, str) else None
        check_rows(weight, filters, used)
        needed = (*used, *filters, *([] if weight is None else [weight]))
        for name in needed:
            if name not in given:
                raise DataError(f"no column {name!r} was given; {hint(name, given)}")
        lengths = {name: value_count(name, columns[name]) for name in needed}
        if not needed and given:
            lengths = {"": value_count("the first", columns[given[0]])}
        sizes = set(lengths.values())
        counts = None
        if weights is not None:
            counts = _weights_of(weights if weight is None else columns[weight], weight)
            sizes.add(len(counts))
        if len(sizes) > 1:
            raise DataError("the columns have different lengths; give one value per record")
        codes: dict[str, IntArray] = {}
        for name in used:
            try:
                codes[name] = domain[name].codes(values_of(columns[name]))
            except DataError as error:
                raise DataError(f"column {name!r}: {error}") from None
            except (TypeError, ValueError, ArithmeticError):  # whose words may be of the values
                codes[name] = np.zeros((0, 0), dtype=np.int64)
            if codes[name].shape != (lengths[name],):
                raise DataError(f"column {name!r} is no list or array of one value per record")
        records = next(iter(sizes), 0)
        if filters:
            inside = rows_inside(columns, filters, records)
            codes = {name: cells[inside] for name, cells in codes.items()}
            counts = None if counts is None else counts[inside]
            records = int(inside.sum())
        said = say_rows("weights" if counts is not None and weight is None else weight, filters)
        return cls.from_codes(domain, codes, wanted, records, weights=counts, rows=said)

    @classmethod
    def from_codes(
        cls,
        domain: Domain,
        codes: Mapping[str, Counts],
        tables: Sequence[Sequence[str]],
        records: int,
        *,
        weights: Counts | None = None,
        rows: str | None = None,
    ) -> Tables:
        """Count records whose cells are known: {attribute: cells (records,), -1 outside}, those of
        all attributes that `tables` use; or rows that stand for `weights` (records,) records.
        rows: as for `Tables`. Otherwise as `from_records`.
        """
        wanted = [domain.ordered(tuple(t)) for t in tables]
        inside = np.ones(records, dtype=bool)
        for name in {name for t in wanted for name in t}:
            inside &= codes[name] != OUTSIDE
        held = None if weights is None else weights[inside]
        # Before they are added up as integers, and in floating point, which cannot wrap.
        if held is not None and held.sum(dtype=np.float64) > MAX_RECORDS:
            raise TablesError("the rows stand for more than 2**53 records; integers would overflow")
        counted: dict[Names, Counts] = {}
        for names in wanted:
            cell = np.zeros(int(inside.sum()), dtype=np.int64)
            for name in names:
                cell = cell * domain[name].size + codes[name][inside]
            shape = domain.shape_of(names)
            size = int(np.prod(shape, dtype=np.int64))
            counted[names] = _count_cells(cell, size, held).reshape(shape)
        return cls(domain, counted, rows=rows)

    def __getitem__(self, key: Sequence[str]) -> Counts:
        names = (key,) if isinstance(key, str) else tuple(key)
        canonical = tuple(n for n in self.domain.names if n in names)
        if len(canonical) != len(names) or canonical not in self._counts:
            raise KeyError(f"no table {names}; there are: {list(self._counts)}")
        return self._counts[canonical].transpose([canonical.index(n) for n in names])

    def __iter__(self) -> Iterator[Names]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Tables({', '.join(map(repr, self._counts))}; counts confidential)"

    def marginal(self, names: Sequence[str]) -> Counts:
        """The table whose axes are `names`, in that order, summed out of any that holds them.

        Raises TablesError if none does.
        """
        names = tuple(names)
        held = self._holding(names)
        if held is not None:
            left = [name for name in held if name in names]
            summed = _sum_to(held, self._counts[held], names)
            return summed.transpose([left.index(n) for n in names])
        raise TablesError(
            f"the table {names} is needed, but there are only "
            + ", ".join(map(str, self._counts))
            + "; count again with the plan"
        )

    def _holding(self, names: Names) -> Names | None:
        """A table that holds these attributes: itself if there is one."""
        if all(name in self.domain for name in names):
            canonical = self.domain.ordered(names)
            if canonical in self._counts:
                return canonical
        if not names:
            return next(iter(self._counts))
        wanted = set(names)
        candidates = min((self._with.get(name, []) for name in names), key=len)
        return next((held for held in candidates if wanted <= set(held)), None)

    @cached_property
    def _with(self) -> Mapping[str, list[Names]]:
        """The tables with each attribute."""
        tables: dict[str, list[Names]] = {}
        for held in self._counts:
            for name in held:
                tables.setdefault(name, []).append(held)
        return tables


def _weights_of(given: Any, name: str | None) -> Counts:
    """Weights (n,), clamped to their range. Raises DataError, naming the column if there is one."""
    named = "the weights" if name is None else f"column {name!r}"
    try:
        counts = WEIGHT.codes(values_of(given))
    except DataError as error:
        raise DataError(f"{named}: {error}") from None
    except (TypeError, ValueError, ArithmeticError):  # whose words may be of the values
        counts = np.zeros((0, 0), dtype=np.int64)
    if counts.ndim != 1:
        raise DataError(f"{named}: give a list or an array of one whole number per row")
    return counts


def _checked_counts(names: Names, array: AnyArray, shape: tuple[int, ...]) -> IntArray:
    if array.shape != shape:
        raise TablesError(
            f"table {names} has shape {array.shape}, but its attributes have {shape} cells; "
            "count again"
        )
    if array.dtype.kind not in "iu":
        raise TablesError(f"table {names} holds {array.dtype}; counts must be integers")
    if array.size and int(array.min()) < 0:
        raise TablesError(f"table {names} holds a negative count; counts must be >= 0")
    # In floating point, which cannot wrap; far more exact than this bound needs.
    if float(array.sum(dtype=np.float64)) > MAX_RECORDS:
        raise TablesError(f"table {names} counts more than 2**53 records; integers would overflow")
    return array.astype(np.int64, copy=False)


def _count_cells(cells: Counts, size: int, weights: Counts | None) -> Counts:
    """How many records (size,) are in each cell. cells (n,); weights (n,): records of each row."""
    if weights is None:
        return np.bincount(cells, minlength=size).astype(np.int64)
    counts = np.zeros(size, dtype=np.int64)
    np.add.at(counts, cells, weights)
    return counts


def _sum_to(held: Names, counts: Counts, names: Names) -> Counts:
    out = tuple(axis for axis, name in enumerate(held) if name not in names)
    return np.asarray(counts.sum(axis=out, dtype=np.int64))


def _check_one_histogram(tables: Mapping[Names, Counts]) -> None:
    seen: dict[Names, tuple[Names, Counts]] = {}
    pairs = len(tables) * (len(tables) - 1) // 2
    if pairs <= sum(2 ** len(names) for names in tables):
        for (first, a), (second, b) in itertools.combinations(tables.items(), 2):
            shared = tuple(name for name in first if name in second)
            _check_equal(shared, (first, _sum_to(first, a, shared)), second, b)
        return
    # Fewer than pairs of tables: what any two share is among the subsets of both.
    for names, counts in tables.items():
        for size in range(len(names) + 1):
            for shared in itertools.combinations(names, size):
                if shared in seen:
                    _check_equal(shared, seen[shared], names, counts)
                else:
                    seen[shared] = names, _sum_to(names, counts, shared)


def _check_equal(shared: Names, first: tuple[Names, Counts], second: Names, counts: Counts) -> None:
    if not np.array_equal(first[1], _sum_to(second, counts, shared)):
        over = f"over {shared}" if shared else "in total"
        raise TablesError(
            f"tables {first[0]} and {second} disagree {over}; count both from the same records"
        )
