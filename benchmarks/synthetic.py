"""Measure the error of synthetic records from a release beside those of AIM at equal rho.

    git clone https://github.com/ryan112358/mbi
    python benchmarks/synthetic.py --mbi mbi [--draws 3] > benchmarks/synthetic.md

AIM is `mechanisms/aim.py` of that checkout, with its default parameters but for rho, which is set.
Both use the mbi that is installed. The records are those of examples/acs. This needs the extras
opendp, arrow and mbi, and pandas and matplotlib, which `mechanisms/` imports.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.dataset as ds
from markdown_table import heading, line
from numpy.typing import NDArray

import fitplug as fp
import fitplug_export as fpe
from fitplug.domain import get_shape

HERE = Path(__file__).parent
PEOPLE = HERE.parent / "examples" / "acs"

HEAD = """The records are the {records:,} of examples/acs. Each mechanism costs the rho of the row,
for one row added or removed. The errors are those of the tables. "L1" is half the sum
of the absolute differences of the shares of all cells, the average over tables, as AIM's script
reports it. "RMSE" is the root of the average squared error of a count, over all cells of all
tables. Both are the average of {draws} draws, with the lowest and the highest in brackets. The
noise of releases is OpenDP's, which has no seed; AIM has the seeds 0 to {last}.

* "release" is the release itself: its unbiased estimates, which may be negative.
* "records of the release" are synthetic records from it: `fpe.to_mbi(release)`, mirror descent of
  mbi with {iterations} iterations, and `synthetic_data`. The plan makes every cell of every table
  equally accurate.
* "records of AIM" are those of `mechanisms/aim.py` of mbi's repository at {commit}, with its
  default parameters.

Both use mbi {version} with JAX in 64 bits.
"""

ITERATIONS = 3000
RHOS = (0.005, 0.05, 0.5)

Tables = dict[tuple[str, ...], NDArray[np.float64]]


WORKLOADS: dict[str, list[tuple[str, ...]]] = {
    "15 tables of two of six attributes": list(
        itertools.combinations(("SEX", "MSP", "RAC1P", "HISP", "EDU", "HOUSING_TYPE"), 2)
    ),
    "six tables of nine attributes": [
        ("AGEP", "SEX"),
        ("SEX", "EDU", "PINCP_DECILE"),
        ("RAC1P", "HISP"),
        ("PUMA", "RAC1P"),
        ("PUMA", "OWN_RENT"),
        ("MSP", "SEX"),
    ],
}


class Error(NamedTuple):
    """The error of some tables.

    Attributes:
        l1: Half the sum of the absolute differences of shares, the average over tables.
        rmse: The root of the average squared error of a count.
    """

    l1: float
    rmse: float


def read_domain(names: list[str]) -> fp.Domain:
    """Read attributes from the published schema."""
    described = json.loads((PEOPLE / "schema.json").read_text())["schema"]
    kinds: dict[str, Any] = {}
    for name in names:
        field = described[name]
        values = [str(v) for v in field.get("values", [])]
        if field.get("has_null") and field["null_value"] not in values:
            values.append(field["null_value"])
        kinds[name] = values or fp.Integers(field["min"], field["max"])
    return fp.Domain(kinds)


def read_codes(domain: fp.Domain) -> dict[str, NDArray[np.int64]]:
    """Read the cell of each record on each attribute."""
    rows = ds.dataset(PEOPLE / "people", partitioning="hive").to_table(columns=list(domain.names))
    codes = {}
    for name in domain.names:
        cells = {label: i for i, label in enumerate(domain[name].labels)}
        codes[name] = np.array([cells[str(value)] for value in rows[name].to_pylist()])
    return codes


def tabulate(domain: fp.Domain, codes: Any, tables: list[tuple[str, ...]]) -> Tables:
    """Count records by tables."""
    found = {}
    for names in tables:
        shape = get_shape(domain, names)
        cells = np.ravel_multi_index([codes[name] for name in names], shape)
        counts = np.bincount(cells, minlength=int(np.prod(shape)))
        found[names] = counts.reshape(shape).astype(np.float64)
    return found


def compare(exact: Tables, found: Tables) -> Error:
    """Compute the error of tables."""
    shares = [
        0.5 * np.abs(x / x.sum() - found[names] / found[names].sum()).sum()
        for names, x in exact.items()
    ]
    squares = np.concatenate([((x - found[names]) ** 2).ravel() for names, x in exact.items()])
    return Error(float(np.mean(shares)), float(np.sqrt(squares.mean())))


def measure_release(
    domain: fp.Domain, codes: Any, exact: Tables, rho: float
) -> tuple[Error, Error, float]:
    """Measure a release, and records from it; gives its rho too."""
    from mbi import estimation

    tables = list(exact)
    groups = [fp.marginal(*names, variance=1.0, name=" x ".join(names)) for names in tables]
    plan = fp.design(fp.Workload(domain, [*groups, fp.total(variance=1.0)]), rho=rho)
    counted = {names: tabulate(domain, codes, [names])[names] for names in plan.tables}
    counts = fp.Tables(domain, {names: x.astype(np.int64) for names, x in counted.items()})
    release = fp.release(plan, counts)
    own = {names: release.estimates[" x ".join(names)] for names in tables}
    given, measurements, total = fpe.to_mbi(release)
    model = estimation.MirrorDescent().estimate(
        given, measurements, known_total=total, iters=ITERATIONS
    )
    records = tabulate(domain, model.synthetic_data().to_dict(), tables)
    return compare(exact, own), compare(exact, records), release.rho


class Estimator:
    """mbi's mirror descent with the argument by which `aim.py` names the model to begin with."""

    @staticmethod
    def estimate(*given: Any, potentials: Any = None, **named: Any) -> Any:
        from mbi import estimation

        return estimation.MirrorDescent().estimate(*given, warm_start=potentials, **named)


