"""For the reference: lines of a docstring that begin with a parameter's name become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

_PARAMETER = re.compile(r"(?::param )?([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")
_RAISES = re.compile(r":raises (\w+): ")


class Lists(griffe.Extension):
    """Markdown lists of parameters."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _listed(obj.docstring.value)


def _listed(text: str) -> str:
    lines, within = [], False
    for line in text.splitlines():
        item = _PARAMETER.sub(r"* `\1`: ", line, count=1) if _PARAMETER.match(line) else line
        item = _RAISES.sub(r"* raises `\1`: ", item, count=1) if _RAISES.match(line) else item
        begins = item is not line
        if begins and not within:
            lines.append("")
        if not line.strip() or line.startswith(("Raises ", "Returns ")):
            if within and line.strip():
                lines.append("")
            within = False
        elif within and not begins:
            item = "    " + item.strip()
        lines.append(item)
        within = within or begins
    return "\n".join(lines)
