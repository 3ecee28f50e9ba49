"""The commands of examples/cluster/README.md, with few rows and a free port."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fitplug as fp
from tests.helpers.command_line import names, tree
from tests.helpers.places import ROOT

README = (ROOT / "examples" / "cluster" / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


@pytest.fixture
def folder(tmp_path):
    """A checkout with the example, and nothing beside it."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples" / "acs" / "people", checkout / "examples" / "acs" / "people")
    shutil.copytree(ROOT / "examples" / "cluster", checkout / "examples" / "cluster")
    return checkout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.slow
def test_the_commands_count_and_release(folder):
    (block,) = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    port = free_port()
    few = block.replace("8786", port).replace("5555", free_port())
    exports, *commands = few.replace("--rows 1000000", "--rows 20000").splitlines()
    spec = folder / "examples" / "cluster" / "release.toml"
    spec.write_text(spec.read_text().replace("8786", port))
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    env |= dict(word.split("=", 1) for word in exports.split()[1:])
    before = tree(folder)
    running = []
    said = []
    try:
        for command in commands:
            words = command.split()
            if words[-1] == "&":
                with (folder.parent / f"log-{len(running)}").open("w") as log:
                    running.append(
                        subprocess.Popen(words[:-1], cwd=folder, env=env, stdout=log, stderr=log)
                    )
                continue
            done = subprocess.run(
                words, cwd=folder, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)
    assert len(running) == 4
    _, by_script, _, by_command = said
    value = re.search(r"people, released: (\d+), std", by_script)
    assert abs(int(value.group(1)) - 20_000) < 100
    assert "(238 answers)" in by_command
    assert tree(folder) == before
    beside = folder.parent / "fitplug-cluster"
    assert {*names(beside)} >= {"people", "people.db", "budget.db", "release"}
    release = fp.Release.load(beside / "release")
    assert abs(release.estimate("total").value - 20_000) < 100


def test_an_address_where_nothing_answers_is_one_sentence(folder, monkeypatch):
    from fitplug.errors import FitplugError
    from fitplug_cli.commands import clusters, count as counts
    from fitplug_cli.spec import load_spec

    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 0.2)
    path = folder / "examples" / "cluster" / "release.toml"
    path.write_text(path.read_text().replace("8786", free_port()))
    with pytest.raises(FitplugError, match=r"\[data\] cluster = .*no Dask scheduler answered"):
        counts.count_tables(load_spec(path), None)
