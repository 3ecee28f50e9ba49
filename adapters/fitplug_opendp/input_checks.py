"""Checks of what callers give, with errors that say what to give instead.

The errors name types and attributes only, as a value that was given may be people's rows.
"""

from __future__ import annotations

from typing import Any

from fitplug.counts import Tables
from fitplug.errors import TablesError
from fitplug.plan import Plan


def check_space(domain: object, metric: object) -> None:
    """Raise ValueError unless these are a domain and a metric of OpenDP."""
    from opendp.mod import Domain, Metric

    if not isinstance(domain, Domain):
        raise ValueError(
            f"the input domain must be a domain of OpenDP, not {describe_type(domain)}; "
            f"{advise_counting(domain)}, for which fitplug_opendp.tables_domain(plan) is the domain"
        )
    if not isinstance(metric, Metric):
        raise ValueError(
            f"the input metric must be a metric of OpenDP, not {describe_type(metric)}"
        )


def check_are_tables(tables: object) -> None:
    """Raise TablesError unless the value is Tables; for frames and records it says how to count."""
    if not isinstance(tables, Tables):
        raise TablesError(
            f"tables must be fitplug.Tables, exact counts, not {describe_type(tables)}; "
            + advise_counting(tables)
        )


def check_tables(plan: Plan, tables: Tables) -> None:
    """Raise TablesError unless the tables hold what the plan needs, in the plan's own cells.

    The check does not look at how many records are counted, as a refusal would tell that exact
    number. Answers beyond what the plan's integers hold are clamped, and the noisy answers tell it.
    """
    for names in plan.tables:
        for name in names:
            if name not in tables.domain or tables.domain[name] != plan.domain[name]:
                raise TablesError(
                    f"the tables do not match the plan: their attribute {name!r} is missing or "
                    "has other cells; count them again with this plan"
                )
    for names in plan.tables:
        tables.marginal(names)


def describe_type(value: Any) -> str:
    """Describe the type of a value with its article and library, such as "a polars LazyFrame"."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return f"a {kind.__name__}" if library == "builtins" else f"a {library} {kind.__name__}"


def advise_counting(value: Any) -> str:
    """Write the clause that says how to count what was given in the place of exact counts."""
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        return (
            "count it by fitplug.Tables.from_records(plan.domain, frame.collect(), plan.tables), "
            "or in OpenDP on its lazyframe_domain"
        )
    if hasattr(value, "columns") or hasattr(value, "column_names") or hasattr(value, "keys"):
        return "count it by fitplug.Tables.from_records(plan.domain, records, plan.tables)"
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return "count it by fitplug_dask.count(path, plan)"
    return "count the records by fitplug.Tables.from_records(plan.domain, records, plan.tables)"
