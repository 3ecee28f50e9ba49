"""A spec with other targets: only their lines change, and everything else stays as it is."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from fitplug_cli.spec import FACTOR, SpecError, load_spec, rewrite_spec
from tests.helpers.command_line import SPEC
from tests.helpers.places import ROOT

ACS = ROOT / "examples" / "acs" / "release.toml"


def changed_lines(path: Path, text: str) -> list[str]:
    """The lines that were removed (-) and added (+)."""
    before = path.read_bytes().decode().splitlines(keepends=True)
    lines = difflib.unified_diff(before, text.splitlines(keepends=True), n=0)
    return [line.rstrip("\n") for line in lines if line[0] in "+-"][2:]


def rewrite(folder: Path, query: str, change: dict[str, object], spec: str = SPEC) -> list[str]:
    """The changed lines of a spec whose second query, without its name, is given."""
    path = folder / "spec.toml"
    path.write_bytes(spec.replace("moe = 9.0\nconfidence = 0.9\n", query).encode())
    load_spec(path)
    (text,) = rewrite_spec(path, "new.toml", [None, change, None]).values()
    (folder / "new.toml").write_bytes(text.encode())
    load_spec(folder / "new.toml")
    return changed_lines(path, text)


def test_comments_and_order_of_an_example_stay() -> None:
    changes = [
        {"std": 14.0},
        {"moe": 20.5, "confidence": 0.95},
        None,
        {"moe": 6.0, "confidence": 0.9},
    ]
    (text,) = rewrite_spec(ACS, "new.toml", changes).values()
    assert changed_lines(ACS, text) == [
        "-std = 12.0",
        "+std = 14.0",
        "-moe = 15.0",
        "-confidence = 0.90",
        "+moe = 20.5",
        "+confidence = 0.95",
        "-std = 5.0",
        "+moe = 6.0",
        "+confidence = 0.9",
    ]
    assert rewrite_spec(ACS, "new.toml", [None] * 4) == {"new.toml": ACS.read_text()}


@pytest.mark.parametrize(
    ("query", "change", "lines"),
    [
        ("std = 9  # agreed\n", {"std": 10.0}, ["-std = 9  # agreed", "+std = 10.0  # agreed"]),
        (
            "moe   =  9.0 # a # b\n  confidence = 0.9   # c\n",
            {"std": 3.5},
            ["-moe   =  9.0 # a # b", "-  confidence = 0.9   # c", "+std = 3.5 # a # b", "+  # c"],
        ),
        (
            "confidence = 0.9\nsimultaneous = true\nmoe = 2_000_000.0\n",
            {"moe": 2.5e6, "confidence": 0.9, "simultaneous": True},
            ["-moe = 2_000_000.0", "+moe = 2_500_000.0"],
        ),
        ("variance = 9\n", {"variance": 1e-20}, ["-variance = 9", "+variance = 1e-20"]),
        (
            "std = [ # 2 bands\n  1.0, # low\n  2.5,\n]  # end\n",
            {FACTOR: 1.1},
            ["-  1.0, # low", "-  2.5,", "+  1.1, # low", "+  2.75,"],
        ),
        (
            "variance = [4.0, 9.0]\n",
            {FACTOR: 2.0},
            ["-variance = [4.0, 9.0]", "+variance = [16.0, 36.0]"],
        ),
    ],
)
def test_each_form_of_a_target(
    tmp_path: Path, query: str, change: dict[str, object], lines: list[str]
) -> None:
    assert rewrite(tmp_path, query, change) == lines


def test_line_endings_and_a_byte_order_mark_stay(tmp_path: Path) -> None:
    crlf = "\ufeff" + SPEC.replace("\n", "\r\n").replace(
        "moe = 9.0\r\nconfidence = 0.9\r\n", "std = 9\r\n"
    )
    rewrite(tmp_path, "", {"moe": 3.0, "confidence": 0.8}, crlf)
    written = (tmp_path / "new.toml").read_bytes()
    assert written.startswith(b"\xef\xbb\xbf\r\n")
    assert b"moe = 3.0\r\nconfidence = 0.8\r\n" in written
    assert written.count(b"\n") == written.count(b"\r\n")


def test_the_targets_of_a_file_are_multiplied_in_a_copy(tmp_path: Path) -> None:
    query = 'targets = "lists/targets.csv"  # by band\n'
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "targets.csv").write_text(
        "group,INC,moe,confidence\nincome,,9,0.9\nincome,0..10,4,\nages,,7,\n"
    )
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.replace("moe = 9.0\nconfidence = 0.9\n", query))
    files = rewrite_spec(path, "new.toml", [None, {FACTOR: 1.5}, None])
    assert list(files) == ["new.targets.csv", "new.toml"]
    assert files["new.targets.csv"] == (
        "group,INC,moe,confidence\nincome,,13.5,0.9\nincome,0..10,6,\nages,,7,\n"
    )
    assert changed_lines(path, files["new.toml"]) == [
        '-targets = "lists/targets.csv"  # by band',
        '+targets = "new.targets.csv"  # by band',
    ]


@pytest.mark.parametrize(
    "spec",
    [
        "query = [{ SEX = 'identity', std = 5.0 }]\n" + SPEC[: SPEC.index("[[query]]")],
        SPEC.replace('name = "ages"', 'name = "ages"\n[query.INC]\nranges = [[0, 10]]\n').replace(
            "std = 5.0\n", "", 1
        ),
        SPEC.replace("[data]", 'about = { notes = """\n[[query]]\nstd = 5.0\n""" }\n[data]'),
    ],
    ids=["inline", "below a table", "in a text"],
)
def test_what_cannot_be_edited_is_refused_with_the_way_out(tmp_path: Path, spec: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(spec)
    with pytest.raises(SpecError, match=r"cannot be edited here\. Write each query as"):
        rewrite_spec(path, "new.toml", [{"std": 6.0}])
