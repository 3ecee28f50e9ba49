"""The page over HTTP: who may use it, what designs answer, and which files it writes."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import fitplug as fp
from fitplug_cli.spec import load_spec
from tests.explore.conftest import Server, start
from tests.helpers.browser import wait_for
from tests.helpers.command_line import COST, NUMBER, SPEC, WORD, fitplug, make, names, tree
from tests.helpers.places import ROOT

TARGETS: list[dict[str, Any]] = [
    {"kind": "std", "value": 5},
    {"kind": "moe", "value": 9, "confidence": 90},
    {"kind": "std", "value": 3},
]


def change(at: int, **target: Any) -> list[dict[str, Any]]:
    return [target if i == at else one for i, one in enumerate(TARGETS)]


class TestAccess:
    def test_the_token_becomes_a_cookie_and_leaves_the_address(self, server: Server) -> None:
        answer = server.ask(f"/?token={server.token}", without="Cookie")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(server.cookie)
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        page = server.ask("/")
        assert page.status == 200
        assert server.token not in page.text

    @pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/state", "/?token=wrong"])
    def test_nothing_is_served_without_it(self, server: Server, path: str) -> None:
        for cookie in ("", "fitplug_explore=x", server.cookie[:-1], "=; ;;", f"{server.cookie}é"):
            answer = server.ask(path, cookie=cookie)
            assert answer.status == 403
            assert "Open the whole URL" in answer.text

    def test_another_host_is_refused_against_dns_rebinding(self, server: Server) -> None:
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1"):
            assert server.ask("/state", host=host).status == 403
        assert server.ask("/state", without="Host").status in (400, 403)
        assert server.ask("/state", host=f"localhost:{server.port}").status == 200

    def test_what_another_site_sends_is_refused(self, server: Server) -> None:
        for path, content in (("/design", {"targets": TARGETS}), ("/write", {"name": "x.toml"})):
            for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}"):
                assert server.ask(path, content, origin=origin).status == 403
            assert server.ask(path, content, without="Origin").status == 403

    def test_pages_load_nothing_from_elsewhere(self, server: Server) -> None:
        answer = server.ask("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for path in ("/", "/page.js", "/targets.js", "/page.css"):
            said = server.ask(path)
            assert "http" not in said.text.replace("http://www.w3.org", "")
            assert said.headers["cache-control"] == "no-store"
        for path in ("/../spec.toml", "/spec.toml", "/page/page.js", "/%2e%2e/spec.toml"):
            assert server.ask(path).status == 404

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
    def test_the_browser_is_started_without_the_token(
        self, tmp_path: Path, server: Server, end: signal.Signals
    ) -> None:
        opened = tmp_path / "opened"
        script = tmp_path / "browser"
        script.write_text(f'#!/bin/sh\necho "$@" > {opened}.new && mv {opened}.new {opened}\n')
        script.chmod(0o755)
        with start(server.folder / "spec.toml", browser=f"{script} %s", end=end) as other:
            wait_for(opened.exists, 60)
            (argument,) = opened.read_text().split()
            assert other.token not in argument
            file = Path(argument.removeprefix("file://"))
            assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]
            assert f"url={other.url}" in file.read_text()
            assert other.ask("/").status == 200  # the server has begun, and can end
        assert not file.parent.exists()

    def test_only_this_computer_can_connect(self, server: Server) -> None:
        for address in {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}:
            if not str(address).startswith("127.") and address != "::1":
                with pytest.raises(OSError, match=r"refused|unreachable|assign"):
                    socket.create_connection((str(address), server.port), 5).close()


class TestDesign:
    def test_the_state_has_the_spec_and_no_data(self, server: Server) -> None:
        state = server.ask("/state").json
        assert state["name"] == "spec.toml"
        assert state["budget"] == {"total": 100.0, "spent": 0.0, "remaining": 100.0}
        assert [group["name"] for group in state["groups"]] == ["ages", "income", "total"]
        assert state["groups"][1]["target"] == {
            "kind": "moe", "value": 9.0, "confidence": 0.9, "simultaneous": False
        }  # fmt: skip
        assert WORD not in str(state)
        assert str(NUMBER) not in str(state)

    def test_a_design_is_that_of_the_spec(self, server: Server) -> None:
        outcome = server.design(TARGETS)[-1]["outcome"]
        assert outcome["rho"] == pytest.approx(COST, rel=1e-3)
        spec = load_spec(server.folder / "spec.toml")
        plan = fp.design(spec.workload, unit=spec.unit, refine=False)
        assert outcome["rho"] == plan.rho
        assert "within" in outcome["gap"].lower()
        assert sum(group["price"] for group in outcome["groups"]) == pytest.approx(1)
        assert outcome["groups"][0]["allowed_std"] == pytest.approx(5)

    def test_bounds_from_the_last_plan_hold(self, server: Server) -> None:
        server.design(change(0, kind="std", value=5.5))
        for targets in (
            change(0, kind="std", value=4.1),
            change(2, kind="std", value=30),
            change(1, kind="relative", percent=2.5, count=400, confidence=95),
            [{**target, "value": 2 * target["value"]} for target in TARGETS],
        ):
            messages = server.design(targets)
            low, high = messages[0]["between"]
            assert low <= messages[-1]["outcome"]["rho"] <= high * (1 + 2e-4)
        assert low == pytest.approx(high, rel=1)

    def test_one_factor_on_all_targets_has_tight_bounds_before_the_design(
        self, server: Server
    ) -> None:
        targets = change(0, kind="std", value=5.25)
        rho = server.design(targets)[-1]["outcome"]["rho"]
        doubled = [{**target, "value": 2 * target["value"]} for target in targets]
        low, high = server.design(doubled)[0]["between"]
        assert high == pytest.approx(rho / 4, rel=1e-6)
        assert low <= high <= low * (1 + 2.1e-4)

    def test_a_relative_margin_is_one_of_the_typical_count(self, server: Server) -> None:
        relative = change(1, kind="relative", percent=2.25, count=400, confidence=90)
        assert server.design(relative)[-1] == server.design(TARGETS)[-1]

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ({"kind": "std", "value": None}, "Std is missing. Enter a number."),
            ({"kind": "std", "value": "5"}, "Std is missing."),
            ({"kind": "std", "value": True}, "Std is missing."),
            ({"kind": "std", "value": 0}, "Std must be above zero. Enter a larger number."),
            ({"kind": "std", "value": float("inf")}, "Std must be finite."),
            ({"kind": "moe", "value": -1}, "Margin of error must be above zero"),
            ({"kind": "moe", "value": 1, "confidence": 100}, "Confidence must be below 100%."),
            ({"kind": "relative", "percent": 1, "confidence": 90}, "Typical count is missing."),
            ({"kind": "factor", "value": 2}, "This group cannot have this kind of target."),
            ({"kind": ["std"]}, "The kind of this target is not valid."),
            (None, "The target is not valid."),
        ],
    )
    def test_a_wrong_target_is_a_problem_and_its_fix(
        self, server: Server, target: Any, says: str
    ) -> None:
        targets = [TARGETS[0], target, TARGETS[2]]
        answer = server.ask("/design", {"targets": targets})
        assert answer.status == 400
        assert answer.json["group"] == 1
        assert answer.json["error"].startswith(says)

    def test_targets_out_of_range_are_refused_by_the_design(self, server: Server) -> None:
        (said,) = server.design(change(0, kind="std", value=1e40))
        assert "std must lie between" in said["error"]

    @pytest.mark.parametrize(
        "content", [b"{", b"[1]", b'{"targets": []}', b"[" * 10**5, b" " * 2**23]
    )
    def test_a_wrong_request_is_refused(self, server: Server, content: bytes) -> None:
        answer = server.ask("/design", content)
        assert answer.status == 400
        assert "Load the page again" in answer.json["error"]

    @pytest.mark.slow
    def test_a_design_ends_when_the_page_closes_the_connection(self, tmp_path: Path) -> None:
        spec = tmp_path / "release.toml"
        example = ROOT / "examples" / "interviews" / "release.toml"
        spec.write_text(example.read_text().replace("2e-3", "1e-6"))  # takes minutes
        with start(spec) as server:
            state = server.ask("/state").json
            targets = [{"kind": "std", "value": g["target"]["value"]} for g in state["groups"]]
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            headers = {"Cookie": server.cookie, "Origin": server.origin}
            connection.request("POST", "/design", json.dumps({"targets": targets}), headers)
            answer = connection.getresponse()
            assert "outcome" not in answer.readline().decode()
            connection.close()
            answer.close()
            started = time.monotonic()
            (said,) = server.design([{"kind": "std", "value": 1e40}, *targets[1:]])
            assert "std must lie between" in said["error"]  # its turn has come
            assert time.monotonic() - started < 60


class TestWrite:
    def test_only_the_lines_of_targets_change(self, server: Server) -> None:
        before = tree(server.folder)
        targets = change(0, kind="moe", value=11.5, confidence=90)
        answer = server.ask("/write", {"name": "agreed.toml", "targets": targets})
        assert answer.json == {"written": ["agreed.toml"]}
        written = server.folder / "agreed.toml"
        old = (server.folder / "spec.toml").read_text()
        assert written.read_text() == old.replace(
            "std = 5.0  # as agreed", "moe = 11.5  # as agreed\nconfidence = 0.9"
        )
        assert written.stat().st_mode & 0o777 == 0o644
        workload = load_spec(written).workload
        assert fp.design(workload, refine=False).rho == server.design(targets)[-1]["outcome"]["rho"]
        after = tree(server.folder)
        assert after.pop("agreed.toml")
        assert after == before
        written.unlink()

    def test_no_file_is_replaced_unasked(self, server: Server) -> None:
        existing = server.folder / "old.toml"
        existing.write_text(SPEC.replace("5.0", "6.0"))
        given = {"name": "old.toml", "targets": TARGETS}
        answer = server.ask("/write", given)
        assert (answer.status, answer.json["exists"]) == (409, True)
        assert "old.toml already exists" in answer.json["error"]
        assert existing.read_text() == SPEC.replace("5.0", "6.0")
        assert server.ask("/write", {**given, "replace": "yes"}).status == 409
        assert server.ask("/write", {**given, "replace": True}).status == 200
        assert existing.read_text() == (server.folder / "spec.toml").read_text()
        existing.write_text("notes = 'mine'")
        answer = server.ask("/write", {**given, "replace": True})
        assert (answer.status, answer.json["exists"]) == (400, False)
        assert existing.read_text() == "notes = 'mine'"
        existing.unlink()

    @pytest.mark.parametrize(
        "name",
        ["../out.toml", "/tmp/out.toml", "people/out.toml", "..\\out.toml", ".hidden.toml", "", "a",
         "out.toml\0", "out.toml\n", "budget.db", "-o.toml", "..toml", "a/../b.toml"],
    )  # fmt: skip
    def test_a_name_that_is_no_spec_beside_this_one(self, server: Server, name: str) -> None:
        before = tree(server.folder.parent)
        answer = server.ask("/write", {"name": name, "targets": TARGETS, "replace": True})
        assert answer.status == 400
        assert "the file name must end in .toml" in answer.json["error"]
        assert tree(server.folder.parent) == before

    def test_neither_the_spec_itself_nor_what_a_link_points_to(self, server: Server) -> None:
        outside = server.folder.parent / "outside.toml"
        outside.write_text(SPEC)
        links = {"link.toml": outside, "missing.toml": server.folder.parent / "no.toml"}
        for name, target in links.items():
            (server.folder / name).symlink_to(target)
        (server.folder / "folder.toml").mkdir()
        (server.folder / "hard.toml").hardlink_to(server.folder / "spec.toml")
        before = names(server.folder.parent), names(server.folder), outside.read_text()
        for name in ("spec.toml", "hard.toml", *links, "folder.toml"):
            answer = server.ask("/write", {"name": name, "targets": TARGETS, "replace": True})
            assert answer.status == 400, name
            assert "Choose another name." in answer.json["error"]
        assert before == (names(server.folder.parent), names(server.folder), outside.read_text())
        for name in ("hard.toml", *links):
            (server.folder / name).unlink()
        (server.folder / "folder.toml").rmdir()
        outside.unlink()


@pytest.mark.slow
def test_targets_of_a_file_have_one_factor(tmp_path: Path) -> None:
    spec = make(
        tmp_path / "specs", SPEC.replace("moe = 9.0\nconfidence = 0.9", 'targets = "t.csv"')
    )
    (spec.parent / "t.csv").write_text("group,INC,moe,confidence\nincome,,9,0.9\n")
    with start(spec) as server:
        state = server.ask("/state").json
        assert state["groups"][1]["target"]["kind"] == "factor"
        targets = change(1, kind="factor", value=1.5)
        as_margin = change(1, kind="moe", value=13.5, confidence=90)
        refused = server.ask("/design", {"targets": as_margin})
        assert refused.json["group"] == 1
        rho = server.design(targets)[-1]["outcome"]["rho"]
        answer = server.ask("/write", {"name": "new.toml", "targets": targets})
        assert answer.json == {"written": ["new.t.csv", "new.toml"]}
        workload = load_spec(spec.parent / "new.toml").workload
        assert fp.design(workload, refine=False).rho == pytest.approx(rho, rel=1e-4)
        again = server.ask("/write", {"name": "new.toml", "targets": targets})
        assert "new.t.csv and new.toml already exist" in again.json["error"]


@pytest.mark.slow
def test_a_ledger_with_charges_in_this_unit_and_in_another(tmp_path: Path) -> None:
    spec = make(tmp_path / "specs", SPEC.replace("rho = 100.0", "rho = 2.0"))
    ledger = fp.Ledger(spec.parent / "budget.db", rho=2.0)
    ledger.charge(0.5, what="pilot", unit=fp.AddRemove())
    before = tree(spec.parent)
    with start(spec) as server:
        assert server.ask("/state").json["budget"] == {"total": 2.0, "spent": 0.5, "remaining": 1.5}
        ledger.charge(0.25, what="more", unit=fp.AddRemove())
        assert server.ask("/state").json["budget"]["remaining"] == 1.25
        (spec.parent / "budget.db").write_bytes(b"no ledger")
        state = server.ask("/state").json
        assert state["budget"] is None
        assert "budget.db" in state["budget_note"]
        server.design(TARGETS)
    assert tree(spec.parent).keys() == before.keys()
    spec.write_text(spec.read_text().replace("budget.db", "other.db"))
    fp.Ledger(spec.parent / "other.db", rho=2.0, unit=fp.AddRemove(records=3))
    with start(spec) as server:
        assert "another unit" in server.ask("/state").json["budget_note"]


def test_a_port_that_is_taken_and_a_wrong_spec(tmp_path: Path, server: Server) -> None:
    ran = fitplug("explore", server.folder / "spec.toml", "--port", server.port)
    assert ran.code == 2
    assert f"Port {server.port}: address already in use. Choose another --port" in ran.err
    ran = fitplug("explore", tmp_path / "none.toml")
    assert ran.code == 2
    assert "no such spec file" in ran.err
    assert names(tmp_path) == set()
