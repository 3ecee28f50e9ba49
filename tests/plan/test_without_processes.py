"""What a browser does not have: threads, processes and locks of files. `design` needs none."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from packaging.version import Version

SCRIPT = """
import sys
import threading

BLOCKED = {"fcntl", "multiprocessing", "_multiprocessing", "dask", "opendp", "pyarrow"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not there")

def refuse(*arguments, **named):
    raise RuntimeError("there are no threads and no processes here")

sys.meta_path.insert(0, Block())
threading.Thread.start = refuse

import os
import subprocess  # SciPy imports it

subprocess.Popen.__init__ = os.fork = os.posix_spawn = refuse

import fitplug as fp

domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})
groups = [fp.queries({"sex": "identity", "age": "prefix"}, std=5.0), fp.total(std=3.0)]
plan = fp.design(fp.Workload(domain, groups))
assert "proven" in plan.summary()
assert "<table" in plan._repr_html_()
plan.verify()
print(plan.digest)
"""


@pytest.mark.skipif(
    Version(metadata.version("threadpoolctl")) < Version("3.7"),
    reason="before 3.7, threadpoolctl looks for the C library by a process",
)
def test_design_summary_and_verification_need_no_processes():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.strip()) == 64
