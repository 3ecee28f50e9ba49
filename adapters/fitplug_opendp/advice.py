"""What to write instead, where a frame, records or a path is given for what holds exact counts.

Only types are named: what was given may be people's rows.
"""

from __future__ import annotations

from typing import Any


def check_space(domain: object, metric: object) -> None:
    """Raise ValueError, which says how to count, unless these are a domain and a metric."""
    from opendp.mod import Domain, Metric

    if not isinstance(domain, Domain):
        raise ValueError(
            f"the input domain must be a domain of OpenDP, not {type_of(domain)}; "
            f"{counting(domain)}, for which fitplug_opendp.tables_domain(plan) is the domain"
        )
    if not isinstance(metric, Metric):
        raise ValueError(f"the input metric must be a metric of OpenDP, not {type_of(metric)}")


def type_of(value: Any) -> str:
    """Such as "a polars LazyFrame"."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return f"a {kind.__name__}" if library == "builtins" else f"a {library} {kind.__name__}"


def counting(value: Any) -> str:
    """How what was given is counted for a plan, as a clause."""
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
