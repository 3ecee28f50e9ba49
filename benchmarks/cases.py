"""Run cases of a benchmark, each in a process of its own, so that memory is that of the case."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]
"""What a case measured, in the order of the columns."""


def run_case(script: Path, python: str, folders: Iterable[str], *words: object) -> Figures:
    """Run a case of a script under an interpreter, with folders of authors' code on its path."""
    path = [str(script.parent), *filter(None, [os.environ.get("PYTHONPATH"), *folders])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    command = [python, str(script), "case", *map(str, words)]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(output.stdout.splitlines()[-1])
    return figures


def answer_case(cases: Mapping[str, Callable[..., Figures]], system: str, *words: str) -> None:
    """Run a case in this process, and print what it measured as JSON."""
    figures = cases[system](*(int(word) if word.isdigit() else word for word in words))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    sys.stdout.write(json.dumps({**figures, "MB": round(megabytes)}) + "\n")


def format_figures(figures: Figures) -> Iterator[str]:
    """Write what a case measured: numbers with six digits, and a dash where it has none."""
    for name, value in figures.items():
        if name == "s" and value is not None:
            yield f"{value:.2g}" if value < 10 else f"{value:.0f}"
        else:
            yield "-" if value is None else value if isinstance(value, str) else f"{value:.6g}"
