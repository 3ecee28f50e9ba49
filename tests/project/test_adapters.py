"""One import: what `fitplug` calls of its adapters, and what is said where a library is missing."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import fitplug as fp
from fitplug.adapters import GROUP
from fitplug_cli.spec.errors import tomllib
from tests.helpers.places import ROOT

NAMED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
][GROUP]

MISSING = """\
import sys
sys.modules[{library!r}] = None
import fitplug as fp
domain = fp.Domain({{"sex": ["1", "2"]}})
plan = fp.design(fp.Workload(domain, [fp.queries({{"sex": "identity"}}, std=5.0)]))
try:
    {call}
except ImportError as error:
    print(error)
"""


def say_missing(library: str, call: str) -> str:
    code = MISSING.format(library=library, call=call)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_what_is_declared_is_installed_and_has_the_same_parameters() -> None:
    found = {point.name: point for point in entry_points(group=GROUP)}
    assert {name: point.value for name, point in found.items()} == NAMED
    for name in ("count", "preview"):
        ours, theirs = (
            {p.name: (p.kind, p.default) for p in inspect.signature(f).parameters.values()}
            for f in (getattr(fp, name), found[name].load())
        )
        assert ours == theirs, name


@pytest.mark.parametrize("library", ["pyarrow", "fitplug_dask"])
@pytest.mark.parametrize("function", ["count", "preview"])
def test_a_missing_library_is_one_sentence_with_the_fix(library: str, function: str) -> None:
    said = say_missing(library, f'fp.{function}("people.csv", plan)')
    assert 'pip install "fitplug[dask]"' in said
    assert len(said.splitlines()) == 1


def test_a_missing_adapter_is_one_sentence_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitplug.adapters.entry_points", lambda **_: ())
    with pytest.raises(ImportError, match=r"no installed adapter provides fitplug\.count"):
        fp.count("people.csv", (fp.Domain({"sex": ["1", "2"]}), [("sex",)]))
