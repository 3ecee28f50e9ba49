"""The OpenDP domains and metrics on which a plan can run, and exact answers from their members.

The members are vectors of counts and `fitplug.Tables`. OpenDP calls the functions here on the data.
They are defined on every member of their domains; they refuse data only for reasons that are the
same for all neighbours. Their errors contain nothing of the data, because OpenDP puts the full
traceback of an exception into its own.

OpenDP's distances count rows. A plan for k rows per person, anywhere, costs (d / k)^2 rho if d rows
are added or removed in any way: |A v| is at most d times the longest column. A plan for one
replaced row costs d^2 rho if d rows are replaced, under `change_one_distance()`. The number of rows
is then the same in both data sets, and the release contains it.

OpenDP's distances cannot express other units. Data in which a person's k rows lie in different
cells, of the domain or of an attribute, and data in which they all lie in one cell are both at
distance k from data without the person. Bounds per group do not help: they also allow that some
rows are added and others removed, which no difference v of the unit does. And a replaced row may
leave its region.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts import AttributeSet, Tables
from fitplug.domain import Domain, get_shape, list_measures
from fitplug.errors import BudgetError, TablesError
from fitplug.numeric import find_largest_entry
from fitplug.plan import Plan
from fitplug.workload import ReplaceOne, Unit, allows_any_rows, select_largest_sets
from fitplug_opendp._compat import import_opendp
from fitplug_opendp.count_checks import advise_counting
from fitplug_opendp.gaussian import IntVector


def check_unit_is_measurable(unit: Unit) -> None:
    """Raise BudgetError unless OpenDP's distances determine the cost in a unit of privacy."""
    if isinstance(unit, ReplaceOne):
        if unit.within:
            raise BudgetError(
                f"OpenDP has no metric for the unit of privacy {unit}. Design the plan for "
                "fp.ReplaceOne()."
            )
    elif not allows_any_rows(unit):
        raise BudgetError(
            f"OpenDP has no metric for the unit of privacy {unit}. Design the plan for "
            f"fp.AddRemove(records={unit.records})."
        )


def is_replacement(metric: Any) -> bool:
    """Return whether a metric counts replaced rows."""
    return bool(metric == import_opendp().change_one_distance())


def check_metric_of_tables(unit: Unit, metric: Any) -> None:
    """Raise ValueError unless a metric of Tables counts the changes in a unit of privacy."""
    if isinstance(unit, ReplaceOne):
        if not is_replacement(metric):
            raise ValueError(
                f"for the unit of privacy {unit}, Tables need the metric change_one_distance(), "
                f"not {metric}"
            )
    elif metric != import_opendp().symmetric_distance():
        raise ValueError(f"Tables need the metric symmetric_distance(), not {metric}")


AnswerFunction: TypeAlias = Callable[[Any], IntVector]
"""A function of a member of the input domain that returns exact answers (n,). Confidential."""

MAX_CELLS = 10**9
"""The largest size of a vector of counts. More cells are not enumerated; tables of fewer attributes
are counted instead.
"""

_COUNT_TYPES = ("i32", "i64", "u32")
"""The types that counts, and distances between vectors of counts, may have."""


@dataclass(frozen=True)
class TablesDescriptor:
    """The descriptor of a user domain: all `fitplug.Tables` with at least these tables.

    Attributes:
        domain: The fitplug Domain, with at least the attributes of the tables.
        tables: The attribute sets of the tables, none a subset of another.
    """

    domain: Domain
    tables: tuple[AttributeSet, ...]

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, Tables)
            and all(
                name in value.domain and value.domain[name] == self.domain[name]
                for names in self.tables
                for name in names
            )
            and _holds_all(tuple(value), self.tables)
        )

    def allows(self, plan: Plan) -> bool:
        """Return whether every member has all counts that the plan needs."""
        same = all(
            name in self.domain and self.domain[name] == plan.domain[name]
            for names in plan.tables
            for name in names
        )
        return same and _holds_all(self.tables, plan.tables)

    @property
    def identifier(self) -> str:
        """A text that differs for different domains: OpenDP compares user domains only by it."""
        spec = self.domain.spec()
        used = sorted({name for names in self.tables for name in names})
        content = [[(name, spec[name]) for name in used], sorted(map(sorted, self.tables))]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return f"fitplug.Tables({len(self.tables)} tables, sha256 {digest})"


def tables_domain(plan: Plan, *more: Plan) -> Any:
    """Make the OpenDP user domain of all `fitplug.Tables` with the counts that these plans need.

    The tables are marginals of one histogram. The metric is symmetric_distance(), and d_in is the
    number of rows that are added to or removed from this histogram. For plans of `fp.ReplaceOne()`
    the metric is change_one_distance(), and d_in is the number of rows of the histogram that are
    replaced by other rows. With measures, the tables hold shares of rows, and d_in still counts
    whole rows. Tables with measures whose shares add up to a fraction of a row are invalid and may
    be refused. Adding or removing one row leaves the fraction as it is, so all neighbours of such
    tables are invalid and may be refused, too. OpenDP's feature "honest-but-curious" must be
    enabled first.

    Args:
        plan: The plan, from `fitplug.design`.
        more: More plans with the same domain, to be run on the same tables.

    Returns:
        The OpenDP domain.

    Raises:
        ValueError: The plans have different domains.
    """
    plans = (plan, *more)
    for other in more:
        if other.domain != plan.domain:
            raise ValueError("the plans have different domains. Use one domain for all plans.")
    needed = select_largest_sets(names for each in plans for names in each.tables)
    descriptor = TablesDescriptor(plan.domain, needed)
    return import_opendp().user_domain(
        descriptor.identifier, lambda value: value in descriptor, descriptor
    )


