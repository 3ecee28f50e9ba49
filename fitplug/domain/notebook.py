"""The HTML that notebooks show of a domain."""

from __future__ import annotations

from collections.abc import Sequence

from fitplug.display import MOST_GROUPS, make_section, make_table
from fitplug.domain.attribute import Attribute


def render_domain(attributes: Sequence[tuple[str, Attribute]], size: int) -> str:
    """Write a table of the attributes, with the number of cells of each."""
    rows = [
        (name, type(attribute).__name__, f"{attribute.size:,}")
        for name, attribute in attributes[: MOST_GROUPS + 1]
    ]
    cells = f"{size:,}" if size < 10**15 else f"about 10^{len(str(size)) - 1}"
    headings = ("attribute", "kind", "cells")
    listed = make_table("attributes", headings, rows, MOST_GROUPS, len(attributes))
    return make_section("Domain", [f"{cells} cells"], listed)
