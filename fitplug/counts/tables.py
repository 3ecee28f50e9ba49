"""Tables: exact counts over the attribute sets that a plan needs. Confidential: never printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts.consistency import (
    MAX_RECORDS,
    AttributeSet,
    Counts,
    check_counts,
    check_one_histogram,
    check_shares,
    sum_out,
)
from fitplug.counts.outside import OutsideCounts
from fitplug.counts.records import Where, encode_records
from fitplug.counts.seals import NONCE_BYTES, draw_nonce, seal_counts
from fitplug.domain import OUTSIDE, Domain, get_codec, get_shape, list_measures
from fitplug.errors import TablesError, suggest_nearest
from fitplug.numeric import freeze, read_array, to_positions
from fitplug.workload import AddRemove


class Tables(Mapping[AttributeSet, Counts]):
    """Exact marginal tables of one histogram. These counts are confidential.

        tables = fp.Tables(domain, {("sex", "age"): counts})
        tables["age", "sex"]

    To read a table, name its attributes in any order; the axes follow this order. `tables[()]` is
    the total, of shape ().

    Args:
        domain: The domain of the counts.
        tables: A mapping from names of attributes, which are the axes of a table, to an integer
            array. A table with measures counts shares of rows. The number of shares of each row is
            the product of the `shares` of these measures.
        unit: The unit of privacy whose limit on the rows per person the count enforced; None if
            there was no limit. With `distinct`, no two rows of a person have the same values of all
            attributes of these tables. With `once_per`, no two have the same value of the attribute
            that it names.
        person: The column, or columns, that identified persons; None if the rows per person were
            not limited.
        rows: A public text that describes how rows were weighted or filtered.
        outside: The confidential numbers of rows that were left out of the tables, which plans with
            `coverage=True` need; None if these rows were not counted.
        copy: Whether to copy the arrays. False saves time and memory, but you must not change the
            arrays afterwards.
        nonce: For tables that are read back from a file: their stored `nonce`, so that they keep
            their `seal`. New tables draw a new nonce.

    Raises:
        TablesError: A table is given twice, or has the wrong shape, an unknown attribute, more than
            2**53 rows, or counts that are negative or not integers. Or the tables are not marginals
            of one histogram, so estimates from them would be biased.

    Attributes:
        domain: The domain of the counts.
        unit: The unit of privacy that the count enforced, or None.
        person: The column, or tuple of columns, that identified persons, or None.
        rows: How rows were weighted or filtered, or None.
        outside: The numbers of rows left out of the tables, or None.
    """

    def __init__(
        self,
        domain: Domain,
        tables: Mapping[Any, npt.ArrayLike],
        *,
        unit: AddRemove | None = None,
        person: str | Sequence[str] | None = None,
        rows: str | None = None,
        outside: OutsideCounts | None = None,
        copy: bool = True,
        nonce: bytes | None = None,
    ) -> None:
        if unit is not None and not isinstance(unit, AddRemove):
            raise TablesError(f"unit must be an fp.AddRemove or None, not {unit!r}")
        if unit is not None and unit.once_per is not None:
            domain.ordered((unit.once_per,))
        if nonce is not None and (type(nonce) is not bytes or len(nonce) != NONCE_BYTES):
            raise TablesError(
                f"nonce must have {NONCE_BYTES} bytes. Leave nonce out for new tables."
            )
        self.domain = domain
        self.unit = unit
        self.person = person if person is None or isinstance(person, str) else tuple(person)
        self.rows = rows
        self.outside = outside
        self._counts: dict[AttributeSet, Counts] = {}
        for key, value in tables.items():
            names = (key,) if isinstance(key, str) else tuple(key)
            canonical = self._check_names(names)
            if canonical in self._counts:
                raise TablesError(f"table {canonical} is given twice")
            counts = check_counts(domain, names, read_array(value))
            counts = counts.transpose([names.index(n) for n in canonical])
            frozen = (np.array if copy else np.asarray)(counts, order="C")
            frozen.setflags(write=False)
            self._counts[canonical] = frozen
        if not self._counts:
            raise TablesError(
                "no tables are given. Give an array of counts for at least one set of attributes."
            )
        check_one_histogram(domain, self._counts)
        # Drawn now, and not with the seal, so that copies and pickles of these tables share it.
        self._nonce = draw_nonce() if nonce is None else nonce

    def _check_names(self, names: AttributeSet) -> AttributeSet:
        """Refuse axes that are not different attributes; return them in the domain's order."""
        for name in names:
            if name not in self.domain:
                raise TablesError(
                    f"table {names}: the domain has no attribute {name!r}. "
                    f"{suggest_nearest(name, self.domain.names)}"
                )
        if len(set(names)) != len(names):
            raise TablesError(f"table {names} names an attribute twice. Name each attribute once.")
        return self.domain.ordered(names)

    @property
    def nonce(self) -> bytes:
        """The secret random bytes in `seal`.

        They are as confidential as the counts, because anyone who has them can test guesses of the
        counts against the seal.
        """
        return self._nonce

    @cached_property
    def seal(self) -> str:
        """A digest of this count, in 64 hexadecimal digits.

        The seal commits to the domain, the counts, `unit`, `person` and `rows`. Tables that were
        written and read back, copied or pickled keep their seal. A new count has a different seal,
        even if it counts the same rows. The seal may be published: it is SHA-256 over 32 random
        bytes that stay secret, so it reveals nothing about the counts.
        """
        description = {
            "domain": list(self.domain.spec().items()),
            "unit": None if self.unit is None else self.unit.to_spec(),
            "person": self.person,
            "rows": self.rows,
            "outside": None if self.outside is None else dataclasses.astuple(self.outside),
        }
        return seal_counts(self._nonce, description, self._counts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self._counts)  # NumPy makes unpickled arrays writeable

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
        """Count rows that are held in memory.

        If a row has a value outside the domain in an attribute of any table, the row is left out of
        all tables.

        Args:
            domain: The domain of the counts.
            columns: The values (n,) of each attribute: a mapping, a Polars or pandas data frame, or
                an Arrow table. Nulls, categories and nullable integers of these libraries are
                supported. Other objects are refused. The error does not show the object, because it
                may contain rows.
            tables: The attribute sets to count, for instance `plan.tables`.
            weights: The number of times that each row counts, if a row stands for several people:
                integers (n,), or the name of the column that has them. Do not give sampling weights
                of a survey: each row of a survey is one person, who would then count many times.
            where: {column: value, or values}; the columns need not be attributes. Only rows with
                one of the values in each of these columns are counted; null never matches.

        Raises:
            DataError: If a column is missing, or its values have the wrong type or length.
            DomainError: If the weights or filters are not valid, or an attribute is unknown.
            TablesError: If the number of rows, or the sum of their weights, is more than 2**53.

        Example:
            >>> rows = {"sex": ["1", "2", "2"], "age": [0, 3, 9]}
            >>> fp.Tables.from_records(domain, rows, [("sex",)])["sex"].tolist()
            [1, 2]
        """
        tables = list(tables)
        used = domain.ordered(tuple({name for names in tables for name in names}))
        records = encode_records(domain, columns, used, weights=weights, where=where)
        return cls.from_codes(
            domain,
            records.codes,
            tables,
            records.count,
            weights=records.weights,
            rows=records.rows,
        )

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
        """Count rows whose values were already converted to the numbers of their cells.

        If a row has the code -1 in an attribute of any table, the row is left out of all tables.

        Args:
            domain: The domain of the counts.
            codes: For each attribute that the tables use, the index of each row's cell, shape
                (rows,), or -1 if the row's value is outside the domain.
            tables: The attribute sets to count.
            records: The number of rows.
            weights: The number of times that each row counts (rows,); None if each row counts once.
            rows: A text that describes how rows were weighted and filtered, as for `Tables`.

        Raises:
            TablesError: If the number of rows, or the sum of their weights, is more than 2**53.

        Example:
            >>> codes = {"sex": np.array([0, 1, 1])}
            >>> fp.Tables.from_codes(domain, codes, [("sex",)], 3)["sex"].tolist()
            [1, 2]
        """
        wanted = [domain.ordered(tuple(names)) for names in tables]
        inside = np.ones(records, dtype=bool)
        used = {name for names in wanted for name in names}
        for name in used:
            inside &= codes[name] != OUTSIDE
        outside = OutsideCounts.from_codes(domain, codes, tuple(used), weights)
        row_weights = None if weights is None else weights[inside]
        # Checked before integers are added up, in floating point, which cannot wrap.
        if row_weights is not None and row_weights.sum(dtype=np.float64) > MAX_RECORDS:
            raise TablesError(
                "the weights of the rows add up to more than 2**53. Count fewer rows."
            )
        row_codes = {name: codes[name][inside] for name in used}
        n = int(inside.sum())
        counted = {
            names: _count_table(domain, names, row_codes, n, row_weights) for names in wanted
        }
        return cls(domain, counted, rows=rows, outside=outside)

    def __getitem__(self, key: Sequence[str]) -> Counts:
        names = (key,) if isinstance(key, str) else tuple(key)
        canonical = tuple(n for n in self.domain.names if n in names)
        if len(canonical) != len(names) or canonical not in self._counts:
            raise KeyError(f"unknown table {names}. Known tables: {list(self._counts)}")
        return self._counts[canonical].transpose([canonical.index(n) for n in names])

    def __iter__(self) -> Iterator[AttributeSet]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Tables({', '.join(map(repr, self._counts))}; counts confidential)"

    def marginal(self, names: Sequence[str]) -> Counts:
        """Return the table over some attributes, or compute it from a table that has all of them.

        Args:
            names: The axes of the table, in this order.

        Returns:
            The counts. If there is no table with exactly these attributes, a table with more
            attributes is summed over the other attributes.

        Raises:
            TablesError: If no table has all these attributes.

        Example:
            >>> tables.marginal(("sex",)).tolist()
            [4000, 4000]
        """
        names = tuple(names)
        table = self._find_table(names)
        if table is None:
            raise TablesError(f"the counts have no table with {names}. Count again with the plan.")
        left = [name for name in table if name in names]
        marginal = sum_out(self.domain, table, self._counts[table], names)
        return marginal.transpose([left.index(n) for n in names])

    def _find_table(self, names: AttributeSet) -> AttributeSet | None:
        """Find a table with these attributes, if possible with no others."""
        if all(name in self.domain for name in names):
            canonical = self.domain.ordered(names)
            if canonical in self._counts:
                return canonical
        if not names:
            return next(iter(self._counts))
        wanted = set(names)
        candidates = min((self._tables_of.get(name, []) for name in names), key=len)
        return next((table for table in candidates if wanted <= set(table)), None)

    @cached_property
    def _tables_of(self) -> Mapping[str, list[AttributeSet]]:
        """The tables that have each attribute."""
        tables: dict[str, list[AttributeSet]] = {}
        for table in self._counts:
            for name in table:
                tables.setdefault(name, []).append(table)
        return tables


