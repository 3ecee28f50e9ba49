"""Plans for series: what 24 months of 100 regions cost, and how long a period takes to draw.

    python benchmarks/series.py [--months N] [--regions N] [--once]

The queries are the months, their sums since the beginning, and the changes on a year earlier, of
each region. `--once` adds the unit of at most one record a month, which takes longer to design. The
peer is noise of its own for each month, which needs no plan.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from markdown_table import compute_delta_gap, heading, line

import fitplug as fp
from fitplug.workload import allows_any_rows, count_changes


def make_workload(months: int, regions: int) -> fp.Workload:
    """Ask for months, sums since the beginning, and changes on a year earlier."""
    domain = fp.Domain({"MONTH": fp.Integers(1, months), "REGION": fp.Integers(1, regions)})
    changes = np.eye(months)[12:] - np.eye(months)[:-12]
    return fp.Workload(
        domain,
        [
            fp.marginal("MONTH", "REGION", std=10.0, name="months"),
            fp.queries({"MONTH": "prefix", "REGION": "identity"}, std=30.0, name="so far"),
            fp.queries({"MONTH": changes, "REGION": "identity"}, std=10.0, name="changes"),
        ],
    )


def compute_separate_rho(workload: fp.Workload) -> float:
    """Compute rho of one record where each month has noise of its own that meets all targets."""
    variances = fp.baselines.input_perturbation(workload, 1.0)
    return 0.5 * max(
        float(np.max(variances[group.name] / group.variances)) for group in workload.groups
    )


def time_periods(plan: fp.Plan) -> float:
    """Draw all periods of a series, and return the seconds of one."""
    domain = plan.domain
    counts = np.random.default_rng(1).poisson(1000, domain.shape)
    tables = fp.Tables(domain, {domain.names: counts})
    with tempfile.TemporaryDirectory() as folder:
        ledger = fp.Ledger(Path(folder, "budget.db"), rho=1e6)
        series = fp.begin_series(plan, Path(folder, "series"), ledger=ledger, key="a")
        start = time.perf_counter()
        for label in series.labels:
            series.release(label, tables)
        return (time.perf_counter() - start) / len(series.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=24)
    parser.add_argument("--regions", type=int, default=100)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    workload = make_workload(given.months, given.regions)
    separate = compute_separate_rho(workload)
    units = [fp.AddRemove(), fp.AddRemove(given.months)]
    if given.once:
        units.append(fp.AddRemove(given.months, once_per="MONTH"))
    columns = ["unit", "rho", "gap of Delta", "rho, not by period", "rho, own noise a month"]
    print(heading([*columns, "seconds to design", "seconds a period"]))
    for unit in units:
        start = time.perf_counter()
        plan = fp.design(workload, unit=unit, periods="MONTH")
        seconds = time.perf_counter() - start
        usual = fp.design(workload, unit=unit)
        # Where months have noise of their own, records of several months add up as months do.
        own = separate * (count_changes(unit) ** 2 if allows_any_rows(unit) else unit.records)
        drawn = time_periods(plan)
        cells = [repr(unit), f"{plan.rho:.6f}", f"{compute_delta_gap(plan):.1e}"]
        cells += [f"{usual.rho:.6f}", f"{own:.6f}"]
        print(line([*cells, f"{seconds:.2f}", f"{drawn:.2f}"]))


if __name__ == "__main__":
    main()
