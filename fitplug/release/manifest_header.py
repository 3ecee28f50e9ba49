"""The header of a manifest: what kind of content it has, and in which format."""

from __future__ import annotations

import json
from typing import Any

from fitplug.errors import InputError


def read_manifest_header(name: str, content: bytes, kind: str, version: int) -> dict[str, Any]:
    """Decode a manifest, and check its kind and its format.

    Args:
        name: The file, for messages.
        content: The content of the file.
        kind: The kind that it must be of, whose first word says what is in the folder.
        version: The format that it must have.

    Raises:
        InputError: It is damaged, or of another kind or format.
    """
    try:
        header = json.loads(content)
        found_kind, found_version = header["kind"], header["format"]
    except Exception:  # JSON and types each raise their own kinds on damage
        raise InputError(
            f"{name} is damaged; get the folder again from whoever released it"
        ) from None
    if (found_kind, found_version) != (kind, version):
        what = kind.partition(" ")[0]
        raise InputError(
            f"{name}: {what} of format {found_version!r}; this fitplug reads {version}"
        )
    assert isinstance(header, dict)
    return header
