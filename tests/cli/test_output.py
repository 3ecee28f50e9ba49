"""--json prints one object and nothing else, --quiet nothing; errors stay on stderr."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios

import pytest

import fitplug as fp
from fitplug.plan.summary import price_groups as prices
from fitplug.releases.release import Release
from tests.helpers.command_line import SPEC, make
from tests.helpers.forked_processes import run_command


def fitplug(*arguments):
    """In a process of its own: the modes are those of a process."""
    return run_command(*arguments, cwd=".")


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return make(tmp_path_factory.mktemp("output"))


def said(done):
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_design(spec):
    record = said(fitplug("design", spec, "--json"))
    plan = fp.Plan.load(record["plan"])
    for name, value in {
        "plan_digest": plan.digest,
        "rho": plan.rho,
        "plan_rho_exact": str(plan.rho_exact),
        "epsilon": plan.epsilon(record["delta"]),
        "rho_lower_bound": plan.rho_lower_bound,
        "gap": plan.gap,
    }.items():
        assert record[name] == value
    assert [group["name"] for group in record["groups"]] == list(plan.workload.names)


@pytest.mark.slow
def test_a_report_and_a_budget_it_does_not_fit(spec):
    whole = said(fitplug("report", spec, "--json"))
    plan = fp.Plan.load(said(fitplug("design", spec, "--json"))["plan"])
    assert {group["name"]: group["price"] for group in whole["groups"]} == prices(plan)
    assert whole["relaxation"] is None
    assert len(whole["usual_mechanisms"]) == 6
    done = fitplug("report", spec, "--json", "--max-rho", whole["rho"] / 4)
    assert done.returncode == 3
    assert "more than" in done.stderr
    told = json.loads(done.stdout)["relaxation"]
    assert told["proportional"] == pytest.approx(2, rel=2e-3)
    assert set(told["groups"]) <= set(plan.workload.names)


def test_a_run_and_the_ledger_after_it(spec):
    record = said(fitplug("run", spec, "--json"))
    release = Release.load(record["folder"])
    assert record["rho"] == record["rho_charged"] == release.rho
    assert record["plan_digest"] == release.plan.digest
    ledger = fp.Ledger(record["ledger"]["path"])
    assert record["ledger"]["spent"] == ledger.spent
    assert record["ledger"]["remaining"] == ledger.remaining
    assert record["ledger_entry"] == len(ledger.entries())


@pytest.mark.parametrize("command", ["run", "design", "report", "count"])
def test_quiet(spec, command):
    again = ["--again", "--replace"] if command == "run" else []
    done = fitplug(command, spec, "--quiet", *again)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_quiet_errors(tmp_path):
    done = fitplug("run", tmp_path / "none.toml", "--quiet", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["kind"]) == (2, "SpecError")
    assert "none.toml: no such spec file" in error["message"]


def test_usage_errors_are_json_too(tmp_path):
    done = fitplug("run", "spec.toml", "--json", "--keey", "x")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"], error["kind"]) == (2, 2, "UsageError")


def test_usage_errors_name_the_help_of_their_command():
    for arguments, says in {
        ("report",): "Missing argument 'PLAN'. See `fitplug report --help`.",
        ("ledger", "show"): "Missing argument 'PATH'. See `fitplug ledger show --help`.",
        ("shw",): "No such command 'shw'. Did you mean 'show'? See `fitplug --help`.",
        ("estimate", "out", "-by", "SEX"): "No such option: -b. Did you mean --by? "
        "See `fitplug estimate --help`.",
        ("estimate", "out", "-c"): "No such option: -c. See `fitplug estimate --help`.",
    }.items():
        ran = fitplug(*arguments)
        assert (ran.returncode, ran.stderr) == (2, f"fitplug: {says}\n")


@pytest.mark.parametrize("command", [(), ("ledger",), ("series",)])
def test_no_line_of_the_list_of_commands_is_cut(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = fitplug(*command, "--help").stdout.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_the_log_says_what_is_done_and_nothing_of_the_rows(spec):
    done = fitplug("run", spec, "--again", "--replace", "--verbose")
    assert done.returncode == 0
    for words in (
        "designed a plan of rho =", " tables from ", "fitplug.ledger: charged rho =",
        "are staged", "is drawn", "is published",
    ):  # fmt: skip
        assert words in done.stderr


def run_on_a_terminal(columns, *arguments, **environment):
    """Run the command on a terminal of so many columns; gives its exit code and what it writes."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.environ.pop("COLUMNS", None)
        os.environ.update(TERM="xterm-256color", **environment)
        os.execv(sys.executable, [sys.executable, "-m", "fitplug_cli", *map(str, arguments)])
    written = b""
    with contextlib.suppress(OSError):  # Linux raises it when the child is done
        while chunk := os.read(terminal, 65536):
            written += chunk
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode()


def test_a_narrow_terminal_cuts_no_number(spec):
    folder = spec.parent / "release"
    assert fitplug("run", spec, "--again", "--replace").returncode == 0
    for arguments in (["show", folder, "total"], ["compare", folder, spec]):
        _, written = run_on_a_terminal(24, *arguments, NO_COLOR="1")
        numbers = re.findall(r"[-\d,]*\d\.\d+%?", fitplug(*arguments).stdout)
        assert len(numbers) >= 5
        assert all(number in written for number in numbers)


def test_a_screen_fits_a_terminal_and_messages_are_in_colour_there_only(tmp_path):
    spec = make(tmp_path, SPEC.replace('SEX = ["1", "2"]', 'SEX = ["1", "2", "=1+1"]'))
    code, written = run_on_a_terminal(80, "run", spec)
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("not counted") for line in lines)
    # The warning comes before the screen of the run.
    assert "\x1b[1;33mwarning:" in written[: written.index("privacy cost")]
    assert "\x1b[1;31mfitplug:" in run_on_a_terminal(80, "run", tmp_path / "none.toml")[1]
    _, plain = run_on_a_terminal(80, "run", tmp_path / "none.toml", NO_COLOR="1")
    assert "\x1b[" not in plain
    assert "\x1b" not in fitplug("run", spec, "--again").stderr


@pytest.mark.parametrize("arguments", [(), ("-h",), ("ledger",), ("series",)])
def test_without_a_command_there_is_help(arguments):
    done = fitplug(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Commands:" in done.stdout
