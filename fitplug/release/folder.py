"""Release folders: a Parquet table per group, the plan, and the noisy answers themselves.

From the plan and the answers every estimate, variance and covariance can be computed again, by
whoever holds the folder and without the data. Both files carry digests of their content, and
reading holds the tables against what the two say.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy

from fitplug.errors import InputError, PlanError
from fitplug.files import (
    Arrays,
    ArrowTable,
    Columns,
    Header,
    compute_digest,
    make_partial_folder,
    move_into_place,
    read_parquet,
    read_with_digest,
    sync,
    write_parquet,
    write_with_digest,
)
from fitplug.ledger import Entry, check_contributions
from fitplug.plan import Plan
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.population import LIMITS
from fitplug.release.tables import POPULATION, Spread, arrow, columns, metadata, spread
from fitplug.workload import Workload

PLAN, ANSWERS = "plan.npz", "answers.npz"
_FORMAT = 1
_RESERVED = ("release", "plan", "answers", "review")


AnyRelease = TypeVar("AnyRelease", bound=NoisyAnswers, contravariant=True)


class TableFiles(Protocol[AnyRelease]):
    """What else goes into a folder, beside each table and once all are there."""

    def add_table(self, folder: Path, name: str, table: ArrowTable) -> None:
        """Called with each table and its file name, without ending."""

    def add_rest(self, folder: Path, release: AnyRelease) -> None:
        """Called when the folder holds everything else."""


def write(release: NoisyAnswers, directory: str | PathLike[str], confidence: float) -> None:
    """Write a new folder, whole or not at all. Raises InputError if there is one that is not
    empty, ImportError without pyarrow, OSError.
    """
    place = Path(directory).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} is there already; name a folder that is new or empty")
    with make_partial_folder(place) as partial:
        digest = write_answers(release, partial / ANSWERS)
        fill(release, partial, digest, confidence)
        move_into_place(partial, place)


def write_answers(release: NoisyAnswers, path: Path, mode: int = 0o666) -> str:
    """Write the noisy answers to a file, on the disk when this returns; returns the digest of its
    content. mode: permissions of the file. Raises OSError.
    """
    digest = write_with_digest(path, *_content(release), mode)
    sync(path.parent)
    return digest


def answers_digest(release: NoisyAnswers) -> str:
    """The digest that a file of the release's answers has, written here and now."""
    return compute_digest(*_content(release))


def fill(
    release: AnyRelease,
    folder: Path,
    digest: str,
    confidence: float,
    files: TableFiles[AnyRelease] | None = None,
) -> None:
    """Write all else into a folder that holds the answers, of this digest.

    confidence: of the intervals of groups whose target names none. files: writes more. Raises
    OSError, and ImportError without pyarrow.
    """
    release.plan.save(folder / PLAN)
    names = file_names(release.plan.workload)
    for group in release.plan.workload.groups:
        of = spread(group, None, default=confidence)
        said = metadata(release, group, of) | {"fitplug.answers_digest": digest}
        said |= {f"fitplug.version.{name}": text for name, text in versions().items()}
        name, table = names[group.name], arrow(columns(release, group, of), said)
        write_parquet(folder / f"{name}.parquet", table)
        if files is not None:
            files.add_table(folder, name, table)
    if files is not None:
        files.add_rest(folder, release)


