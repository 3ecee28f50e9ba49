"""Code: what a process counts with, so that workers with other code are refused by name.

A process describes itself by the digests of fitplug's sources and compiled loops, read when this
module is imported, and by the versions of the libraries. An old image, half an update, a local
patch or a worker that was not restarted after an update are found this way. It does not protect
against anyone who controls a worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from importlib import metadata, util
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypeAlias

Code: TypeAlias = dict[str, str]
"""Versions and digests by the name of what they are of."""

COUNTING_PACKAGES = ("fitplug", "fitplug_dask")
"""The packages that take part in counting."""

_LOOPS = "compiled loops"
_SUFFIXES = {".py", ".pyx"}
_LIBRARIES = {"NumPy": "numpy", "PyArrow": "pyarrow", "Dask": "dask", "Distributed": "distributed"}
_NAMED = 3


def describe_code(packages: tuple[str, ...] = COUNTING_PACKAGES) -> Code:
    """Describe the code of this process.

    Args:
        packages: The packages that take part.

    Returns:
        The version of Python and of each library, and a digest for each package that is installed.
    """
    libraries = dict(_LIBRARIES)
    if "fitplug_opendp" in packages:
        libraries["OpenDP"] = "opendp"
    # A third number stands for corrections of Python, which leave the meaning of code as it is.
    found = {"Python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name, library in libraries.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(library)
    return found | {name: _DIGESTS[name] for name in (*packages, _LOOPS) if name in _DIGESTS}


def list_differences(here: Code, there: Code) -> list[str]:
    """List in words what another process lacks or has otherwise."""
    said = []
    for name, wanted in here.items():
        present = there.get(name)
        if name == _LOOPS and present and present.split()[0] != wanted.split()[0]:
            continue  # those of another platform have other bytes
        if present is None:
            said.append(f"no {name}")
        elif present != wanted and name in _DIGESTS:
            said.append(f"another {name}")
        elif present != wanted:
            said.append(f"{name} {present}, not {wanted}")
    return said


def describe_refusal(differences: dict[str, list[str]]) -> str:
    """Return the words that refuse workers, by what differs on each.

    Args:
        differences: What differs, by the addresses of the workers.
    """
    named = [f"{worker}: {'; '.join(said)}" for worker, said in sorted(differences.items())]
    count = "a worker" if len(named) == 1 else f"{len(named)} workers"
    return (
        f"{count} must not count, as not all of the code is that of this process; install the "
        f'same version of "fitplug[dask]" and its libraries there, and restart the worker: '
        f"{join_names(named, ' | ')}"
    )


def join_names(names: list[str], separator: str = ", ") -> str:
    """Join the first few names."""
    more = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


def _digest_code() -> Iterator[tuple[str, str]]:
    """Yield the SHA-256 of each package's sources, and of the compiled loops, by name."""
    for package in (*COUNTING_PACKAGES, "fitplug_opendp"):
        spec = util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).resolve().parent
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*.py*")):
            if path.suffix in _SUFFIXES:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
        yield package, digest.hexdigest()
        loops = folder / f"compiled_loops{EXTENSION_SUFFIXES[0]}"
        if loops.is_file():
            digest = hashlib.sha256(loops.read_bytes())
            yield _LOOPS, f"{EXTENSION_SUFFIXES[0]} {digest.hexdigest()}"


_DIGESTS = dict(_digest_code())
"""Of the files as they were when this process imported this module."""
