"""Processor time and memory of answers and estimates in parts, beside OpenDP's sampler.

python benchmarks/parts.py > benchmarks/parts.md
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
from markdown_table import heading, line
from tree_workloads import build_blocks

import fitplug as fp
from fitplug.families import PartedStrategy

FEW = 4
"""The parts and outputs that are gathered; the others take as long for each number."""

ABOUT = """# Parts

Answers and estimates of large plans are made in parts. Slabs hold random counts, and all of them
are split; {few} parts are gathered and {few} outputs estimated, and the times of the others are
taken as proportional to their sizes. Pieces go through files, whose time is not counted. All times
are processor seconds of one thread. The last columns are their sum over the processor time of
OpenDP's `make_gaussian` for as many draws, and the most memory of the process on Linux, less what
it had with the plan.
"""

COLUMNS = [
    "plan",
    "answers",
    "slabs, parts, outputs",
    "split counts",
    "answer",
    "split answers",
    "estimate",
    "of the sampler's time",
    "memory (MB)",
]


class Files(Mapping[int, Any]):
    """Pieces in files, each read when it is needed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.numbers = folder, dict[int, None]()

    def put(self, number: int, piece: Any) -> None:
        np.save(self.folder / f"{number}.npy", piece)
        self.numbers[number] = None

    def __getitem__(self, number: int) -> Any:
        return np.load(self.folder / f"{number}.npy")

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def build_marginals(*sizes: int) -> fp.Workload:
    names = ["a", "b", "c"]
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name, n in zip(names, sizes, strict=True)})
    groups = [
        fp.marginal(*names, variance=100.0),
        fp.marginal("a", "b", variance=9.0),
        fp.marginal("c", variance=1.0),
    ]
    return fp.Workload(domain, groups)


def choose(count: int) -> list[int]:
    return sorted({round(i * (count - 1) / (FEW - 1)) for i in range(FEW)})


def split_all(
    inputs: Sequence[int], split: Callable[[int], Mapping[int, Any]], chosen: Mapping[int, Files]
) -> float:
    """Split all inputs, keep the pieces of the chosen outputs, and return the processor time."""
    spent = 0.0
    for number in inputs:
        start = time.process_time()
        pieces = split(number)
        spent += time.process_time() - start
        for output in pieces:
            start = time.process_time()
            piece = pieces[output]
            spent += time.process_time() - start
            if output in chosen:
                chosen[output].put(number, piece)
    return spent


def measure(parted: PartedStrategy, folder: Path) -> list[float]:
    """Measure the four steps of all slabs, parts and outputs, in processor seconds."""
    rng = np.random.default_rng(0)
    domain = parted.structure.workload.domain

    def split_counts(slab: int) -> Mapping[int, Any]:
        shape = parted.slabs[slab].shape_in(domain)
        return parted.split_counts(slab, counts.setdefault(shape, rng.integers(0, 99, shape)))

    counts: dict[tuple[int, ...], Any] = {}
    held = {part: Files(folder / f"part {part}") for part in choose(len(parted.sizes))}
    split = split_all(range(len(parted.slabs)), split_counts, held)
    counts.clear()
    start, answers = time.process_time(), {}
    for part, pieces in held.items():
        answers[part] = parted.answer_part(part, pieces)
    gathered = sum(len(own) for own in answers.values())
    answer = (time.process_time() - start) * parted.released_size / gathered

    def split_answers(part: int) -> Mapping[int, Any]:
        own = answers[part] if part in answers else zeros[: parted.sizes[part]]
        return parted.split_answers(part, own)

    zeros = np.zeros(int(parted.sizes.max()), dtype=np.int64)
    chosen = choose(len(parted.outputs))
    outputs = {output: Files(folder / f"output {output}") for output in chosen}
    back = split_all(range(len(parted.sizes)), split_answers, outputs)
    start, estimated = time.process_time(), 0
    for output, pieces in outputs.items():
        estimated += parted.estimate(output, pieces).size
    every = sum(np.prod(one.shape) for one in parted.outputs)
    return [split, answer, back, (time.process_time() - start) * float(every) / estimated]


def time_draw(noise_std: float) -> float:
    """Return the processor seconds of one draw of the bare sampler."""
    dp.enable_features("contrib", "honest-but-curious")
    vectors = dp.vector_domain(dp.atom_domain(T="i64"), size=100_000)
    bare = dp.m.make_gaussian(vectors, dp.l2_distance(T="f64"), scale=noise_std)
    start = time.process_time()
    bare(np.zeros(100_000, dtype=np.int64))
    return (time.process_time() - start) / 100_000


def read_memory(field: str) -> float:
    """Return what Linux reports of the process's memory, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def main(counties: int, *sizes: int) -> None:
    print(ABOUT.format(few=FEW))
    print(heading(COLUMNS))
    workloads = {
        " x ".join(map(str, sizes)): build_marginals(*sizes),
        f"{counties} counties with blocks": build_blocks(counties),
    }
    for name, workload in workloads.items():
        plan = fp.design(workload, tolerance=0.5)
        draw = time_draw(plan.noise_std)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
        before = read_memory("VmRSS")
        parted = plan.strategy.cut()
        with tempfile.TemporaryDirectory() as folder:
            steps = measure(parted, Path(folder))
        ratio = sum(steps) / (draw * plan.strategy.size)
        counts = len(parted.slabs), len(parted.sizes), len(parted.outputs)
        cells = [name, f"{plan.strategy.size:,}", ", ".join(map(str, counts))]
        cells += [f"{seconds:.1f} s" for seconds in steps]
        print(line([*cells, f"{ratio:.1%}", f"{read_memory('VmHWM') - before:,.0f}"]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ["240", "464", "464", "464"]))
