"""Schedulers and workers of Dask, each a process of its own, as operators start them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.places import ROOT

_BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fitplug", "fitplug_dask", "fitplug_opendp"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""


class Processes:
    """Processes that end with a test.

    Attributes:
        started: All of them, in the order of their start.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start_scheduler(
        self, *, path: list[Path] | None = None
    ) -> tuple[str, subprocess.Popen[bytes]]:
        """Start a scheduler and return its address; `path` is as for a worker."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        process = self._start("scheduler", *options, path=path)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return f"tcp://127.0.0.1:{port}", process
            time.sleep(0.1)
        raise AssertionError("the scheduler does not listen")

    def start_worker(
        self, scheduler: str, name: str, *, path: list[Path] | None = None, nanny: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a worker.

        Args:
            scheduler: The address of its scheduler.
            name: Its name.
            path: Where it finds packages; those of this process if left out.
            nanny: Whether a nanny starts it again when it is killed.
        """
        options = [scheduler, "--name", name, "--nthreads", "1", "--no-dashboard"]
        options.append("--nanny" if nanny else "--no-nanny")
        return self._start("worker", *options, path=path)

    def _start(self, kind: str, *options: str, path: list[Path] | None) -> subprocess.Popen[bytes]:
        path = [ROOT, ROOT / "adapters"] if path is None else path
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        with (self._folder / f"{kind}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=log, stderr=log
            )
        self.started.append(process)
        return process


@contextmanager
def dask_processes(folder: Path) -> Iterator[Processes]:
    processes = Processes(folder)
    try:
        yield processes
    finally:
        for process in processes.started:
            process.kill()
        for process in processes.started:
            process.wait(30)


def copy_packages(folder: Path) -> Path:
    """Copy fitplug and fitplug_dask, as another installation of the same version has them."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fitplug", folder / "fitplug", ignore=leave)
    shutil.copytree(ROOT / "adapters" / "fitplug_dask", folder / "fitplug_dask", ignore=leave)
    return folder


def write_blocker(folder: Path) -> Path:
    """Write what makes Python find no fitplug, although it is installed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_BLOCKER)
    return folder
