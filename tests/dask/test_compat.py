"""The insides of Dask, Distributed and fsspec that `fitplug_dask._compat` uses: a release of these
libraries that changes one fails here, and not first in a count.
"""

from __future__ import annotations

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import pytest
from dask.callbacks import Callback
from distributed import Client

import fitplug_dask
from fitplug_dask import _compat

PACKAGE = Path(fitplug_dask.__file__).parent
UNDOCUMENTED = (
    "dask.system",
    "dask.callbacks",
    "dask.local",
    "distributed.protocol",
    "distributed.system",
    "fsspec.registry",
)
LIBRARIES = ("dask", "distributed", "fsspec", "pyarrow")


def add(*terms: int) -> int:
    return sum(terms)


GRAPH: dict[str, Any] = {"a": (add, 1), "b": (add, 2), "sum": (add, "a", "b")}


def test_processors_are_the_default_number_of_threads_of_dask() -> None:
    processors = _compat.count_processors()
    assert isinstance(processors, int)
    assert processors >= 1
    names = set()
    barrier = threading.Barrier(processors)

    def work() -> None:
        barrier.wait(20)  # all threads at once, or none ends
        names.add(threading.current_thread().name)

    dask.compute(*[dask.delayed(work)() for _ in range(processors)], scheduler="threads")
    assert len(names) == processors


def test_the_end_of_each_task_is_told_with_its_key_and_result() -> None:
    ended: dict[str, int] = {}

    def end(key: str, result: int, *_: Any) -> None:
        ended[key] = result

    with ThreadPoolExecutor(2) as pool:
        assert _compat.run_threaded(GRAPH, "sum", pool, end) == 3
    assert ended == {"a": 1, "b": 2, "sum": 3}


def test_what_the_end_of_a_task_raises_ends_the_run() -> None:
    class StopError(Exception):
        pass

    def end(*_: Any) -> None:
        raise StopError

    with ThreadPoolExecutor(2) as pool, pytest.raises(StopError):
        _compat.run_threaded(GRAPH, "sum", pool, end)


def test_tasks_are_told_to_callbacks_of_the_user_and_ours_to_no_other_graph() -> None:
    ours: list[str] = []
    users: list[str] = []
    with ThreadPoolExecutor(2) as pool:

        def end(key: str, *_: Any) -> None:
            if key == "a":  # a graph of another thread meanwhile
                other = threading.Thread(target=dask.threaded.get, args=({"x": (add, 5)}, "x"))
                other.start()
                other.join(20)
            ours.append(key)

        with Callback(posttask=lambda key, *_: users.append(key)):
            _compat.run_threaded(GRAPH, "sum", pool, end)
    assert set(ours) == set(GRAPH)
    assert set(GRAPH) <= set(users)


def test_the_scheduler_tells_the_memory_limit_of_each_worker() -> None:
    with Client(processes=False, n_workers=2, memory_limit=10**9, dashboard_address=":0") as client:
        assert _compat.read_worker_memory_limits(client) == [10**9, 10**9]
    with Client(processes=False, n_workers=1, memory_limit=0, dashboard_address=":0") as client:
        assert _compat.read_worker_memory_limits(client) == []


def test_fsspec_says_which_package_a_scheme_needs() -> None:
    assert "s3fs" in _compat.find_install_hint("s3").lower()
    assert "gcsfs" in _compat.find_install_hint("gs").lower()
    assert _compat.find_install_hint("unheard-of") == "a package of fsspec is missing"


def imported_modules(tree: ast.AST) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
    return {module for module in modules if module.split(".")[0] in LIBRARIES}


def test_no_other_module_uses_an_inside() -> None:
    """Neither undocumented modules nor names with an underscore that are not its own."""
    for path in PACKAGE.rglob("*.py"):
        if path.name == "_compat.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for module in imported_modules(tree):
            assert not module.startswith(UNDOCUMENTED), (path, module)
            assert not any(name.startswith("_") for name in module.split(".")), (path, module)
        functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            own = own or node.attr in functions
            documented = node.attr == "_replace" or node.attr.startswith("__")
            assert own or documented, (path, node.attr)