def make_answers_from_tables(
    descriptor: TablesDescriptor, metric: Any, plan: Plan
) -> AnswerFunction:
    """Make the function that computes the plan's exact answers from Tables.

    Args:
        descriptor: The descriptor of the input domain.
        metric: The input metric.
        plan: The plan with n strategy answers.

    Returns:
        A function of Tables that returns exact answers (n,), and then the totals that the plan's
        unit of privacy makes public.

    Raises:
        ValueError: The plan cannot be run on this domain, or under this metric.
    """
    check_metric_of_tables(plan.unit, metric)
    if not descriptor.allows(plan):
        raise ValueError(
            "the input domain's tables lack counts that the plan needs. Make the domain with "
            "tables_domain(plan)."
        )

    def answer(tables: Any) -> IntVector:
        if tables not in descriptor:
            raise TablesError(
                "the data must be a fitplug.Tables of the measurement's input domain. "
                + advise_counting(tables)
            )
        return plan.strategy.answer_exactly(tables.marginal)

    return answer


def make_answers_from_counts(domain: Any, metric: Any, plan: Plan) -> AnswerFunction:
    """Make the function that computes the plan's exact answers from a vector of counts.

    Args:
        domain: The input domain.
        metric: The input metric.
        plan: The plan with n strategy answers.

    Returns:
        A function of the counts of all cells, in C order, that returns exact answers (n,). Its
        error for a vector of another length does not tell that length: if the vector holds rows
        by mistake, the length is the number of rows.

    Raises:
        ValueError: The plan cannot be run on this domain, or under this metric.
    """
    dp = import_opendp()
    if not any(metric == dp.l1_distance(T=T) for T in _COUNT_TYPES):
        raise ValueError(f'a vector of counts needs the metric l1_distance(T="i64"), not {metric}')
    if isinstance(plan.unit, ReplaceOne):
        raise ValueError(
            "a vector of counts does not work with fp.ReplaceOne. Use "
            "fitplug_opendp.tables_domain(plan) with change_one_distance()."
        )
    if plan.strategy.structure.shares > 1:
        raise ValueError(
            "a vector of counts has no sums of "
            f"{', '.join(list_measures(plan.domain, plan.workload.attributes))}. Use "
            "fitplug_opendp.tables_domain(plan)."
        )
    attributes = _find_vector_attributes(domain, plan)

    def answer(counts: Any) -> IntVector:
        vector = np.asarray(counts, dtype=np.int64)
        if len(vector) not in attributes:
            raise TablesError(
                f"the vector must have {' or '.join(map(str, attributes))} counts. With "
                "then_count_by_categories, set null_category=False."
            )
        names = attributes[len(vector)]
        # Sums that might not fit 64 bits are computed in Python integers.
        exact = (
            vector if find_largest_entry(vector) * len(vector) < 2**62 else vector.astype(object)
        )
        cells = exact.reshape(get_shape(plan.domain, names))

        def sum_over_others(wanted: AttributeSet) -> npt.NDArray[Any]:
            summed = cells.sum(axis=tuple(i for i, n in enumerate(names) if n not in wanted))
            left = [name for name in names if name in wanted]
            return np.asarray(summed).transpose([left.index(name) for name in wanted])

        return plan.strategy.answer_exactly(sum_over_others)

    return answer


def _find_vector_attributes(domain: Any, plan: Plan) -> dict[int, AttributeSet]:
    """Find the possible lengths of vectors, each with the attributes whose cells are counted.

    These are the attributes that the workload uses, or all attributes. Raises ValueError if no
    vector of the domain can be counts of their cells.
    """
    from opendp.mod import VectorDomain

    used_cells = plan.workload.cell_count
    carriers = [f"Vec<{T}>" for T in _COUNT_TYPES]
    if isinstance(domain, VectorDomain) and domain.carrier_type in carriers:
        attributes_by_size: dict[int, AttributeSet] = {}
        # With measures, neither a vector nor its distance would count rows.
        whole = [] if list_measures(plan.domain, plan.domain.names) else [plan.domain.names]
        for names in (plan.workload.attributes, *whole):
            size = math.prod(get_shape(plan.domain, names))
            # The vectors of OpenDP's own counting transformations have no stated length.
            if size <= MAX_CELLS and domain.size in (None, size):
                attributes_by_size.setdefault(size, names)
        if attributes_by_size:
            return attributes_by_size
    wanted = f'vector_domain(atom_domain(T="i64"), size={used_cells})'
    raise ValueError(f"the input domain must be {wanted}, not {domain}")


def _holds_all(present: tuple[AttributeSet, ...], needed: tuple[AttributeSet, ...]) -> bool:
    """Return whether each needed attribute set is a subset of a present one."""
    sets = [frozenset(names) for names in present]
    known = set(sets)
    return all(
        wanted in known or any(wanted <= other for other in sets)
        for wanted in map(frozenset, needed)
    )
