"""[data] cluster: whatever is at the address, the command ends in time with one message."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from fitplug_cli.commands import clusters
from tests.helpers.command_line import SPEC, fitplug, make, tree

NO_ADDRESS = "is not the address of a Dask scheduler. Write tcp://HOST:PORT"
NO_ANSWER = "no Dask scheduler answered within 1 s. Start the scheduler, or correct the address"


@pytest.fixture(params=["silent", "closing", "a web server", "noise"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a real server that is no scheduler."""
    answers = {"closing": b"", "a web server": b"HTTP/1.1 400 Bad\r\n\r\n", "noise": bytes(99)}
    held = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # the test is over
                return
            if request.param == "silent":
                held.append(connection)
                continue
            with closing(connection):
                connection.recv(100)
                connection.sendall(answers[request.param])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for connection in held:
        connection.close()


def count_by_file(tmp_path, content: str | None) -> tuple[object, str]:
    """Run a count on the cluster of a scheduler file; return the exit code and the message."""
    if content is not None:
        (tmp_path / "scheduler.json").write_text(content)
    ran = fitplug(
        "run", make(tmp_path, SPEC.replace("[data]", '[data]\ncluster = "scheduler.json"'))
    )
    return ran.code, ran.err


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"address": 1}'])
def test_a_file_that_is_no_scheduler_file(tmp_path, content):
    code, message = count_by_file(tmp_path, content)
    assert code == 2
    assert "is not a readable scheduler file. Create it with" in message


def test_the_address_in_a_scheduler_file_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    code, message = count_by_file(tmp_path, '{"address": "tcp://127.0.0.1:1"}')
    assert code == 1
    assert f"cluster = 'tcp://127.0.0.1:1': {NO_ANSWER}" in message


def refused(tmp_path, monkeypatch, address: str, spec: str = SPEC) -> tuple[object, str]:
    """Run a release on the cluster, which leaves nothing; return the exit code and the message."""
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    spec = make(tmp_path, spec.replace("[data]", f'[data]\ncluster = "{address}"'))
    before = tree(tmp_path)
    ran = fitplug("run", spec)
    assert ran.err.startswith(f"fitplug: {spec}: [data] cluster = '{address}'")
    assert ran.err.count("\n") == 1
    assert tree(tmp_path) == before
    return ran.code, ran.err


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [
        ("tcp://", 2, NO_ADDRESS),
        ("foo", 2, NO_ADDRESS),
        ("http://x", 2, NO_ADDRESS),
        ("tcp://host:notaport", 2, NO_ADDRESS),
        ("tcp://[::1", 2, NO_ADDRESS),
        ("tls://127.0.0.1:8786", 2, "this machine has no usable TLS certificates for Dask"),
        ("tcp://127.0.0.1:1", 1, NO_ANSWER),
        ("tcp://no-such-host.invalid:8786", 1, NO_ANSWER),
    ],
)
def test_an_address_without_a_scheduler(tmp_path, monkeypatch, address, code, says):
    found, message = refused(tmp_path, monkeypatch, address)
    assert found == code
    assert says in message


def test_a_port_where_something_else_answers_or_nothing(tmp_path, monkeypatch, port):
    code, message = refused(tmp_path, monkeypatch, f"tcp://127.0.0.1:{port}")
    assert code in (1, 2)
    assert NO_ADDRESS in message or NO_ANSWER in message


@pytest.mark.parametrize("parts", ["false", "true"])
def test_no_new_folder_and_no_new_ledger_are_left(tmp_path, monkeypatch, parts):
    spec = SPEC.replace("budget.db", "new.db")
    spec = spec.replace('"release/"', f'"new/folder/release/"\nparts = {parts}')
    assert spec.count("new") == 2
    assert refused(tmp_path, monkeypatch, "tcp://127.0.0.1:1", spec)[0] == 1
