"""Sets of marginals: the tables of all combinations of some attributes, asked for at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import IntArray
from fitplug.workload.targets import Target, TargetKeywords, read_target

if TYPE_CHECKING:
    from typing_extensions import Unpack

MOST_TABLES = 10_000_000
"""The largest number of tables of one set of marginals."""


@dataclass(frozen=True, eq=False)
class UnboundMarginals:
    """A set of marginals that is not yet bound to a domain.

    Attributes:
        attributes: The attributes that are combined.
        ways: The numbers of attributes of a table, ascending.
        target: The target of every table, or one for each table.
    """

    attributes: tuple[str, ...]
    ways: tuple[int, ...]
    target: Target

    def __len__(self) -> int:
        return _count_tables(len(self.attributes), self.ways)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """List the attributes of each table: fewer attributes first, in the order given."""
        return _combine(self.attributes, self.ways)

    @property
    def names(self) -> list[str]:
        """The names that `marginal` derives for the tables."""
        return [name or "total" for name in map(" x ".join, self)]

    @property
    def attribute_counts(self) -> IntArray:
        """The number of attributes of each table."""
        tables = [math.comb(len(self.attributes), k) for k in self.ways]
        return np.repeat(np.array(self.ways, dtype=np.int64), tables)

    @property
    def attribute_indices(self) -> IntArray:
        """The attributes of one table after another, as indices into `attributes`."""
        indices = _combine(range(len(self.attributes)), self.ways)
        size = int(self.attribute_counts.sum())
        return np.fromiter(itertools.chain.from_iterable(indices), np.int64, size)


def marginals(
    domain: Domain,
    *,
    ways: int | Iterable[int],
    attributes: Iterable[str] | None = None,
    **target: Unpack[TargetKeywords],
) -> UnboundMarginals:
    """Ask for the marginal tables of all combinations of up to some number of attributes.

    They are the groups of `marginal` for each combination, with the same names, and a million of
    them take a few seconds. They go into the list of groups of a Workload, beside others.

        fp.Workload(domain, [fp.marginals(domain, ways=3, std=5.0), fp.total(std=1.0)])

    Args:
        domain: The domain, which names the attributes.
        ways: With a number k, the tables of 1, 2, ... and k attributes. With several numbers, the
            tables of exactly so many attributes: `[3]` asks for no table of 1 or 2 attributes, and
            `range(4)` for the total too, which has 0.
        attributes: The names of the attributes that are combined; all of the domain by default,
            but measures.
        target: `variance`, `std` or `moe`, and for the latter `confidence` and `simultaneous`, as
            for `queries`. It is a number, or an array of one number for each table, in the order in
            which `itertools.combinations` lists them, tables of fewer attributes first.

    Returns:
        The tables. Its length is their number, and iterating over it lists their attributes.

    Raises:
        WorkloadError: An attribute is unknown or named twice, `ways` are no numbers of attributes,
            there are too many tables, or the target is not well formed.
    """
    if not isinstance(domain, Domain):
        raise WorkloadError("marginals need a Domain first")
    if isinstance(attributes, str):
        raise WorkloadError(f"attributes = {attributes!r} must be a list of names")
    counted = (name for name in domain.names if not domain[name].quantities)
    names = tuple(counted if attributes is None else attributes)
    for name in names:
        if name not in domain:
            hint = suggest_nearest(name, domain.names)
            raise WorkloadError(f"marginals: the domain has no attribute {name!r}; {hint}")
    if len(set(names)) < len(names):
        raise WorkloadError("marginals name an attribute twice")
    numbers = _read_ways(ways, len(names))
    tables = _count_tables(len(names), numbers)
    if tables > MOST_TABLES:
        raise WorkloadError(
            f"marginals of {_list_ways(numbers)} of {len(names)} attributes are {tables:,} tables; "
            f"up to {MOST_TABLES:,} can be asked for: combine fewer attributes"
        )
    try:
        read = read_target(**target)
    except WorkloadError as error:
        raise WorkloadError(f"marginals: {error}") from None
    if read.value.shape not in ((), (tables,)):
        raise WorkloadError(
            f"marginals: {read.kind} has shape {read.value.shape}; give one number, or one for "
            f"each of the {tables:,} tables"
        )
    return UnboundMarginals(names, numbers, read)


def _read_ways(ways: Any, attributes: int) -> tuple[int, ...]:
    """Read the numbers of attributes of a table, ascending."""
    given: Sequence[Any] = ()
    if _is_count(ways):
        given = range(min(1, int(ways)), int(ways) + 1)
    elif isinstance(ways, Iterable) and not isinstance(ways, (str, bytes)):
        given = tuple(ways)
    if not given or not all(_is_count(k) and k <= attributes for k in given):
        raise WorkloadError(
            f"ways = {ways!r} must be a number of attributes, or a list of such numbers, from 0 to "
            f"{attributes}"
        )
    if len(set(given)) < len(given):
        raise WorkloadError(f"ways = {ways!r} holds a number twice")
    return tuple(sorted(map(int, given)))


def _is_count(number: Any) -> bool:
    """Tell whether something is an integer from 0 up."""
    is_integer = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    return is_integer and number >= 0


def _list_ways(ways: Sequence[int]) -> str:
    """List numbers of attributes for people."""
    return ", ".join(map(str, ways))


def _count_tables(attributes: int, ways: Iterable[int]) -> int:
    """Count the tables."""
    return sum(math.comb(attributes, k) for k in ways)


def _combine(items: Sequence[Any], ways: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """List the combinations of so many items, fewer items first."""
    return itertools.chain.from_iterable(itertools.combinations(items, k) for k in ways)
