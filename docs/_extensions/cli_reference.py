"""Write the page of the command line from the commands' own help, by Typer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

COMMAND = [sys.executable, "-m", "typer", "fitplug_cli.main", "utils", "docs", "--name", "fitplug"]


def write_page(app: Sphinx) -> None:
    """Write reference/cli.md; Sphinx calls this before it reads the pages."""
    title = ["--title", "The command line"]
    made = subprocess.run([*COMMAND, *title], check=True, capture_output=True, text=True)
    page = Path(app.srcdir) / "reference" / "cli.md"
    if not page.exists() or page.read_text(encoding="utf-8") != made.stdout:
        page.write_text(made.stdout, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True}
