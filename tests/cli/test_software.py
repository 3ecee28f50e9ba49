"""What the command says of the parts of fitplug that are compiled."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version

import pytest

from fitplug_cli.software import find_compiled
from tests.helpers.command_line import fitplug

WITHOUT_COMPILED_FILES = """
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

# Of fitplug, Python finds sources alone, as where it was installed without a compiler.
class Sources:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith("fitplug.") and not name.startswith("fitplug_"):
            return None
        for folder in path or sys.path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            if spec is not None:
                return spec
        raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Sources)
from fitplug_cli.main import main
sys.argv = ["fitplug", "--version"]
main()
"""


@pytest.mark.parametrize(
    ("package", "arguments"), [("typer", ["--help"]), ("pydantic", ["report", "spec.toml"])]
)
def test_a_missing_package_is_named_in_one_sentence(package: str, arguments: list[str]) -> None:
    start = f"import sys; sys.modules[{package!r}] = None; sys.argv[0] = 'fitplug'\n"
    start += "from fitplug_cli.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", start, *arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"fitplug: the command needs the package {package}; "
        'install it with: pip install "fitplug[all]"\n'
    )


def test_the_command_says_which_parts_are_compiled() -> None:
    ran = fitplug("--version")
    said = [
        f"{module}: {'compiled' if is_compiled else 'not compiled'}"
        for module, is_compiled in find_compiled().items()
    ]
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [f"fitplug {version('fitplug')}", *said]


def test_compiled_parts_are_those_loaded_from_compiled_files() -> None:
    for module, is_compiled in find_compiled().items():
        loaded = sys.modules.get(module)
        file = "" if loaded is None else str(loaded.__file__)
        assert is_compiled == file.endswith(tuple(EXTENSION_SUFFIXES)), module


def test_sources_are_not_taken_for_compiled() -> None:
    command = [sys.executable, "-c", WITHOUT_COMPILED_FILES]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[1:] == ["fitplug_dask.compiled_loops: not compiled"]
