"""TOML files, read with errors that never quote them.

The file may be another one than was meant, for instance the records themselves.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from fitplug_cli.files import read_text
from fitplug_cli.spec.errors import SpecError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_toml", "tomllib"]

_EXPLANATIONS = {
    "Cannot declare": "a table is there twice",
    "Cannot mutate": "a table is there twice",
    "Cannot overwrite a value": "a key is there twice",
    "Cannot redefine": "a table is there twice",
    "Duplicate": "a key is there twice",
    "Expected '='": "a key needs = and a value",
    "Expected ']'": "a table needs ] after its name",
    "Expected ']]'": "a table needs ]] after its name",
    "Expected newline": "the line goes on after its value",
    "Invalid date": "this is no date or time",
    "Invalid initial character": "this is no key",
    "Invalid statement": "this is no key and no table",
    "Invalid value": "this is no value; strings go in quotes",
    "Unclosed array": "a list needs ]",
    "Unclosed inline table": "a table needs }",
    "Unescaped": "a \\ in a string is written twice",
    "Unterminated string": "a string needs its second quote",
}
"""What each error of the parser means, by how its message begins."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: The file.

    Returns:
        Its tables.

    Raises:
        SpecError: If the file cannot be read or is not valid TOML.
    """
    text = read_text(path, "spec file", "a TOML file", SpecError)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: is not valid TOML: {_explain(str(error), text)}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists
        raise SpecError(f"{path}: is not valid TOML") from None


def _explain(error: str, content: str) -> str:
    """Explain a message of the parser in words that do not quote the file."""
    position = re.search(r"\(at (line ([0-9]+), column ([0-9]+)|end of document)\)$", error)
    known = (text for start, text in _EXPLANATIONS.items() if error.startswith(start))
    explained = next(known, "it cannot be read")
    if position is None:
        return explained
    hint = ""
    if position[2] is not None:
        line = content.split("\n")[int(position[2]) - 1]
        column = int(position[3])
        if re.fullmatch("[0-9],[0-9]", line[column - 2 : column + 1]):
            hint = "; numbers have a decimal point, not a comma"
    return f"{explained}, at {position[1]}{hint}"
