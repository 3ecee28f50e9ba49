"""The file of the noisy answers, with what is needed to compute everything else by the plan.

The file carries a digest of its content, which notices damage and edits.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.errors import InputError, PlanError
from fitplug.files import (
    Arrays,
    Header,
    compute_digest,
    read_with_digest,
    sync,
    write_with_digest,
)
from fitplug.ledger import Entry, decode_fraction, encode_fraction
from fitplug.plan import Plan
from fitplug.privacy import check_contributions
from fitplug.release.file_names import PLAN, name_files
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.population import LIMITS
from fitplug.release.versions import list_core_versions
from fitplug.workload import read_bound_unit

_KIND, _FORMAT = "answers of fitplug", 1


def write_answers(release: NoisyAnswers, path: Path, mode: int = 0o666) -> str:
    """Write the noisy answers to a file, which is on the disk when this returns.

    Args:
        release: The noisy answers.
        path: The file.
        mode: The permissions of the file.

    Returns:
        The digest of the file's content.

    Raises:
        OSError: The file cannot be written.
    """
    digest = write_with_digest(path, *_pack(release), mode)
    sync(path.parent)
    return digest


def compute_answers_digest(release: NoisyAnswers) -> str:
    """Compute the digest that a file of these answers would have if it were written now."""
    return compute_digest(*_pack(release))


def read_answers(path: Path, plan: Plan) -> tuple[dict[str, Any], str]:
    """Read a file of a plan's noisy answers.

    Returns:
        The fields of the release by the names of `Release`'s attributes, and the digest of the
        file's content.

    Raises:
        InputError: The file is damaged, was edited, or is of another plan.
    """
    header, arrays, digest = _open(path)
    if header.get("plan_digest") != plan.digest:
        raise InputError(f"{path} is of another plan than {PLAN}; use the files of one folder")
    try:
        answers = arrays["answers"]
        if answers.dtype != np.int64 or answers.shape != (plan.strategy.released_size,):
            raise PlanError("answers of another plan")
        fields = parse_fields(plan, header) | {"answers": answers}
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        raise InputError(
            f"{path}: the answers and what is said of them do not agree; get the folder again "
            "from whoever released it"
        ) from None
    return fields, digest


def read_answers_digest(path: Path) -> str | None:
    """Read the digest of a file of noisy answers; None if there is none, or if it is damaged."""
    if not path.is_file():
        return None
    try:
        return _open(path)[2]
    except (InputError, OSError):
        return None


def read_answers_charge(path: Path) -> Entry | None:
    """Read the charge that a file of noisy answers names; None if it names none, or is damaged."""
    if not path.is_file():
        return None
    try:
        return read_entry(_open(path)[0]["entry"])
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        return None


def _pack(release: NoisyAnswers) -> tuple[Header, Arrays]:
    """Make the header and the arrays of the file."""
    header = {"kind": _KIND, "format": _FORMAT} | describe_fields(release)
    return header, {"answers": np.asarray(release.answers)}


def describe_fields(release: NoisyAnswers) -> Header:
    """Describe the fields of a release but its answers, for the header of a file of answers."""
    entry = release.entry
    header = {
        "plan_digest": release.plan_digest,
        "rho": release.rho.hex(),
        "contributions": release.contributions,
        "noise_scale": release.noise_scale.hex(),
        "entry": None if entry is None else _describe_entry(entry),
        "files": dict(name_files(release.plan.workload)),
        "versions": list_core_versions(),
    }
    optional = {
        "limited": release.limited,
        "rows": release.rows,
        "counts": release.seal,
        "outside": list(release.outside) or None,
    }
    return header | {key: value for key, value in optional.items() if value is not None}


def _describe_entry(entry: Entry) -> Header:
    """Describe the charge of a release."""
    exact = {"rho": encode_fraction(entry.rho), "bound_unit": entry.bound_unit.to_spec()}
    return vars(entry) | exact


def read_entry(described: Header | None) -> Entry | None:
    """Read the charge of a release; None if no ledger recorded it.

    Raises:
        InputError: Its unit of privacy is none.
    """
    if described is None:
        return None
    rho, unit = decode_fraction(described["rho"]), read_bound_unit(described["bound_unit"])
    return Entry(**(described | {"rho": rho, "bound_unit": unit}))


def _open(path: Path) -> tuple[Header, Arrays, str]:
    """Read the header, the arrays and the digest. Raises InputError for damage and edits."""
    try:
        header, arrays, digest = read_with_digest(path)
        kind, version = header["kind"], header["format"]
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise InputError(
            f"{path}: this is no file of answers, or it is damaged; get the folder again from "
            "whoever released it"
        ) from None
    if (kind, version) != (_KIND, _FORMAT):
        raise InputError(f"{path}: answers of format {version!r}; this fitplug reads {_FORMAT}")
    if digest is None:
        raise InputError(
            f"{path}: the answers were edited after the release; get the folder again from "
            "whoever released it"
        )
    return header, arrays, digest


def parse_fields(plan: Plan, header: Header) -> dict[str, Any]:
    """Make the fields of the release but its answers.

    Raises:
        Exception: They do not fit the plan or each other; errors of any kind are possible.
    """
    contributions = header["contributions"]
    if contributions is not None:
        check_contributions(contributions)
    limited = header.get("limited")
    if limited not in LIMITS:
        raise PlanError("a limit of another kind")
    rho, noise_scale = float.fromhex(header["rho"]), float.fromhex(header["noise_scale"])
    in_unit = plan.strategy.compute_rho(plan.noise_std * noise_scale)
    exact = in_unit * plan.compare_records(contributions or 1) ** 2
    # The rho of a release is rounded up, by little.
    if noise_scale <= 0 or not exact <= Fraction(rho) <= exact * (1 + Fraction(1, 10**9)):
        raise PlanError("not what these answers cost")
    entry = read_entry(header["entry"])
    if entry is not None and entry.plan_digest != plan.digest:
        raise PlanError("a charge for another plan")
    return {
        "plan": plan,
        "rho": rho,
        "contributions": contributions,
        "noise_scale": noise_scale,
        "entry": entry,
        "limited": limited,
        "rows": header.get("rows"),
        "seal": header.get("counts"),
        "outside": tuple(map(str, header.get("outside", ()))),
    }
