"""What the command says of the software that it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.helpers.command_line import fitplug


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
        f'fitplug: The package {package} is missing. Install it with: pip install "fitplug[all]"\n'
    )


def test_the_command_says_its_version() -> None:
    ran = fitplug("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"fitplug {version('fitplug')}\n", "")
