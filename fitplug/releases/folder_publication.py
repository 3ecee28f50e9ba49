"""The publication of a local release folder: from its staging area to its place, in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from fitplug.errors import InputError
from fitplug.files import (
    LocalPlace,
    hash_content,
    lock_folder,
    make_partial_folder,
    move_into_place,
)
from fitplug.releases.answer_parts import ANSWER_PARTS, PartedAnswers, name_part
from fitplug.releases.display_parts import DISPLAY, DisplayParts
from fitplug.releases.folder import ANSWERS_MANIFEST, RECORD, open_display, open_folder
from fitplug.releases.table_parts import PartedTables, name_table_part


def publish_folder(
    staging: Path,
    directory: Path,
    label: str = "",
    make_room: Callable[[], bool] = lambda: True,
) -> None:
    """Move a complete release from a local staging area to its place, in one step.

    The folder gets the files that the manifests name, the manifests, and nothing else: files that a
    killed writer left in the staging area hold other draws of the same answers, which nobody may
    see. The staging area stays as it is.

    Args:
        staging: The staging area, on the file system of the place.
        directory: The place, where there is nothing or an empty folder.
        label: A text in the name of the folder that is moved, to recognise one that a killed
            process left.
        make_room: A function that is called just before the move, while no other process can move a
            folder there. It returns whether to move.

    Raises:
        InputError: The staging area holds no complete release, or another writer changed it.
        OSError: The folder cannot be moved.
    """
    answers, tables, _ = open_folder(LocalPlace(staging))
    display = open_display(LocalPlace(staging))
    with make_partial_folder(directory, label) as partial:
        files = _list_files(staging, answers, tables, display)
        for name in files:
            target = partial / name
            target.parent.mkdir(exist_ok=True)
            os.link(staging / name, target)
        # A late writer may have replaced files in between. It cannot replace what is linked.
        files |= json.loads((partial / RECORD).read_bytes())["files"]
        for name, digest in files.items():
            if digest is not None and hash_content((partial / name).read_bytes()) != digest:
                raise InputError(
                    f"{name} of the release for {directory} changed before the release was "
                    "finished. Run the same command again; it charges nothing more."
                )
        mode = partial.stat().st_mode & 0o777  # as the umask of this process has it
        for path in partial.rglob("*"):
            path.chmod(mode if path.is_dir() else mode & 0o666)
        with lock_folder(directory.parent):
            if make_room():
                move_into_place(partial, directory)


def _list_files(
    staging: Path, answers: PartedAnswers, tables: PartedTables, display: DisplayParts | None
) -> dict[str, str | None]:
    """List the files of a complete release by their paths in the folder.

    Returns:
        The digest of each part of a table, which may be written again; None for other files.
    """
    names = {path.name for path in staging.iterdir() if path.is_file()}
    names = {name for name in names if not name.startswith(".")}
    if display is None:
        names.discard(DISPLAY)
    names.add(ANSWERS_MANIFEST)
    names |= {f"{ANSWER_PARTS}/{name_part(part.number)}" for part in answers.parts}
    files: dict[str, str | None] = dict.fromkeys(names)
    for source in (tables, display) if display is not None else (tables,):
        for name, parts in source.parts.items():
            table = source.find_folder(name)
            assert isinstance(table, LocalPlace)
            for part in parts:
                files[f"{table.path.name}/{name_table_part(part.slice.number)}"] = part.digest
    return files
