"""Display tables: their bias, their error and their time, beside a least-squares baseline.

OMP_NUM_THREADS=1 python benchmarks/display.py > benchmarks/display.md
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import osqp
from markdown_table import heading, line
from scipy import sparse

import fitplug as fp
from fitplug.releases import DisplayRequest, write_folder
from fitplug.releases.display import plan_display

ABOUT = """# Display tables

Places of a tree by sex, each number with std 5 or its targets' share of it. True counts of tracts
are from a gamma distribution with many zeros; {draws} releases of the same people. "error" is the
mean absolute error of a number, "bias" the mean of number minus truth, over numbers and releases.
The baseline projects each family of children with OSQP, from the nation down, onto the nonnegative
numbers with their parent's count by sex, with weights 1/variance of the numbers by sex and of their
totals, and rounds by largest remainders, as TopDown does. Both keep the public total.
"""
LARGE = """
## A tree of a million leaves

By sex, {answers:,} answers, read from a folder in parts of {part:,} rows and written as display
tables. The peak is the largest memory of the process in this step; the unbiased release alone was
opened before at {before:.0f} MB.
"""
CLASSES = ((0, 0), (1, 9), (10, 99), (100, 10**9))


def build(states: int, counties: int, tracts: int) -> fp.Plan:
    """Design tables of places by sex."""
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s in range(states)
        for c in range(counties)
        for t in range(tracts)
    ]
    place = fp.Hierarchy(["state", "county", "tract"], leaves)
    domain = fp.Domain({"place": place, "sex": ["f", "m"]})
    groups = [
        fp.queries({"place": level, "sex": "identity"}, std=5.0, name=level)
        for level in ("tract", "county", "state")
    ]
    return fp.design(fp.Workload(domain, [*groups, fp.total(std=5.0)]), tolerance=0.01)


def draw(plan: fp.Plan, x: np.ndarray, seed: int) -> fp.Release:
    """Draw a release, with rounded Gaussian noise for speed."""
    tables = fp.Tables(plan.domain, {plan.workload.attributes: x})
    noise = np.random.default_rng(seed).normal(size=plan.strategy.size) * plan.noise_std
    answers = plan.strategy.answer_exactly(tables.marginal) + np.rint(noise).astype(np.int64)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho)


def solve_family(parent: np.ndarray, estimates: np.ndarray, spread: float) -> np.ndarray:
    """Find the children (n, 2) of a count by sex (2,) with OSQP, and round them."""
    n = len(estimates)
    both = sparse.kron(sparse.eye(n), np.ones((1, 2)))
    P = sparse.eye(2 * n) + both.T @ both
    q = -(estimates.ravel() + both.T @ estimates.sum(axis=1))
    keep = sparse.kron(np.ones((1, n)), sparse.eye(2))
    A = sparse.vstack([keep, sparse.eye(2 * n)]).tocsc()
    low = np.concatenate([parent, np.zeros(2 * n)])
    high = np.concatenate([parent, np.full(2 * n, np.inf)])
    solver = osqp.OSQP()
    solver.setup(P.tocsc() / spread, q / spread, A, low, high, verbose=False, eps_abs=1e-6,
                 eps_rel=1e-6, max_iter=20000)  # fmt: skip
    real = np.maximum(solver.solve().x.reshape(n, 2), 0)
    whole = np.floor(real)
    for sex in range(2):
        short = max(int(parent[sex] - whole[:, sex].sum()), 0)
        whole[np.argsort(whole[:, sex] - real[:, sex])[:short], sex] += 1
    return whole


def run_baseline(
    release: fp.Release, total: int, shape: tuple[int, int, int]
) -> dict[str, np.ndarray]:
    """Make integer tables of all levels from the nation down, a family at a time."""
    states, counties, tracts = shape
    by_state, by_county, by_tract = (
        np.asarray(release.estimates[name]).reshape(*n, 2)
        for name, n in (("state", shape[:1]), ("county", shape[:2]), ("tract", shape))
    )
    nation = np.rint(by_state.sum(axis=0) * total / by_state.sum())
    nation[1] = total - nation[0]
    found = {"state": solve_family(nation, by_state, 25.0)}
    found["county"] = np.concatenate(
        [solve_family(found["state"][s], by_county[s], 25.0) for s in range(states)]
    )
    flat = by_tract.reshape(states * counties, tracts, 2)
    found["tract"] = np.concatenate(
        [solve_family(found["county"][c], flat[c], 25.0) for c in range(states * counties)]
    )
    return found


def compare(shape: tuple[int, int, int], draws: int) -> None:
    """Print bias and error of display tables and of the baseline."""
    plan = build(*shape)
    rng = np.random.default_rng(3)
    leaves = shape[0] * shape[1] * shape[2]
    x = rng.poisson(rng.gamma(0.25, 120.0, (leaves, 1)) * [[0.5, 0.5]]).astype(np.int64)
    x = x.T if plan.workload.attributes[0] == "sex" else x
    by_place = x.T if plan.workload.attributes[0] == "sex" else x
    exact = {
        "tract": by_place,
        "county": by_place.reshape(shape[0] * shape[1], -1, 2).sum(axis=1),
        "state": by_place.reshape(shape[0], -1, 2).sum(axis=1),
    }
    ways = ("unbiased", "nonnegative", "integers", "OSQP by families")
    sums = {(w, name, k): np.zeros(2) for w in ways for name in exact for k in range(len(CLASSES))}
    seconds = dict.fromkeys(ways, 0.0)
    total = int(x.sum())
    for seed in range(draws):
        release = draw(plan, x, seed)
        for way in ways:
            begun = time.process_time()
            if way == "unbiased":
                tables = {name: np.asarray(release.estimates[name]) for name in exact}
            elif way == "OSQP by families":
                tables = run_baseline(release, total, shape)
            else:
                make = release.integers if way == "integers" else release.nonnegative
                tables = dict(make(totals={"total": total}).estimates)
            seconds[way] += time.process_time() - begun
            for name, truth in exact.items():
                off = tables[name].reshape(-1, 2) - truth
                for k, (low, high) in enumerate(CLASSES):
                    chosen = (truth >= low) & (truth <= high)
                    if chosen.any():
                        sums[way, name, k] += [off[chosen].mean(), np.abs(off[chosen]).mean()]
    print(ABOUT.format(draws=draws))
    print(heading(["numbers", "true count", *(f"{w}: bias / error" for w in ways)]))
    for name, truth in exact.items():
        for k, (low, high) in enumerate(CLASSES):
            number = int(((truth >= low) & (truth <= high)).sum())
            if number:
                label = (
                    "0" if high == 0 else f"{low} to {high}" if high < 10**9 else f"{low} or more"
                )
                cells = [f"{b / draws:+.2f} / {e / draws:.2f}" for b, e in
                         (sums[w, name, k] for w in ways)]  # fmt: skip
                print(line([f"{number:,} of {name}", label, *cells]))
    print(line(["", "CPU seconds a release", *(f"{seconds[w] / draws:.3f}" for w in ways)]))


def measure_large(shape: tuple[int, int, int], part: int) -> None:
    """Print time and memory of display tables of a large tree in parts."""
    plan = build(*shape)
    leaves = shape[0] * shape[1] * shape[2]
    rng = np.random.default_rng(3)
    x = rng.poisson(rng.gamma(0.25, 120.0, (leaves, 1)) * [[0.5, 0.5]]).astype(np.int64)
    x = x.T if plan.workload.attributes[0] == "sex" else x
    with tempfile.TemporaryDirectory() as directory:
        write_folder(draw(plan, np.ascontiguousarray(x), 0), Path(directory) / "out", 0.95, part)
        total = int(x.sum())
        del x
        read_back(Path(directory) / "out", total, part)


def read_back(folder: Path, total: int, part: int) -> None:
    """Make the display tables of a folder in a process that has only opened it."""
    import subprocess

    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import display; "
        f"display.write_again({str(folder)!r}, {total}, {part})"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def write_again(folder: str, total: int, part: int) -> None:
    """Write display tables of an opened folder, and print the peak of memory."""
    from fitplug.files import open_place
    from fitplug.releases.display_parts import write_display

    release = fp.Release.load(folder)
    before = find_peak()
    print(LARGE.format(answers=release.plan.strategy.size, part=part, before=before))
    begun, begun_cpu = time.perf_counter(), time.process_time()
    request = DisplayRequest({"total": total})
    place = open_place(folder)
    write_display(place, release, request, "", 0.95)
    print(heading(["seconds", "CPU seconds", "peak MB", "by steps"]))
    by_steps = plan_display(release, "integers", request.totals).is_by_steps
    print(line([f"{time.perf_counter() - begun:.1f}", f"{time.process_time() - begun_cpu:.1f}",
                f"{find_peak():.0f}", str(by_steps)]))  # fmt: skip


def find_peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    compare((10, 20, 20), int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    measure_large((50, 100, 200), 100_000)
