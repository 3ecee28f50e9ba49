"""Releases in parts whose draws are written down, to prove that each answer is drawn once.

The audit is a file to which every draw of noise is appended before anybody can write it into a
release. A part that is durable must hold exactly one of these draws, for ever.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import WorkerPlugin
from scipy.stats import chi2

import fitplug as fp
from fitplug.releases import PartedAnswers
from fitplug_dask.releases import executor, releasing

cloudpickle.register_pickle_by_value(sys.modules[__name__])

DOMAIN = fp.Domain({"a": fp.Integers(1, 40), "b": fp.Integers(1, 25)})
PLAN = fp.design(
    fp.Workload(
        DOMAIN, [fp.marginal("a", "b", std=10.0), fp.marginal("a", std=20.0), fp.total(std=9)]
    )
)
CELLS = np.random.default_rng(0).integers(0, 100, DOMAIN.shape)
TABLES = fp.Tables(DOMAIN, {("a", "b"): CELLS})
PART = 200


def write_cells(path):
    """Write CELLS as a file with a row for each cell, whose column n is its number of records."""
    a, b = np.indices(CELLS.shape) + 1
    columns = {"a": a.ravel(), "b": b.ravel(), "n": CELLS.ravel()}
    pq.write_table(pa.table(columns), path, row_group_size=100)


def digest_values(values):
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<i8").tobytes()).hexdigest()


class Audit(WorkerPlugin):
    """Appends each draw to a file, in this process or in each worker of a cluster.

    Then it may pause, as parts of a million answers take many seconds: so kills come between a draw
    and its becoming durable, too.
    """

    name = "fitplug-audit"

    def __init__(self, path, pause=0.0):
        self.path, self.pause = str(path), pause

    def setup(self, worker=None):
        real = getattr(executor.draw_part, "real", executor.draw_part)

        def draw(answers, noise_std, run):
            noisy = real(answers, noise_std, run)
            line = f"{digest_values(noisy)} {run}\n".encode()
            number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(number, line)
            finally:
                os.close(number)
            time.sleep(self.pause)
            return noisy

        draw.real = real
        executor.draw_part = draw

    def read(self):
        """Digests of all draws that there were."""
        text = Path(self.path).read_text() if Path(self.path).exists() else ""
        return [line.split()[0] for line in text.splitlines()]


class Watch:
    """Looks at the parts all the time, and remembers what each held when it was first there."""

    def __init__(self, root):
        self.root, self.seen, self.changed = Path(root), {}, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.look()

    def look(self):
        with suppress(OSError):  # folders are moved to their place meanwhile
            for path in self.root.glob("**/answers/part-*.npy"):
                self.look_at(path)

    def look_at(self, path):
        with suppress(OSError):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if self.seen.setdefault(path.name, digest) != digest:
                self.changed.append(path.name)

    def _run(self):
        while not self._stop.wait(0.01):
            self.look()


def check_drawn_once(folder, audit, watch=None, plan=PLAN, tables=TABLES):
    """Every durable part is exactly one draw, and the noise is as large as the plan says."""
    release = fp.Release.load(folder)
    release.verify()
    answers = release.answers
    assert isinstance(answers, PartedAnswers)
    draws = audit.read()
    for number in range(len(answers.parts)):
        assert draws.count(digest_values(answers.read_part(number))) == 1
    if watch is not None:
        assert not watch.changed
        now = {p.name: hashlib.sha256(p.read_bytes()).hexdigest()
               for p in Path(folder).glob("answers/part-*.npy")}  # fmt: skip
        assert all(now[name] == digest for name, digest in watch.seen.items())
    noise = (np.asarray(answers) - plan.strategy.answer_exactly(tables.marginal)) / plan.noise_std
    assert 1e-9 < chi2.cdf(float(noise @ noise), noise.size) < 1 - 1e-9
    return release, len(draws)


def check_left_over(root, *, names):
    """Nothing but these files is left, and none of another run."""
    assert sorted(p.name for p in Path(root).iterdir()) == sorted(names)


def use_small_parts(monkeypatch, most=PART):
    monkeypatch.setattr(releasing, "PART", most)


def use_slabs(monkeypatch):
    """Keep all counts of files in slabs, although they are few."""
    monkeypatch.setattr(releasing, "_MOST_CELLS", 0)