def _count_table(
    domain: Domain,
    names: AttributeSet,
    codes: Mapping[str, Counts],
    n: int,
    weights: Counts | None,
) -> Counts:
    """Count the rows in the cells of a table, or their shares if it has measures.

    Args:
        domain: The domain.
        names: The axes of the table.
        codes: The codes (n,) of the rows on each of them.
        n: The number of rows.
        weights: How many times each row counts (n,), if not once.

    Raises:
        TablesError: If the table would hold more than 2**58 shares.
    """
    measures = list_measures(domain, names)
    check_shares(domain, names, n if weights is None else int(weights.sum()))
    cells, strides, size = np.zeros(n, dtype=np.int64), {}, 1
    for name in reversed(names):
        strides[name] = size
        size *= domain[name].size
        if name not in measures:
            cells += codes[name] * strides[name]
    shape = get_shape(domain, names)
    if not measures:
        return _count_cells(cells, size, weights).reshape(shape)
    shares = {name: get_codec(domain[name]).count_shares(codes[name]) for name in measures}
    counts = np.zeros(size, dtype=np.int64)
    for corner in np.ndindex(*get_shape(domain, measures)):
        shares_of_row = np.ones(n, dtype=np.int64) if weights is None else weights
        for name, cell in zip(measures, corner, strict=True):
            shares_of_row = shares_of_row * shares[name][:, cell]
        offset = sum(cell * strides[name] for name, cell in zip(measures, corner, strict=True))
        np.add.at(counts, cells + offset, shares_of_row)
    return counts.reshape(shape)


def _count_cells(cells: Counts, size: int, weights: Counts | None) -> Counts:
    """Count the rows in each cell, shape (size,), by their cells and weights (n,)."""
    if weights is None:
        return np.bincount(to_positions(cells), minlength=size).astype(np.int64)
    counts = np.zeros(size, dtype=np.int64)
    np.add.at(counts, cells, weights)
    return counts
