"""Ends that no command plans for: an interrupt, closed or full outputs, unforeseen errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from fitplug_cli.commands import design
from tests.helpers.command_line import SPEC, WORD, fitplug, make, tree

COMMAND = [sys.executable, "-m", "fitplug_cli"]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def start(*arguments: object, **streams: object) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stderr=PIPE, text=True, env=ENVIRONMENT, **streams)


def test_an_interrupt(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.toml")
    # Opening the pipe waits until the command reads it.
    with start("run", tmp_path / "spec.toml") as running, (tmp_path / "spec.toml").open("w"):
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.strip().startswith("fitplug: Interrupted. With a ledger, the same command finishes")
    assert err.strip().count("\n") == 0


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    spec = make(tmp_path)
    before = tree(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    with start("report", spec, stdout=writer) as running:
        os.close(writer)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "Standard output was closed before everything was printed. Run the" in err
    assert err.count("\n") == 1
    assert tree(tmp_path) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("options", [["report", "--json"], ["--help"]])
def test_the_disk_of_the_output_is_full(tmp_path: Path, options: list[str]) -> None:
    spec = make(tmp_path)
    with Path("/dev/full").open("w") as full, start(*options, spec, stdout=full) as running:
        _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "A file or standard output: no space left on device. Fix this" in err
    assert err.count("\n") == 1


def test_the_output_is_closed(tmp_path: Path) -> None:
    """The ledger must not get the number of the standard output, to which others print."""
    spec = make(tmp_path)
    shell = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "run", str(spec), "--json"]
    ran = subprocess.run(shell, stderr=PIPE, text=True, env=ENVIRONMENT, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "release" / "release.json").exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "Out of memory. Free some"),
        (ZeroDivisionError(WORD), "Unexpected ZeroDivisionError (design.py, line "),
    ],
)
def test_an_error_that_nobody_foresaw(tmp_path, monkeypatch, error, says) -> None:
    """Its own words may be what rows hold, so they are not printed."""

    def fail(*arguments: object, **keywords: object) -> None:
        raise error

    monkeypatch.setattr(design, "design_plan", fail)
    for options in ([], ["--verbose"]):
        ran = fitplug("run", make(tmp_path / f"{len(options)}"), *options)
        assert ran.code == 1
        assert says in ran.err
        assert WORD not in ran.out + ran.err
        assert ("design_at_any_cost" in ran.err) == (options != [] and says.startswith("Unexp"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('path = "people/"', r'path = "people\u0000"'),
        ('path = "budget.db"', r'path = "budget\u0000"'),
        ('path = "release/"', r'path = "release\u0000"'),
        ('["1", "2"]', r'{ codebook = "codes\u0000" }'),
        ("std = 3.0", r'targets = "targets\u0000"'),
    ],
)
def test_a_path_with_a_null_character(tmp_path: Path, old: str, new: str) -> None:
    ran = fitplug("run", make(tmp_path, SPEC.replace(old, new)))
    assert ran.code == 2
    assert "must not contain a null character" in ran.err or "cannot be read. Give" in ran.err


def test_options_of_a_store_that_its_client_does_not_know(tmp_path: Path) -> None:
    options = '{ key = "secret", secret = "secret", nonsense = "secret" }'
    output = f'path = "s3://bucket/out"\nparts = true\nstorage_options = {options}'
    ran = fitplug("run", make(tmp_path, SPEC.replace('path = "release/"', output)))
    assert ran.code == 1
    assert "cannot be used (UnknownConfigurationKeyError). Check the URL" in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize("command", [["report"], ["design"], ["count"]])
def test_an_output_that_is_no_file_is_not_read(tmp_path: Path, command: list[str]) -> None:
    """A pipe would be waited for, and a device such as /dev/full read until no memory is left."""
    os.mkfifo(tmp_path / "pipe")
    ran = fitplug(*command, make(tmp_path / "spec"), "--output", tmp_path / "pipe")
    assert ran.code == 2
    assert "pipe is not a regular file. Name another file" in ran.err


@pytest.mark.parametrize("option", ["--delta", "--max-rho"])
def test_zero_is_not_taken_for_a_missing_option(tmp_path: Path, option: str) -> None:
    ran = fitplug("report", make(tmp_path), option, "0")
    assert ran.code == 2
    assert re.search("must .* not 0|'0' must", ran.err)