def measure_aim(domain: fp.Domain, codes: Any, exact: Tables, rho: float, seed: int) -> Error:
    """Measure records of AIM."""
    import aim
    from mbi import Dataset, Domain

    aim.estimation = SimpleNamespace(MirrorDescent=Estimator)
    np.random.seed(seed)
    data = Dataset(codes, Domain(domain.names, domain.shape))
    mechanism = aim.AIM(1.0, 1e-9)
    mechanism.rho = rho
    with contextlib.redirect_stdout(sys.stderr):
        _, records = mechanism.run(data, [(names, 1.0) for names in exact])
    return compare(exact, tabulate(domain, records.to_dict(), list(exact)))


def measure(draws: int) -> Iterator[tuple[str, float, dict[str, list[Error]]]]:
    """Measure each workload at each rho."""
    import jax

    for title, tables in WORKLOADS.items():
        domain = read_domain(list(dict.fromkeys(name for names in tables for name in names)))
        codes = read_codes(domain)
        exact = tabulate(domain, codes, tables)
        for rho in RHOS:
            errors: dict[str, list[Error]] = {
                "release": [],
                "records of the release": [],
                "records of AIM": [],
            }
            for seed in range(draws):
                unbiased, records, spent = measure_release(domain, codes, exact, rho)
                assert spent <= rho
                errors["release"].append(unbiased)
                errors["records of the release"].append(records)
                errors["records of AIM"].append(measure_aim(domain, codes, exact, rho, seed))
                jax.clear_caches()  # compiled programs would fill the memory maps of the process
                print(title, rho, seed, {k: v[-1] for k, v in errors.items()}, file=sys.stderr)
            yield title, rho, errors


def show(values: list[float], digits: int) -> str:
    """Write an average with the lowest and the highest."""
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{np.mean(values):.{digits}f} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbi", type=Path, required=True, help="a checkout of mbi")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--commit", help="the commit of the checkout, if it has no .git")
    arguments = parser.parse_args()
    os.environ["JAX_ENABLE_X64"] = "1"
    sys.path.insert(0, str(arguments.mbi / "mechanisms"))
    asked = ["git", "-C", str(arguments.mbi), "rev-parse", "--short", "HEAD"]
    commit = arguments.commit or subprocess.check_output(asked, text=True).strip()
    print("# Synthetic records\n")
    records = len(next(iter(read_codes(read_domain(["SEX"])).values())))
    draws = arguments.draws
    print(
        HEAD.format(
            records=records,
            draws=draws,
            last=draws - 1,
            iterations=ITERATIONS,
            commit=commit,
            version=version("mbi"),
        )
    )
    print(heading(["workload", "rho", "what", "L1", "RMSE"]))
    for title, rho, errors in measure(draws):
        for what, found in errors.items():
            l1, rmse = [own.l1 for own in found], [own.rmse for own in found]
            print(line([title, str(rho), what, show(l1, 4), show(rmse, 1)]), flush=True)


if __name__ == "__main__":
    main()
