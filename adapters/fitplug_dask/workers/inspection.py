"""Inspection: which code a process has, found out by a text that is sent to it.

Workers run THE TEXT of this module and never their own copy of it. A worker with altered code of
fitplug therefore cannot answer with altered code, and one without fitplug answers, too. So this
module uses the standard library alone.

What is inspected:

* the sources of the packages, file by file, and their compiled modules;
* the code of each module that the process has imported, which must be what its file holds now: a
  process that runs longer than its installation would otherwise count with the code of before;
* the versions of the libraries.

This protects against mistakes, such as an old image, half an update or a local patch. It does not
protect against somebody who controls a worker: such a person can alter Python itself. Values of
constants that were set after the import are not seen, nor a change of a file between the
inspection and the first import of it, nor a function that is wrapped.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import sys
import threading
import types
from pathlib import Path
from typing import Any

LIBRARIES = {"NumPy": "numpy", "PyArrow": "pyarrow", "Dask": "dask", "Distributed": "distributed"}
"""The libraries that take part in counting, by the names for people."""

_CACHE = "_fitplug_inspection_cache"
_SUFFIXES = (".py", ".pyx")
_NAMED = 3


def describe_sources(packages: tuple[str, ...], libraries: dict[str, str]) -> dict[str, Any]:
    """Describe the code that is installed where this process runs.

    Args:
        packages: The names of the packages to inspect.
        libraries: The modules of the libraries to inspect, by their names for people.

    Returns:
        "files": for each package, the SHA-256 of each source file by its path in the package, or
        None if the package is not installed; "compiled": the SHA-256 of each compiled module that
        this Python would import, by its package and its path there; "versions": of Python and the
        libraries, None for one that is missing.
    """
    folders = {package: _find_folder(package) for package in packages}
    files = {p: None if folder is None else _digest_folder(folder) for p, folder in folders.items()}
    compiled = {
        f"{package}/{name}": digest
        for package, folder in folders.items()
        if folder is not None
        for name, digest in _digest_compiled(folder).items()
    }
    versions = {name: _find_version(module) for name, module in libraries.items()}
    # A third number stands for corrections of Python, which leave the meaning of code as it is.
    versions["Python"] = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {
        "files": files,
        "compiled": compiled,
        "versions": versions,
    }


def describe_code(packages: tuple[str, ...], libraries: dict[str, str]) -> dict[str, Any]:
    """Describe the code of this process: what is installed, and what it runs.

    Args:
        packages: As for `describe_sources`.
        libraries: As for `describe_sources`.

    Returns:
        What `describe_sources` returns, and "loaded": the modules whose code in memory is not that
        of their files.
    """
    folders = [(package, _find_folder(package)) for package in packages]
    loaded = [name for p, folder in folders if folder for name in _find_other_code(p, folder)]
    return {**describe_sources(packages, libraries), "loaded": loaded}


def list_differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """List in words what is found in a process and differs from what is expected."""
    missing = [package for package, files in found["files"].items() if files is None]
    if missing:
        return [f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"]
    said = []
    for package, files in found["files"].items():
        wanted = expected["files"][package]
        names = sorted(n for n in {*files, *wanted} if files.get(n) != wanted.get(n))
        if names:
            said.append(f"its code of {package} is another ({join_names(names)})")
    if found["loaded"]:
        said.append(
            f"it runs code that its files do not hold any more ({join_names(found['loaded'])}), "
            "so it must be started again"
        )
    for name, version in expected["versions"].items():
        there = found["versions"].get(name)
        if there is None:
            said.append(f"{name} is not installed")
        elif there != version:
            said.append(f"{name} is {there} there and {version} here")
    for name, digest in found["compiled"].items():
        if expected["compiled"].get(name) != digest:
            said.append(f"its compiled module is another ({name})")
    return said


def make_visitor(text: str, packages: tuple[str, ...], libraries: dict[str, str]) -> Any:
    """Make the function that a worker runs when it is asked which code it has."""

    async def visit() -> dict[str, Any]:
        # In another thread, as the worker must answer others meanwhile.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, describe_code, packages, libraries)

    return visit


class Guard:
    """Runs tasks on a worker, after it has inspected the worker.

    It is the result of a task that all other tasks take, so each worker fetches it once, however
    late it comes, and inspects itself once.
    """

    def __init__(
        self,
        text: str,
        expected: dict[str, Any],
        packages: tuple[str, ...],
        libraries: dict[str, str],
    ) -> None:
        """Keep what is expected of a worker, and the text of this module to be sent on."""
        self._sent = (text, expected, packages, libraries)
        self._lock = threading.Lock()
        self._refusal: tuple[str, bool] | None = None
        self._inspected = False
        self._held: dict[Any, Any] = {}

    def __reduce__(self) -> Any:
        """Travel as text, through processes of whatever Python, with fitplug or without."""
        return eval, reduce_to_text("Guard", *self._sent)

    def __call__(self, task: Any, *terms: Any) -> Any:
        """Run a task if this worker has the right code; return what tasks.run_task returns."""
        refusal = self._inspect()
        if refusal is not None:
            return refusal, None
        from fitplug_dask.workers.tasks import run_task

        return run_task(self._held, task, terms)

    def _inspect(self) -> tuple[str, bool] | None:
        """Return why this worker may not run tasks, or None."""
        with self._lock:
            if not self._inspected:
                _, expected, packages, libraries = self._sent
                said = list_differences(expected, describe_code(packages, libraries))
                if said:
                    self._refusal = (describe_refusal({_find_address(): said}), False)
                self._inspected = True
            return self._refusal


def reduce_to_text(name: str, text: str, *arguments: Any) -> Any:
    """Return arguments of `eval` that run a text and call what it defines under a name.

    The first of the call's arguments is the text.
    """
    call = "(exec(text, names), names[name](text, *arguments))[1]"
    names = {"__name__": "fitplug_inspection"}
    return call, {"text": text, "names": names, "name": name, "arguments": arguments}


def describe_refusal(differences: dict[str, list[str]]) -> str:
    """Return a sentence that refuses workers, by what differs on each.

    Args:
        differences: What differs, by the addresses of the workers.
    """
    named = [f"{worker}: {'; '.join(said)}" for worker, said in sorted(differences.items())]
    count = "a worker" if len(named) == 1 else f"{len(named)} workers"
    return (
        f"{count} must not count, as not all of the code is that of this process; install the "
        f'same version of "fitplug[dask]" and its libraries there: {join_names(named, " | ")}'
    )


def join_names(names: list[str], separator: str = ", ") -> str:
    """Join the first few names."""
    more = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


def _find_address() -> str:
    """Return the address of the worker that runs this task."""
    from distributed import get_worker

    return str(get_worker().address)


def _find_version(module: str) -> str | None:
    """Return the version of a library as it is loaded, or else as it is installed."""
    loaded = getattr(sys.modules.get(module), "__version__", None)
    if loaded is not None:
        return str(loaded)
    try:
        return importlib.metadata.version(module)
    except Exception:
        return None


def _find_folder(package: str) -> Path | None:
    """Return the folder of a package that is loaded or can be imported."""
    try:
        spec = importlib.util.find_spec(package)
    except Exception:
        return None
    path = Path(spec.origin or "") if spec else Path()
    return path.resolve().parent if path.is_file() else None


def _digest_folder(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each source file of a package, by the path in the package."""
    return {
        path.relative_to(folder).as_posix(): _digest_file(path)
        for suffix in _SUFFIXES
        for path in folder.rglob("*" + suffix)
        if path.is_file()
    }


