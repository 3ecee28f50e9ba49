"""Query groups: Kronecker products of one factor per named attribute, with their targets.

A set of marginals asks for the tables of all combinations of some attributes at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fitplug.domain import Domain, get_codec
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import FloatArray, IntArray
from fitplug.workload.factors import Factor, Kind
from fitplug.workload.targets import Target, TargetKeywords, read_target

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class UnboundQueryGroup:
    """A query group that is not yet bound to a domain.

    Attributes:
        factors: The attributes and the given query on each, in order.
        target: The target.
        name: The given name, or None to derive one.
    """

    factors: tuple[tuple[str, Any], ...]
    target: Target
    name: str | None

    def __repr__(self) -> str:
        kinds = [
            f"{of} {kind if isinstance(kind, str) else ''}".strip() for of, kind in self.factors
        ]
        named = "" if self.name is None else f"{self.name!r}, "
        return f"UnboundQueryGroup({named}{' x '.join(kinds) or 'total'}, {self.target.describe()})"


def queries(
    factors: Mapping[str, Kind | Any],
    *,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    name: str | None = None,
) -> UnboundQueryGroup:
    """Ask for a group of queries: all combinations of the queries that you choose by attribute.

    The group's matrix is the Kronecker product of one factor for each attribute. The group's shape
    has an axis for each attribute in `factors`, in the same order. Queries count rows whatever
    their values of the other attributes. Give exactly one of `variance`, `std` and `moe`.

    Args:
        factors: For each attribute, one of "identity", "prefix", "all_ranges", "total",
            `ranges(...)`, `subsets(...)`, the name of a level of a Hierarchy, or a matrix: an array
            or a sparse matrix of SciPy, of shape (queries, cells). For a Measure, also "sum", for
            the sum of its values.
        variance: The largest allowed variance of each answer: a number, or an array that broadcasts
            to the group's shape.
        std: The largest allowed standard deviation of each answer, in the same forms as `variance`.
        moe: The largest allowed margin of error of each answer at `confidence`, in the same forms
            as `variance`.
        confidence: The confidence of `moe`, strictly between 0 and 1; 0.95 by default.
        simultaneous: Whether all answers of the group are simultaneously within their margins of
            error with this confidence. If False, each answer separately is.
        name: The name of the group; by default it is derived from the factors.

    Raises:
        WorkloadError: `factors` is not a mapping, or the target or the name is invalid.

    Example:
        >>> fp.queries({"sex": "identity", "age": "prefix"}, moe=30.0, confidence=0.9).name is None
        True
        >>> fp.queries({"age": fp.ranges([(0, 1), (2, 3)])}, std=5.0, name="bands").name
        'bands'
    """
    if not isinstance(factors, Mapping):
        raise WorkloadError(
            f'fp.queries needs a dict, such as {{"age": "prefix"}}, not {type(factors).__name__}'
        )
    target = {
        "variance": variance,
        "std": std,
        "moe": moe,
        "confidence": confidence,
        "simultaneous": simultaneous,
    }
    return _make_group(tuple(factors.items()), name, target)


def marginal(
    *attributes: str, name: str | None = None, **target: Unpack[TargetKeywords]
) -> UnboundQueryGroup:
    """Ask for the marginal table of some attributes: a count for each combination of their cells.

    Args:
        attributes: The names of the attributes.
        name: The name of the group; by default it is derived from the attributes.
        target: One of `variance`, `std` and `moe`, as for `queries`. With `moe` you may also give
            `confidence` and `simultaneous`.

    Raises:
        WorkloadError: An attribute is named twice, or the target or the name is invalid.

    Example:
        >>> fp.Workload(domain, [fp.marginal("sex", "age", std=5.0)])["sex x age"].shape
        (2, 4)
    """
    if len(set(attributes)) != len(attributes):
        raise WorkloadError(
            f"marginal {attributes} names an attribute twice. Name each attribute once."
        )
    return _make_group(tuple(map(_ask_identity, attributes)), name, target)


def total(*, name: str = "total", **target: Unpack[TargetKeywords]) -> UnboundQueryGroup:
    """Ask for the number of all rows: a group of one query, with the shape ().

    Args:
        name: The name of the group.
        target: One of `variance`, `std` and `moe`, as for `queries`. With `moe` you may also give
            `confidence` and `simultaneous`.

    Raises:
        WorkloadError: The target or the name is invalid.

    Example:
        >>> fp.Workload(domain, [fp.total(std=1.0)])["total"].shape
        ()
    """
    return queries({}, name=name, **target)


def _make_group(
    factors: tuple[tuple[str, Any], ...], name: str | None, target: Mapping[str, Any]
) -> UnboundQueryGroup:
    """Make a group from the queries on its attributes and the keywords of its target."""
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise WorkloadError(f"name = {name!r} must be a non-empty string")
    try:
        read = read_target(**target)
    except WorkloadError as error:
        attributes = [attribute for attribute, _ in factors]
        raise WorkloadError(f"query {repr(name) if name else attributes}: {error}") from None
    return UnboundQueryGroup(factors, read, name)


@lru_cache(maxsize=4096, typed=True)
def _ask_identity(attribute: str) -> tuple[str, str]:
    """Return the query for each cell of an attribute. A million tables may share a few of these."""
    return attribute, "identity"


@dataclass(frozen=True, eq=False, repr=False)
class QueryGroup:
    """A query group that is bound to a domain.

    Attributes:
        name: The name of the group, which is unique in a workload.
        factors: One factor per named attribute, in the order of their names.
        target: The target, in the form in which the user gave it.
        variances: The target of each query as a variance, of shape `shape`.
    """

    name: str
    factors: tuple[Factor, ...]
    target: Target
    variances: FloatArray

    def __repr__(self) -> str:
        return f"QueryGroup({self.name!r}, {self.size:,} queries, {self.target.describe()})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows of each factor."""
        return tuple(f.rows for f in self.factors)

    @property
    def size(self) -> int:
        """The number of queries."""
        return math.prod(self.shape)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that are not summed out."""
        return tuple(f.attribute for f in self.factors if f.kind != "total")

    @property
    def quantity(self) -> str:
        """The unit of the answers and their standard deviations: "rows", or for instance "sum of
        INCOME", in the measure's own unit.
        """
        measures = [f.attribute for f in self.factors if f.kind == "sum" and f.array is not None]
        return f"sum of {' x '.join(measures)}" if measures else "rows"


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

    The result stands for one group for each combination, as from `marginal`. Put it into the list
    of groups of a Workload, together with other groups. Making a million groups takes a few
    seconds.

        fp.Workload(domain, [fp.marginals(domain, ways=3, std=5.0), fp.total(std=1.0)])

    Args:
        domain: The domain of the workload.
        ways: The number of attributes in each table. `3` means tables of one, two and three
            attributes, and `[3]` means only tables of three attributes. `range(4)` means the total
            and tables of one, two and three attributes.
        attributes: The names of the attributes to combine; by default all attributes of the domain
            except measures.
        target: One of `variance`, `std` and `moe`, as for `queries`. With `moe` you may also give
            `confidence` and `simultaneous`. The target is a number, or an array with a number for
            each table: tables of fewer attributes come first, and tables of equally many attributes
            are in the order of `itertools.combinations`.

    Returns:
        The groups as one object. Its `len` is the number of groups, and iterating over it lists
        the attributes of each group.

    Raises:
        WorkloadError: An attribute is unknown or named twice, `ways` is invalid, there are
            too many tables, or the target is invalid.
    """
    if not isinstance(domain, Domain):
        raise WorkloadError("marginals needs a Domain as its first argument")
    if isinstance(attributes, str):
        raise WorkloadError(f"attributes = {attributes!r} must be a list of names")
    counted = (name for name in domain.names if not get_codec(domain[name]).quantities)
    names = tuple(counted if attributes is None else attributes)
    for name in names:
        if name not in domain:
            hint = suggest_nearest(name, domain.names)
            raise WorkloadError(f"marginals: the domain has no attribute {name!r}. {hint}")
    if len(set(names)) < len(names):
        raise WorkloadError("marginals names an attribute twice. Name each attribute once.")
    numbers = _read_ways(ways, len(names))
    tables = _count_tables(len(names), numbers)
    if tables > MOST_TABLES:
        raise WorkloadError(
            f"marginals would make {tables:,} tables; the limit is {MOST_TABLES:,}. Use smaller "
            "numbers in 'ways'."
        )
    try:
        read = read_target(**target)
    except WorkloadError as error:
        raise WorkloadError(f"marginals: {error}") from None
    if read.value.shape not in ((), (tables,)):
        raise WorkloadError(
            f"marginals: {read.kind} must be one number, or one for each of the {tables:,} tables, "
            f"not an array of shape {read.value.shape}"
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
            f"ways = {ways!r} must be an integer from 0 to {attributes}, or a list of such integers"
        )
    if len(set(given)) < len(given):
        raise WorkloadError(f"ways = {ways!r} lists a number twice. List each number once.")
    return tuple(sorted(map(int, given)))


def _is_count(number: Any) -> bool:
    """Tell whether something is an integer from 0 up."""
    is_integer = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    return is_integer and number >= 0


def _count_tables(attributes: int, ways: Iterable[int]) -> int:
    """Count the tables of so many attributes."""
    return sum(math.comb(attributes, k) for k in ways)


def _combine(items: Sequence[Any], ways: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """List the combinations with each number of items in `ways`, fewer items first."""
    return itertools.chain.from_iterable(itertools.combinations(items, k) for k in ways)
