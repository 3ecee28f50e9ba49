"""Rescued answers: kept elsewhere when the folder of a release cannot be written.

A paid draw is never repeated, so answers that are lost stay charged.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.errors import InputError
from fitplug.files import LocalPlace, is_url
from fitplug.plan import Plan
from fitplug.releases.manifest import PLAN, read_manifest, write_answers
from fitplug.releases.noisy_answers import NoisyAnswers


@contextmanager
def rescue_answers(release: NoisyAnswers, location: str | PathLike[str]) -> Iterator[None]:
    """Keep the plan and the answers elsewhere if the block fails with an OSError.

    They are written to a new folder that only its owner can read: next to the location, in the
    current folder, or in the folder of temporary files, whichever works first.

    Args:
        release: The noisy answers.
        location: The folder that the block writes.

    Raises:
        OSError: The error of the block; its message names the folder that has the answers.
    """
    try:
        yield
    except OSError as error:
        kept = _write_elsewhere(release, location)
        remedy = (
            "no other copy could be written. The release is still in memory: save it to another "
            "folder"
            if kept is None
            else f"the noisy answers are in {kept}. Read them with fitplug.Release.recover, and "
            "save them to another folder"
        )
        why = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename else ""
        raise OSError(error.errno, f"{why}{where}. {remedy}.") from None


def _write_elsewhere(release: NoisyAnswers, location: str | PathLike[str]) -> Path | None:
    """Write the plan and the answers to the first possible place; None if there is none."""
    name = Path(os.fspath(location)).name
    folders = [Path.cwd(), Path(tempfile.gettempdir())]
    if not is_url(location):
        folders.insert(0, Path(location).absolute().parent)
    for folder in folders:
        kept = folder / f"{name}.{secrets.token_hex(4)}.kept"
        try:
            kept.mkdir(mode=0o700)
        except OSError:
            continue
        try:
            release.plan.save(kept / PLAN)
            write_answers(LocalPlace(kept, 0o600), release)
        except OSError:
            shutil.rmtree(kept, ignore_errors=True)
            continue
        return kept
    return None


def read_rescued_answers(directory: str | PathLike[str]) -> dict[str, Any]:
    """Read the fields of the release that `rescue_answers` kept in a folder.

    Raises:
        InputError: The folder is incomplete, damaged or was edited.
        PlanError: The plan is damaged.
    """
    folder = Path(directory).absolute()
    if not (folder / PLAN).is_file():
        raise InputError(
            f"{folder}: {PLAN} is missing. Use the folder named by the error of the interrupted "
            "release."
        )
    fields, _ = read_manifest(LocalPlace(folder), Plan.load(folder / PLAN))
    return fields | {"answers": np.asarray(fields["answers"])}
