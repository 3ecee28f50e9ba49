"""README and docs, run as they stand: Python, spec files and commands, in the order of the page and
beside copies of the examples.

A block of TOML that begins with a comment such as `# visits.toml` is written to that file; one
that begins with `# visits.toml, in place of: std = 2.0` replaces that line of it. Of a block of
shell the lines that begin with `fitplug`, `mkdir`, `cd`, `cp` and `head` are run. A `fitplug` must
end with code 0, or the last one of a block as its first line says: ```sh exit code 3. A block of
text after one of shell or Python holds lines that it prints. Their numbers are compared, but for
the noise of estimates.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import opendp.prelude as dp
import pytest

import fitplug as fp
from fitplug_cli.spec import load_spec
from fitplug_cli.spec.errors import tomllib
from tests.helpers.pages import blocks, run_page
from tests.helpers.places import ROOT

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(path for path in DOCS.glob("*/*.md") if path.parent.name != "theory"),
]
SYNTHETIC = DOCS / "howto" / "synthetic.md"
COMMANDS = DOCS / "reference" / "cli.md"
"""A page that is written when the site is built."""
LONG = {"howto/gallery", "reference/plans"}
"""The pages that take the longest."""


@pytest.fixture
def beside_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = shutil.ignore_patterns("release", "release-*", "three", "weighted", "*.db*")
    for name in ("acs", "incomes", "interviews", "redistricting", "towns"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / "examples" / name, ignore=made)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    yield
    dp.disable_features("contrib", "honest-but-curious")


def name_page(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


@pytest.mark.usefixtures("beside_the_examples")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if name_page(page) in LONG else page
        for page in PAGES
        if page not in (SYNTHETIC, COMMANDS)
    ],
    ids=name_page,
)
def test_the_blocks_of_a_page_run(page: Path) -> None:
    said = run_page(page)
    check = {
        "README": check_readme,
        "explanation/persons": check_truncation,
        "howto/opendp": check_opendp,
    }
    check.get(name_page(page), lambda said: None)(said)


WITH_MBI = {
    "synthetic": """
        said = run_page(DOCS / "howto" / "synthetic.md")
        estimate, std = said["release"].estimate("total")
        assert said["rows"].records == int(estimate) and abs(estimate - 27_253) < 6 * std
        assert len(said["races"]) == said["rows"].records
        # Nearly all cells have large counts, so the model's tables are near those of the release.
        found = said["model"].project(("SEX", "AGEP")).datavector(flatten=False).cumsum(axis=1)
        off = np.asarray(found) - said["release"].estimates["pyramid"]
        assert np.sqrt((off**2).mean()) < 12.0
    """,
    "opendp": """
        said = run_page(DOCS / "howto" / "opendp.md", "opendp[mbi]")
        estimate, std = said["table"].marginals.release.estimate("total")
        assert std <= 5.0 and abs(estimate - 27_253) < 6 * std
    """,
}
MBI = version("mbi") if importlib.util.find_spec("mbi") else ""


@pytest.mark.slow
@pytest.mark.usefixtures("beside_the_examples")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param("synthetic", marks=pytest.mark.skipif(not MBI, reason="needs mbi")),
        pytest.param(
            "opendp", marks=pytest.mark.skipif(MBI[:4] != "1.1.", reason="needs opendp[mbi]")
        ),
    ],
)
def test_the_blocks_of_a_page_run_with_mbi(page: str) -> None:
    """In a process of its own, as tests that fork must not have JAX."""
    imports = """
        import numpy as np
        from tests.helpers.pages import run_page
        from tests.helpers.places import ROOT
        DOCS = ROOT / "docs"
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(imports) + textwrap.dedent(WITH_MBI[page])],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def check_truncation(said: dict[str, Any]) -> None:
    """What the page says against the data it made."""
    visits = said["visits"]
    lost = 1 - visits.clip(max=3).sum() / visits.clip(max=40).sum()
    found = re.search(r"share left out: (\S+)%, between (\S+)% and (\S+)%", said["printed"])
    assert found is not None
    share, low, high = (float(part) / 100 for part in found.groups())
    assert abs(lost - share) < 3 * (high - low)
    for limit, release in said["kept"].items():
        assert release.rho == pytest.approx(1 / 800)
        value, std = release.estimate("total")
        assert abs(value - visits.clip(max=limit).sum()) < 6 * std


