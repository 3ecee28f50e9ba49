"""Packaging: one version everywhere, the Pythons that are promised, and workflows that agree."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from importlib.metadata import requires, version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import fitplug
from fitplug_cli.spec.errors import tomllib
from tests.helpers.places import ROOT

SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
WORKFLOWS = ROOT / ".github" / "workflows"


def read_yaml(*path: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*path).read_text(encoding="utf-8"))


def read_pythons() -> list[str]:
    """The Pythons that pyproject.toml promises one by one."""
    prefix = "Programming Language :: Python :: 3."
    return ["3." + c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]


def test_all_files_name_one_version() -> None:
    codemeta = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    found = {
        "the package": fitplug.__version__,
        "what is installed": version("fitplug"),
        "CITATION.cff": read_yaml("CITATION.cff")["version"],
        "codemeta.json": codemeta["version"],
        "recipe.yaml": read_yaml("recipe", "recipe.yaml")["package"]["version"],
    }
    assert found == dict.fromkeys(found, PROJECT["version"])


def test_descriptions_of_the_project_agree() -> None:
    citation = read_yaml("CITATION.cff")
    codemeta = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    assert citation["authors"] == [{"name": "fitplug contributors"}]
    assert codemeta["author"] == [{"@type": "Organization", "name": "fitplug contributors"}]
    assert citation["license"] == codemeta["license"].rpartition("/")[2] == PROJECT["license"]
    assert citation["keywords"] == codemeta["keywords"] == PROJECT["keywords"]
    assert citation["abstract"].rstrip(".") == codemeta["description"] == PROJECT["description"]
    assert codemeta["runtimePlatform"] == f"Python {PROJECT['requires-python']}"
    needed = [Requirement(text).name for text in PROJECT["dependencies"]]
    assert codemeta["softwareRequirements"] == needed


def test_the_pythons_that_are_promised_are_tested_and_built_for() -> None:
    pythons = read_pythons()
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert [python for python in pythons if Version(python) in allowed] == pythons
    first, last = (int(pythons[end].partition(".")[2]) for end in (0, -1))
    assert pythons == [f"3.{minor}" for minor in range(first, last + 1)]
    assert f"3.{first - 1}" not in allowed
    jobs = read_yaml(".github", "workflows", "tests.yml")["jobs"]
    assert jobs["newest"]["strategy"]["matrix"]["python"] == pythons
    (setup,) = (step for step in jobs["lowest"]["steps"] if "setup-python" in step.get("uses", ""))
    assert setup["with"]["python-version"] == pythons[0]
    numbers = re.fullmatch(r"cp3\{([\d,]+)\}-\*", SETTINGS["tool"]["cibuildwheel"]["build"])
    assert numbers is not None
    assert [f"3.{number}" for number in numbers[1].split(",")] == pythons
    page = (ROOT / "docs" / "about.md").read_text(encoding="utf-8")
    assert f"{pythons[0]} to {pythons[-1]}" in page


def test_the_version_of_opendp_that_is_tried_is_the_first_that_is_excluded() -> None:
    (text,) = (t for t in PROJECT["optional-dependencies"]["opendp"] if t.startswith("opendp"))
    (excluded,) = (
        Version(bound.version) for bound in Requirement(text).specifier if bound.operator == "<"
    )
    steps = read_yaml(".github", "workflows", "tests.yml")["jobs"]["next-opendp"]["steps"]
    (tried,) = (found[1] for step in steps if (found := re.search(r'"(opendp[^"]+)"', str(step))))
    specifier = Requirement(tried).specifier
    assert specifier.contains(excluded)
    assert not specifier.contains(Version(f"{excluded.major}.{excluded.minor + 1}"))
    assert not Requirement(text).specifier.contains(excluded)


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_pinned_actions(path: Path) -> None:
    workflow = read_yaml(".github", "workflows", path.name)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] < 360, name  # GitHub ends it then, without being asked
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            for script in re.findall(r"bash (\S+)", step.get("run", "")):
                assert (ROOT / script).is_file(), script


def test_a_recipe_for_conda_asks_for_what_the_core_needs() -> None:
    recipe = read_yaml("recipe", "recipe.yaml")
    asked = {Requirement(text.replace(" ", "")) for text in recipe["requirements"]["run"][1:]}
    assert asked == {Requirement(text) for text in PROJECT["dependencies"]}
    host = {Requirement(text.replace(" ", "")) for text in recipe["requirements"]["host"][2:]}
    assert host == {Requirement(text) for text in SETTINGS["build-system"]["requires"]}
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {function}" for name, function in PROJECT["scripts"].items()
    ]


def test_files_that_should_not_be_published_are_found(tmp_path: Path) -> None:
    spec = spec_from_file_location("check_files", ROOT / ".ci" / "check_files.py")
    assert spec is not None
    assert spec.loader is not None
    check_files = module_from_spec(spec)
    spec.loader.exec_module(check_files)
    sources = check_files.list_sources()
    suffix = ".cpython-313-x86_64-linux-gnu.so"
    compiled = {f"{name}{suffix}" for name in check_files.COMPILED}

    def check(in_sdist: set[str], in_wheel: set[str]) -> None:
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            for name in in_sdist:
                at = name if name.startswith("fitplug/") or "/" not in name else f"adapters/{name}"
                archive.addfile(tarfile.TarInfo(f"fitplug-0/{at}"))
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive_of_wheel:
            for name in {*in_wheel, "fitplug/", "fitplug-0.dist-info/RECORD"}:
                archive_of_wheel.writestr(name, b"")
        check_files.main(str(tmp_path / "a.tar.gz"), str(tmp_path / "a.whl"))

    good = ({*sources, "PKG-INFO", "setup.py"}, sources | compiled)
    check(*good)
    plan = "fitplug/plan/__init__.py"
    for changed, said in [
        ((good[0] - {plan}, good[1]), f"missing in the sdist: {plan}"),
        ((good[0] | {"people.csv"}, good[1]), "too much in the sdist: people.csv"),
        ((good[0], good[1] - {plan}), f"missing in the wheel: {plan}"),
        ((good[0], good[1] | {"fitplug/files/places.c"}), "too much in the wheel: fitplug/files"),
        ((good[0], sources), "compiled otherwise: fitplug_dask/compiled"),
    ]:
        with pytest.raises(SystemExit, match=re.escape(said)):
            check(*changed)


def test_the_extras_of_fitplug_and_opendp_for_mbi_go_together() -> None:
    """As docs/howto/synthetic.md says."""
    (ours,) = map(Requirement, PROJECT["optional-dependencies"]["mbi"])
    found = [r for r in map(Requirement, requires("opendp") or []) if r.name == "mbi"]
    (theirs,) = (r for r in found if r.marker and r.marker.evaluate({"extra": "mbi"}))
    (pin,) = theirs.specifier
    assert pin.operator == "=="
    assert ours.specifier.contains(pin.version)
    text = (ROOT / "docs" / "howto" / "synthetic.md").read_text(encoding="utf-8")
    assert f"`opendp[mbi]` 0.16 installs mbi {pin.version}" in text
    assert version("opendp").startswith("0.16.")