def _digest_compiled(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each compiled module that this Python would import, by its path."""
    found = {}
    for path in sorted(folder.rglob("*.*")):
        suffix = path.name[path.name.find(".") :]
        if suffix in importlib.machinery.EXTENSION_SUFFIXES and path.is_file():
            found[path.relative_to(folder).as_posix()] = _digest_file(path)
    return found


def _find_other_code(package: str, folder: Path) -> list[str]:
    """Return the imported modules of a package whose code is not what their files hold."""
    others = []
    for name, module in sorted(sys.modules.items()):
        if name != package and not name.startswith(package + "."):
            continue
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if not origin.endswith(".py"):
            continue
        path = Path(origin).resolve()
        inside = folder in path.parents and path.is_file()
        if not inside or not _has_code(vars(module), _compile_file(path), module.__name__):
            others.append(name)
    return others


def _has_code(namespace: Any, code: Any, module: str) -> bool:
    """Return whether a namespace holds the functions and classes that its code defines."""
    if code is None:
        return False
    defined: dict[str, list[Any]] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            defined.setdefault(constant.co_name, []).append(constant)
    for name, codes in defined.items():
        held = namespace.get(name)
        if isinstance(held, type):
            if held.__module__ == module and not any(
                _has_code(vars(held), one, module) for one in codes
            ):
                return False
            continue
        for function in _unwrap(held):
            if function.__code__ not in codes:
                return False
    return True


def _unwrap(held: Any) -> list[Any]:
    """Return the functions that are below decorators, properties and methods."""
    if isinstance(held, property):
        # The codes of getter and setter have one name, and both must be among them.
        return [f for part in (held.fget, held.fset, held.fdel) if part for f in _unwrap(part)]
    for inner in ("__func__", "func"):  # class and static methods; cached properties
        held = getattr(held, inner, held) if not isinstance(held, types.FunctionType) else held
    try:
        held = inspect.unwrap(held)
    except ValueError:
        return []
    return [held] if isinstance(held, types.FunctionType) else []


def _digest_file(path: Path) -> str:
    """Return the SHA-256 of a file."""

    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    return str(_keep("digest", path, digest))


def _compile_file(path: Path) -> Any:
    """Return the code of a module's file, None if it is no Python."""

    def compile_content(content: bytes) -> Any:
        try:
            return compile(content, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None

    return _keep("code", path, compile_content)


def _keep(kind: str, path: Path, make: Any) -> Any:
    """Return what is made of a file's content.

    It is kept for later counts of this process while the state of the file is the same.
    """
    cache: dict[Any, Any] = vars(sys.modules.setdefault(_CACHE, types.ModuleType(_CACHE)))
    now = path.stat()
    state = (now.st_size, now.st_mtime_ns, now.st_ctime_ns)
    key = (kind, str(path))
    kept = cache.get(key)
    if kept is None or kept[0] != state:
        kept = cache[key] = (state, make(path.read_bytes()))
    return kept[1]
