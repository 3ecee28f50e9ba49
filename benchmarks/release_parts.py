"""A release in parts without its noise: the time and memory of everything else.

OMP_NUM_THREADS=1 python benchmarks/release_parts.py 464 > benchmarks/release_parts.md
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from markdown_table import heading, line

import fitplug as fp
from fitplug.files import LocalPlace
from fitplug.releases import (
    AnswersPart,
    complete_folder,
    describe_place,
    number_outputs,
    write_answers_part,
    write_manifest,
    write_table_part,
)
from fitplug.releases.verification import compute_estimates

ABOUT = """# A release in parts

A cube of {n} x {n} x {n} cells, with its margins, has {answers:,} answers in {parts} parts.
One process on one core does all of it. Integers of the noise's size stand for noisy answers. The
peak is the largest memory of the process so far; {imports:.0f} MB of it are those of the libraries
and the plan.
"""
ASKED = (
    "total",
    "all[a = 3, b <= 100]",
    "all[a <= 100, b >= 7, c != 4] - total",
)


def main(n: int) -> None:
    attributes = {name: fp.Integers(0, n - 1) for name in "abc"}
    groups = [
        fp.marginal("a", "b", "c", std=10.0, name="all"),
        fp.marginal("a", "b", std=20.0, name="ab"),
        fp.marginal("a", std=20.0, name="a"),
        fp.total(std=5.0, name="total"),
    ]
    plan = fp.design(fp.Workload(fp.Domain(attributes), groups), tolerance=1e-2)
    parted = plan.strategy.cut()
    answers, parts = plan.strategy.size, len(parted.sizes)
    print(ABOUT.format(n=n, answers=answers, parts=parts, imports=find_peak()))
    print(heading(["what", "seconds", "peak MB"]))
    with tempfile.TemporaryDirectory() as directory:
        make(plan, Path(directory))
        begun = time.perf_counter()
        release = fp.Release.load(directory)
        report("open the folder", begun)
        for asked in ASKED:
            begun = time.perf_counter()
            release.estimate(asked)
            report(f"`{asked}`", begun)
        begun = time.perf_counter()
        release.verify(sample=10)
        report("verify 10 parts of the answers, and 10 of the tables", begun)


def make(plan: fp.Plan, directory: Path) -> None:
    """Write all parts of a release."""
    place, rng = LocalPlace(directory), np.random.default_rng(0)
    parted, parts, seconds = plan.strategy.cut(), [], 0.0
    for number, size in enumerate(parted.sizes.tolist()):
        noisy = np.rint(rng.normal(size=size) * plan.noise_std).astype(np.int64)
        begun = time.perf_counter()
        written = write_answers_part(place, number, noisy)
        where = describe_place(parted.place(number))
        parts.append(AnswersPart(number, where, written.bytes, written.digest))
        seconds += time.perf_counter() - begun
    report("write the answers", time.perf_counter() - seconds)
    begun = time.perf_counter()
    meta = fp.Release(plan=plan, answers=np.zeros(0, dtype=np.int64), rho=plan.rho)
    answers, digest = write_manifest(place, meta, parts)
    tables = []
    with tempfile.TemporaryDirectory() as spilled:
        slices = number_outputs(parted.outputs)
        for own, estimates in compute_estimates(parted, answers, slices, Path(spilled)):
            tables.append(
                write_table_part(
                    place, meta, own, estimates, answers_digest=digest, confidence=0.95
                )
            )
    complete_folder(place, meta, digest, tables, confidence=0.95)
    report("compute and write the tables", begun)


def report(what: str, begun: float) -> None:
    print(line([what, f"{time.perf_counter() - begun:.1f}", f"{find_peak():.0f}"]), flush=True)


def find_peak() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main(int(sys.argv[1]))
