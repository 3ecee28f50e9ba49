"""A plan as an algorithm for OpenDP's contingency tables, like AIM and MST.

OpenDP numbers the values of each column by the `keys` of the call, with null and all other values
last, and asks the algorithm for a measurement of these numbers that spends the query's privacy
loss. The plan's own measurement does that: OpenDP's accountant sees it, and nothing else charges.
Its answers are passed to mbi as in `to_mbi`.

This module imports OpenDP when it is imported, and mbi when a table is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.extras.mbi import Algorithm, Marginals

from fitplug.counts import Tables
from fitplug.domain import Categories, CodePrefix, Integers
from fitplug.errors import DataError, WorkloadError
from fitplug.files import import_library
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug.workload import allows_any_rows
from fitplug_export.mbi_measurements import check_plan, find_total, list_measurements
from fitplug_opendp import tables_domain, then_fitness_for_use
from fitplug_opendp.lazyframes import upper_records
from fitplug_opendp.noise_scale import UnscaledMeasurement


def fit_model(domain: Any, measurements: Any, *, known_total: float, potentials: Any = None) -> Any:
    """Fit a MarkovRandomField by mbi's mirror descent."""
    from mbi.estimation import mirror_descent

    return mirror_descent(domain, measurements, known_total=known_total, potentials=potentials)


class ReleasedMarginals(Marginals):  # type: ignore[misc]
    """The marginals of a contingency table, with the release that they are from.

    Attributes:
        release: The release, whose estimates have the plan's margins.
    """

    def __init__(self, by_clique: Mapping[tuple[str, ...], list[Any]], release: Release) -> None:
        super().__init__(by_clique)
        self.release = release


@dataclass(kw_only=True, frozen=True)
class FitnessForUse(Algorithm):  # type: ignore[misc]
    """An algorithm that gives OpenDP's `contingency_table(keys=..., algorithm=...)` a plan's noise.

        algorithm = fpe.FitnessForUse(plan=plan)
        query = context.query(rho=plan.rho).select(plan.workload.attributes)
        table = query.contingency_table(keys=algorithm.keys, algorithm=algorithm).release()
        table.marginals.release.estimates, table.synthesize()

    With `rho=plan.rho` every answer has the plan's accuracy. With another rho, all standard
    deviations of the plan are multiplied by the same factor, `release.noise_scale`. OpenDP's
    accountant charges the rho of the query, once.

    Args:
        plan: A plan for `fp.AddRemove(records=k)`, with the same k as the context's privacy unit.
            Each attribute must be `fp.Integers` or `fp.Categories` with `other`, so that null and
            all other values have a cell. The number of all rows must follow from the queries.
        estimator: A function that fits mbi's model, with the arguments of
            `mbi.estimation.mirror_descent`: the domain, the measurements, and the keywords
            `known_total` and `potentials`.

    Raises:
        WorkloadError: mbi has no model for the plan's measurements; the message says why.
        ValueError: `oneway` is given, but the plan already defines the noise of every table.
    """

    plan: Plan
    estimator: Callable[..., Any] = fit_model
    oneway: Any = "unkeyed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.oneway != "unkeyed":
            raise ValueError("the plan already sets the noise of every table. Remove oneway=.")
        check_plan(self.plan)
        if not allows_any_rows(self.plan.unit):
            raise WorkloadError(
                f"contingency tables do not support the unit of privacy {self.plan.unit!r}. "
                "Design the plan for fp.AddRemove(records=k)."
            )
        if not self.plan.workload.attributes:
            raise WorkloadError("the plan only counts all rows. Add queries by attributes.")
        for name in self.plan.workload.attributes:
            attribute = self.plan.domain[name]
            has_values = isinstance(attribute, (Integers, Categories))
            if not has_values or isinstance(attribute, CodePrefix) or attribute.other is None:
                raise WorkloadError(
                    f"for OpenDP's tables, the attribute {name!r} must be Integers or Categories "
                    "with other="
                )

    @property
    def needs_model(self) -> bool:
        """Whether OpenDP must fit a model to choose what to measure. False: the plan decides."""
        return False

    @property
    def keys(self) -> dict[str, Sequence[Any]]:
        """The values of each column, for the argument `keys` of `contingency_table`."""
        domain = self.plan.domain
        return {name: list(domain[name].values) for name in self.plan.workload.attributes}

    def make_marginals(
        self,
        input_domain: Any,
        input_metric: Any,
        output_measure: Any,
        d_in: Any,
        d_out: Any,
        *,
        marginals: Any,
        model: Any,
    ) -> Any:
        """Make the measurement; OpenDP calls this.

        Args:
            input_domain: The domain of LazyFrames, which states the number of values of each
                column.
            input_metric: OpenDP's frame distance for rows that are added or removed.
            output_measure: The measure of zCDP.
            d_in: OpenDP's Bounds on the rows per person.
            d_out: rho.
            marginals: Measurements from tables that were released earlier.
            model: A model that was fitted to tables released earlier, or None.

        Returns:
            A Measurement of `ReleasedMarginals` and a MarkovRandomField.

        Raises:
            ValueError: The values of a column differ from the values of the plan's attribute, or
                the measure is not zCDP.
        """
        library = import_library("mbi")
        if output_measure != dp.zero_concentrated_divergence():
            raise ValueError("the plan's noise is Gaussian. Give the context rho=, not epsilon=.")
        sizes = {name: _find_size(input_domain, name) for name in input_domain.columns}
        for name in self.plan.workload.attributes:
            if sizes.get(name) != self.plan.domain[name].size:
                raise ValueError(
                    f"column {name!r} is missing, or its values differ from the plan's. Pass "
                    "keys=algorithm.keys to the call."
                )
        counting = dp.t.make_user_transformation(
            input_domain,
            input_metric,
            tables_domain(self.plan),
            dp.symmetric_distance(),
            lambda frame: _count_numbers(self.plan, frame),
            upper_records,
        )
        measurement = UnscaledMeasurement(
            lambda scale: counting >> then_fitness_for_use(self.plan, scale)
        ).fix(d_in, d_out, output_measure)
        domain = library.Domain.fromdict(sizes) if model is None else model.domain

        def fit(release: Release) -> tuple[Marginals, Any]:
            measured = marginals.add(
                *(
                    library.LinearMeasurement(t.values, t.attributes, stddev=1.0, query=t.query)
                    for t in list_measurements(release)
                )
            )
            fitted = self.estimator(
                domain,
                measured.flatten(),
                known_total=max(1.0, find_total(release)),
                potentials=None if model is None else model.potentials,
            )
            return ReleasedMarginals(measured.by_clique, release), fitted

        return measurement >> fit


def _find_size(domain: Any, name: str) -> int:
    """Find how many values OpenDP has numbered of a column."""
    low, high = domain.get_series_domain(name).element_domain.bounds
    return int(high) - int(low) + 1


def _count_numbers(plan: Plan, frame: Any) -> Tables:
    """Count a LazyFrame of the numbers of values, which are the plan's codes: `other` is last.

    Raises:
        DataError: The frame cannot be computed. The error repeats nothing of what Polars says.
    """
    names = list(plan.workload.attributes)
    try:
        data = frame.select(names).collect()
    except (Exception, pl.exceptions.PanicException):
        data = None
    if data is None:
        raise DataError("cannot read the LazyFrame. Collect it first and check its columns.")
    codes = {name: data[name].to_numpy().astype(np.int64) for name in names}
    return Tables.from_codes(plan.domain, codes, plan.tables, data.height)