def read(directory: str | PathLike[str]) -> tuple[dict[str, Any], str]:
    """The parts of the release that a folder holds, by the names of `Release`'s fields, and the
    digest of its answers' file.

    Raises InputError, PlanError for a damaged plan, and ImportError without pyarrow.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such release folder; name the folder of one")
    for name in (PLAN, ANSWERS):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder}: {name} is missing; a release is read from its whole folder"
            )
    return read_answers(folder / ANSWERS, Plan.load(folder / PLAN))


def read_answers(path: Path, plan: Plan) -> tuple[dict[str, Any], str]:
    """The parts of the release that a file of a plan's answers holds, by the names of `Release`'s
    fields, and the digest of its content. Raises InputError.
    """
    header, arrays = _opened(path)
    if header.get("plan_digest") != plan.digest:
        raise InputError(f"{path} is of another plan than {PLAN}; use the files of one folder")
    try:
        parts = _parts(plan, header, arrays)
    except Exception:  # whatever entries that are missing or of another kind make of it
        raise InputError(
            f"{path}: the answers and what is said of them do not agree; get the folder again "
            "from whoever released it"
        ) from None
    return parts, compute_digest(header, arrays)


def held_digest(directory: Path) -> str | None:
    """The digest of the answers in a release folder; None if it is no folder of a release."""
    if not (directory / ANSWERS).is_file():
        return None
    try:
        return compute_digest(*_opened(directory / ANSWERS))
    except (InputError, OSError):
        return None


def check_tables(release: NoisyAnswers, directory: str | PathLike[str], digest: str) -> None:
    """Raise InputError unless every group's table in a folder says what the release does, and is
    of the answers with this digest.
    """
    folder = Path(directory)
    files = file_names(release.plan.workload)
    for group in release.plan.workload.groups:
        path = folder / f"{files[group.name]}.parquet"
        if not path.is_file():
            raise InputError(f"{path} is missing; a release is read from its whole folder")
        try:
            held, said = read_parquet(path)
            of = Spread(float(said["fitplug.confidence"]), said["fitplug.simultaneous"] == "true")
            expected = metadata(release, group, of) | {"fitplug.answers_digest": digest}
        except ImportError:
            raise
        except Exception:  # pyarrow raises many kinds on damage
            raise InputError(
                f"{path}: the table is damaged; get the folder again from whoever released it"
            ) from None
        # Sentences are worded anew at times; what they are made from is held against the answers.
        expected.pop(POPULATION, None)
        same = all(said.get(key) == value for key, value in expected.items())
        if not same or not _agree(held, columns(release, group, of)):
            raise InputError(
                f"{path}: the table does not say what {ANSWERS} does; it was edited, or is of "
                "another release"
            )


def file_names(workload: Workload) -> Mapping[str, str]:
    """A file name, without ending, for each group: its own name in plain letters."""
    names: dict[str, str] = {}
    taken = set(_RESERVED)
    for group in workload.names:
        base = re.sub(r"[^A-Za-z0-9]+", "_", group).strip("_").lower()[:80] or "group"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        names[group] = name
        taken.add(name)
    return names


def versions() -> dict[str, str]:
    """Of Python and of the libraries that the estimates are computed with."""
    from fitplug import __version__  # here, as the package imports this module

    return {
        "python": platform.python_version(),
        "fitplug": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _content(release: NoisyAnswers) -> tuple[Header, Arrays]:
    return _describe(release), {"answers": release.answers}


def _describe(release: NoisyAnswers) -> dict[str, Any]:
    entry = release.entry
    # In hexadecimal, as ledgers have it: Python prints no decimals as long as these may be.
    rho = "" if entry is None else f"{entry.rho.numerator:x}/{entry.rho.denominator:x}"
    described = {
        "kind": "answers of fitplug",
        "format": _FORMAT,
        "plan_digest": release.plan_digest,
        "rho": release.rho.hex(),
        "contributions": release.contributions,
        "noise_scale": release.noise_scale.hex(),
        "entry": None if entry is None else vars(entry) | {"rho": rho},
        "files": dict(file_names(release.plan.workload)),
        "versions": versions(),
    }
    known = {
        "limited": release.limited,
        "rows": release.rows,
        "counts": release.seal,
        "outside": list(release.outside) or None,
    }
    return described | {name: said for name, said in known.items() if said is not None}


def _opened(path: Path) -> tuple[Header, Arrays]:
    try:
        header, arrays, whole = read_with_digest(path)
        known = header["kind"], header["format"]
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise InputError(
            f"{path}: this is no file of answers, or it is damaged; get the folder again from "
            "whoever released it"
        ) from None
    if known != ("answers of fitplug", _FORMAT):
        raise InputError(f"{path}: answers of format {known[1]!r}; this fitplug reads {_FORMAT}")
    if not whole:
        raise InputError(
            f"{path}: the answers were edited after the release; get the folder again from "
            "whoever released it"
        )
    return header, arrays


def _parts(plan: Plan, header: Header, arrays: Arrays) -> dict[str, Any]:
    """Raises anything unless the parts fit the plan and each other."""
    answers, contributions = arrays["answers"], header["contributions"]
    if answers.dtype != np.int64 or answers.shape != (plan.strategy.size,):
        raise PlanError("answers of another plan")
    if contributions is not None:
        check_contributions(contributions)
    limited = header.get("limited")  # not in files of earlier versions
    if limited not in LIMITS:
        raise PlanError("a limit of another kind")
    rho, noise_scale = float.fromhex(header["rho"]), float.fromhex(header["noise_scale"])
    exact = plan.strategy.rho_exact(plan.noise_std * noise_scale) * (contributions or 1) ** 2
    # The rho of a release is rounded up, by little.
    if noise_scale <= 0 or not exact <= Fraction(rho) <= exact * (1 + Fraction(1, 10**9)):
        raise PlanError("not what these answers cost")
    entry = header["entry"]
    if entry is not None:
        numbers = [int(part, 16) for part in entry["rho"].split("/")]
        entry = Entry(**(entry | {"rho": Fraction(*numbers)}))
        if entry.plan_digest != plan.digest:
            raise PlanError("a charge for another plan")
    return {
        "plan": plan,
        "answers": answers,
        "rho": rho,
        "contributions": contributions,
        "noise_scale": noise_scale,
        "entry": entry,
        "limited": limited,
        "rows": header.get("rows"),
        "seal": header.get("counts"),
        "outside": tuple(map(str, header.get("outside", ()))),
    }


def _agree(held: Columns, expected: Columns) -> bool:
    """Whether tables are the same, up to how another machine rounds sums."""
    if list(held) != list(expected):
        return False
    for name, column in expected.items():
        own = held[name]
        if own.shape != column.shape:
            return False
        if column.dtype.kind != "f":
            # Releases of earlier versions have integers and booleans of categories as text.
            if own.tolist() not in (column.tolist(), [str(label) for label in column.tolist()]):
                return False
        elif (
            own.dtype != column.dtype
            or not (np.abs(own - column) <= 1e-6 * (expected["std"] + np.abs(column) * 1e-6)).all()
        ):
            return False
    return True
