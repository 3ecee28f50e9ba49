"""Identifiers of SDMX: which texts are identifiers, and those of names that are none.

SDMX 3.0, section 3A: identifiers of codes have the type IDType, those of other objects
NCNameIDType, and those of agencies NestedNCNameIDType.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from fitplug.errors import InputError

_COMPONENT = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_CODE = re.compile(r"[A-Za-z0-9_@$\-]+")
_AGENCY = re.compile(rf"{_COMPONENT.pattern}(\.{_COMPONENT.pattern})*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")


def check_agency(agency: str) -> None:
    """Raise InputError unless a text identifies an agency."""
    if not _AGENCY.fullmatch(agency):
        raise InputError(
            f"agency = {agency!r} is no identifier of SDMX; write letters, digits, _ and -, with a "
            "letter first, such as ISTAT"
        )


def check_version(version: str) -> None:
    """Raise InputError unless a text is a version of a structure."""
    if not _VERSION.fullmatch(version):
        raise InputError(f"version = {version!r} is no version of SDMX; write one such as 1.0.0")


def name_codes(labels: Sequence[str]) -> list[str]:
    """Choose an identifier for each label, distinct for each row.

    A label that is an identifier stays as it is. Other characters become underscores, and numbers
    are added where two rows would have the same identifier.
    """
    return _choose(labels, _CODE, ())


def name_components(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Choose an identifier for each name of an attribute, as `name_codes` does for labels.

    Identifiers differ in more than case from each other and from those that are taken.
    """
    return _choose(names, _COMPONENT, taken)


def _choose(names: Sequence[str], form: re.Pattern[str], taken: Collection[str]) -> list[str]:
    """Choose a distinct identifier of a form for each name."""
    is_component = form is _COMPONENT
    used = {_fold(name, is_component) for name in taken}
    chosen: list[str | None] = []
    for name in names:
        stays = form.fullmatch(name) is not None and _fold(name, is_component) not in used
        chosen.append(name if stays else None)
        if stays:
            used.add(_fold(name, is_component))
    for i, name in enumerate(names):
        if chosen[i] is not None:
            continue
        base = re.sub(r"[^A-Za-z0-9_\-]+", "_", name).strip("_") or "EMPTY"
        if is_component and not base[0].isalpha():
            base = f"A_{base}"
        own, number = base, 2
        while _fold(own, is_component) in used:
            own, number = f"{base}_{number}", number + 1
        used.add(_fold(own, is_component))
        chosen[i] = own
    return [own for own in chosen if own is not None]


def _fold(name: str, is_component: bool) -> str:
    """Return what must be distinct: components differ in more than case."""
    return name.casefold() if is_component else name
