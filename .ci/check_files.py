"""Check what an sdist and a wheel hold: python .ci/check_files.py SDIST WHEEL.

Both hold all source files of the packages. Beside them, the wheel holds the compiled loops,
and the sdist no tests, examples or data. Sources of compiled parts are in the wheel on purpose: a
count compares them between a client and its workers.
"""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = (".css", ".html", ".j2", ".js", ".py", ".pyi", ".pyx")
COMPILED = {"fitplug_dask/compiled_loops"}
BESIDE = re.compile(
    r"setup\.(py|cfg)|pyproject\.toml|README\.md|LICENSE|MANIFEST\.in|PKG-INFO"
    r"|fitplug\.egg-info/[\w.-]+"
)


def list_sources() -> set[str]:
    """List the source files of the packages, by their names in a wheel."""
    packages = (ROOT / "fitplug", *(ROOT / "adapters").glob("fitplug_*"))
    return {
        path.relative_to(package.parent).as_posix()
        for package in packages
        for path in package.rglob("*")
        if path.suffix in SUFFIXES or path.name == "py.typed"
    }


def list_sdist(path: str) -> set[str]:
    """List the files of an sdist, those of the adapters without their root."""
    with tarfile.open(path) as archive:
        files = [member.name.partition("/")[2] for member in archive if member.isfile()]
    names = {re.sub(r"^adapters/(?=fitplug_)", "", file) for file in files}
    return {name for name in names if not re.fullmatch(r"adapters/fitplug\.egg-info/.*", name)}


def list_wheel(path: str) -> set[str]:
    """List the files of a wheel, except for its metadata."""
    with zipfile.ZipFile(path) as archive:
        files = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    return {name for name in files if ".dist-info/" not in name}


def main(sdist: str, wheel: str) -> None:
    """Compare both files with the sources. It exits with a message where they differ."""
    sources = list_sources()
    if len(sources) < 100:
        sys.exit(f"only {len(sources)} source files were found")
    in_sdist, in_wheel = list_sdist(sdist), list_wheel(wheel)
    compiled = {name for name in in_wheel if name.endswith((".so", ".pyd"))}
    faults = {
        "missing in the sdist": sources - in_sdist,
        "too much in the sdist": {n for n in in_sdist - sources if not BESIDE.fullmatch(n)},
        "missing in the wheel": sources - in_wheel,
        "too much in the wheel": in_wheel - sources - compiled,
        "compiled otherwise": {name.partition(".")[0] for name in compiled} ^ COMPILED,
    }
    said = [f"{fault}: {', '.join(sorted(names))}" for fault, names in faults.items() if names]
    if said:
        sys.exit("\n".join(said))
    print(f"{len(sources)} sources in both, {len(compiled)} compiled parts in the wheel")


if __name__ == "__main__":
    main(*sys.argv[1:])
