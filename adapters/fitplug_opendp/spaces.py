"""What a plan can be run on, and its exact answers from each: count vectors and Tables.

The functions here are called by OpenDP on the data. They are total on their domains, up to what is
the same for all neighbours, and no error of theirs carries anything of the data: OpenDP puts an
exception's whole traceback into its own.
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

from fitplug.counts import Names, Tables
from fitplug.domain import Domain
from fitplug.errors import TablesError
from fitplug.mechanism import exact_answers
from fitplug.numeric import largest
from fitplug.plan import Plan
from fitplug.workload import largest_sets
from fitplug_opendp.advice import counting
from fitplug_opendp.gaussian import opendp

Answer: TypeAlias = Callable[[Any], npt.NDArray[np.int64]]

MAX_CELLS = 10**9
"""Of a vector of counts: more are not enumerated; tables of fewer attributes are."""

_INTEGERS = ("i32", "i64", "u32")
"""What counts, and distances between vectors of them, may be."""


@dataclass(frozen=True)
class TablesDescriptor:
    """Of a user domain: all `fitplug.Tables` of one histogram that give at least these tables.

    domain: with at least the attributes named. tables: attribute sets, none inside another.
    """

    domain: Domain
    tables: tuple[Names, ...]

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, Tables)
            and all(
                name in value.domain and value.domain[name] == self.domain[name]
                for names in self.tables
                for name in names
            )
            and _covered(self.tables, tuple(value))
        )

    def allows(self, plan: Plan) -> bool:
        """Whether all its members hold what the plan needs."""
        same = all(
            name in self.domain and self.domain[name] == plan.domain[name]
            for names in plan.tables
            for name in names
        )
        return same and _covered(plan.tables, self.tables)

    @property
    def identifier(self) -> str:
        """All that tells this domain from others: OpenDP compares user domains by nothing else."""
        spec = self.domain.spec()
        used = sorted({name for names in self.tables for name in names})
        content = [[(name, spec[name]) for name in used], sorted(map(sorted, self.tables))]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return f"fitplug.Tables({len(self.tables)} tables, sha256 {digest})"


def tables_domain(plan: Plan, *more: Plan) -> Any:
    """The OpenDP user domain of `fitplug.Tables` that hold what these plans need; to be used with
    symmetric_distance(): d_in records added to or removed from the one histogram they are of.

    Needs OpenDP's feature "honest-but-curious", which it never enables itself.

    :param plan: from `fitplug.design`.
    :param more: further plans of the same domain, to be run on the same tables.
    :raises ValueError: if the plans' domains differ.
    """
    plans = (plan, *more)
    for other in more:
        if other.domain != plan.domain:
            raise ValueError("the plans are of different domains; use one domain for all of them")
    held = largest_sets(names for each in plans for names in each.tables)
    descriptor = TablesDescriptor(plan.domain, held)
    return opendp().user_domain(
        descriptor.identifier, lambda value: value in descriptor, descriptor
    )


def answer_tables(descriptor: TablesDescriptor, metric: Any, plan: Plan) -> Answer:
    """The exact answers from Tables. Raises ValueError if the space is not one for the plan."""
    if metric != opendp().symmetric_distance():
        raise ValueError(
            f"Tables need symmetric_distance() as their metric, not {metric}: "
            "there d_in is the number of records added or removed"
        )
    if not descriptor.allows(plan):
        raise ValueError(
            "the input domain's tables do not hold what the plan needs; "
            "make it by tables_domain(plan)"
        )

    def answer(tables: Any) -> npt.NDArray[np.int64]:
        if tables not in descriptor:
            raise TablesError(
                "the data is not fitplug.Tables of the measurement's input domain; "
                + counting(tables)
            )
        return exact_answers(plan.strategy, tables.marginal)

    return answer


def answer_counts(domain: Any, metric: Any, plan: Plan) -> Answer:
    """The exact answers from a vector of counts. Raises ValueError if the space is not one."""
    dp = opendp()
    if not any(metric == dp.l1_distance(T=T) for T in _INTEGERS):
        raise ValueError(
            f'a count vector needs l1_distance(T="i64") as its metric, not {metric}: '
            "there d_in is the number of records added or removed"
        )
    layouts = _layouts(domain, plan)

    def answer(counts: Any) -> npt.NDArray[np.int64]:
        vector = np.asarray(counts, dtype=np.int64)
        if len(vector) not in layouts:
            # Not how many it has: given records by mistake, that is how many there are.
            raise TablesError(
                f"the vector must hold {' or '.join(map(str, layouts))} counts; if it has one "
                "more from then_count_by_categories, that is its null cell: set "
                "null_category=False there, or give the attribute a cell for other values"
            )
        names = layouts[len(vector)]
        # Sums that 64 bits might not hold are taken in Python integers.
        exact = vector if largest(vector) * len(vector) < 2**62 else vector.astype(object)
        cells = exact.reshape(plan.domain.shape_of(names))

        def counted(wanted: Names) -> npt.NDArray[Any]:
            summed = cells.sum(axis=tuple(i for i, n in enumerate(names) if n not in wanted))
            left = [name for name in names if name in wanted]
            return np.asarray(summed).transpose([left.index(name) for name in wanted])

        return exact_answers(plan.strategy, counted)

    return answer


def _layouts(domain: Any, plan: Plan) -> dict[int, Names]:
    """The attributes that vectors of each length are of: those the workload uses, or all."""
    from opendp.mod import VectorDomain

    cells = plan.workload.cell_count
    if isinstance(domain, VectorDomain) and domain.carrier_type in [f"Vec<{T}>" for T in _INTEGERS]:
        found: dict[int, Names] = {}
        for names in (plan.workload.attributes, plan.domain.names):
            size = math.prod(plan.domain.shape_of(names))
            # OpenDP's own counting transformations do not say how long their vectors are.
            if size <= MAX_CELLS and domain.size in (None, size):
                found.setdefault(size, names)
        if found:
            return found
    wanted = f'vector_domain(atom_domain(T="i64"), size={cells})'
    raise ValueError(
        f"the plan counts {cells} cells and needs {wanted}, or one of "
        f"{', '.join(T for T in _INTEGERS if T != 'i64')}, not {domain}"
    )


def _covered(needed: tuple[Names, ...], held: tuple[Names, ...]) -> bool:
    """Whether each attribute set needed lies in one that is held."""
    sets = [frozenset(names) for names in held]
    known = set(sets)
    return all(
        wanted in known or any(wanted <= other for other in sets)
        for wanted in map(frozenset, needed)
    )