def check_readme(said: dict[str, Any]) -> None:
    """What is shown of the release, and what the example released, against the data."""
    shown = "".join(b.text for b in blocks(ROOT / "README.md") if b.language == "text")
    total = re.search(r"total +(\d\S+) +(\S+)", shown)
    assert total is not None
    release = fp.Release.load("examples/acs/release")
    for value, std in ((float(total[1]), float(total[2])), release.estimate("total")):
        assert abs(value - 27_253) < 5 * std
    adults = release.estimate("'voting age'")
    assert abs(adults.value - 22_062) < 6 * adults.std
    assert fp.Ledger("examples/acs/budget.db").spent == release.plan.rho


def check_opendp(said: dict[str, Any]) -> None:
    assert said["release"].noise_scale == pytest.approx((said["plan"].rho / 0.05) ** 0.5, rel=1e-3)


def test_pages_are_found() -> None:
    """Every link of the README leads to a file. Sphinx warns of pages in no table of contents."""
    readme = PAGES[0].read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", readme) if "://" not in link]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_code_map_names_what_there_is() -> None:
    text = (ROOT / "docs" / "theory" / "code.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        first, *others = re.findall(r"`(.*?)`", row)
        folder = ROOT / first.split("/")[0]
        assert (ROOT / first).exists(), first
        for name in others:
            assert (folder / name).exists(), name


DOMAIN_OF_SPEC = """
ledger = false

[data]
path = "people"

[privacy]
unit = { records = 1 }

[domain]
SEX = ["1", "2"]
AGE = { integers = [0, 115] }
PLACE = { levels = ["region", "city"], leaves = [["north", "Ulm"], ["south", "Rom"]] }
WAGE = { measure = [0, 200000], unit = 100 }
"""


def rows_of(heading: str) -> list[str]:
    """What is written, in the first column of the table below a heading of the page of specs."""
    text = (ROOT / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    table = text[text.index(f"## {heading}") :].partition("\n## ")[0]
    found = re.findall(r"^\| `([A-Z]+ = .*?)` \|", table, re.MULTILINE)
    assert len(found) > 5
    return found


@pytest.mark.parametrize("row", rows_of("[domain]"))
def test_every_domain_of_the_table_is_one(row: str, tmp_path: Path) -> None:
    (name,) = tomllib.loads(row)
    if ".csv" in row or ".txt" in row or ".parquet" in row:  # of files that are not shown
        return
    asked = "sum" if "measure" in row else "identity"
    query = f'[[query]]\nname = "q"\n{name} = "{asked}"\nstd = 1.0\n'
    path = tmp_path / "spec.toml"
    head = 'ledger = false\n[data]\npath = "p"\n[privacy]\nunit = { records = 1 }\n'
    path.write_text(f"{head}[domain]\n{row}\n{query}", encoding="utf-8")
    assert load_spec(path).workload.domain[name].size > 1


@pytest.mark.parametrize("row", rows_of("[[query]]"))
def test_every_query_of_the_table_is_one(row: str, tmp_path: Path) -> None:
    (name,) = tomllib.loads(row)
    if name not in tomllib.loads(DOMAIN_OF_SPEC)["domain"]:
        return
    path = tmp_path / "spec.toml"
    path.write_text(f'{DOMAIN_OF_SPEC}[[query]]\nname = "q"\n{row}\nstd = 1.0\n', encoding="utf-8")
    assert load_spec(path).workload["q"].size >= 1
