"""The house: rooms with one door each, and files that a reader holds in the head."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.places import ROOT, list_imports, parse

PACKAGES = (
    "fitplug",
    "adapters/fitplug_opendp",
    "adapters/fitplug_dask",
    "adapters/fitplug_ibis",
    "adapters/fitplug_export",
    "adapters/fitplug_explore",
    "adapters/fitplug_cli",
)
ROOMS = sorted(path.parent.name for path in (ROOT / "fitplug").glob("*/__init__.py"))

MOST_LINES = 420


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def imports_of_rooms(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """The room, the rest of the module's name, and the names, of each import from the core."""
    for node in list_imports(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fitplug."):
            room, *rest = (node.module or "").split(".")[1:]
            if room in ROOMS:
                yield room, rest, [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("fitplug.") for alias in node.names), path


def own_room(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "fitplug" and len(parts) > 2 else None


def exported(room: str) -> list[str]:
    """The names that are imported by their own name, or listed in `__all__`."""
    names: list[str] = []
    for node in parse(ROOT / "fitplug" / room / "__init__.py").body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names += ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
    return names


def test_a_room_is_entered_by_its_door() -> None:
    doors = {room: set(exported(room)) for room in ROOMS}
    assert len(ROOMS) > 10
    for path in sources():
        for room, rest, names in imports_of_rooms(path):
            if room == own_room(path):
                continue
            if (room, rest) == ("families", ["designs"]):
                continue  # a door of its own, since what proves may not know how plans are designed
            assert not rest, f"{path} reaches behind the door of {room}: {'.'.join(rest)}"
            assert set(names) <= doors[room], f"{path}: {set(names) - doors[room]} of {room}"


def test_a_door_names_what_others_use() -> None:
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in (*sources(), *(ROOT / "tests").rglob("*.py")):
        for room, rest, names in imports_of_rooms(path):
            if room != own_room(path) and rest != ["designs"]:
                used[room].update(names)
    for room in ROOMS:
        assert exported(room) == sorted(set(exported(room)), key=exported(room).index)
        assert set(exported(room)) <= used[room], set(exported(room)) - used[room]


def test_one_module_reads_the_buffers_of_arrow() -> None:
    """An array may be a slice, and its buffers begin before it: see `array_memory`."""
    reading = {
        path.name
        for path in sources()
        if re.search("buffers|__array_interface__", path.read_text(encoding="utf-8"))
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute)
        and node.attr in ("buffers", "from_buffers", "__array_interface__")
    }
    assert reading == {"array_memory.py"}


def test_no_file_grows_past_what_a_reader_holds() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_a_module_defines_each_name_once() -> None:
    """A second definition replaces the first without a word, also where it was used before."""
    for path in sources():
        defined: list[str] = []
        for node in parse(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.append(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n for target in targets for n in ast.walk(target)]
                defined += [n.id for n in names if isinstance(n, ast.Name)]
        assert len(defined) == len(set(defined)), path
