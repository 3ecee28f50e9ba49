"""Draw the plots of the gallery: run the Python of its page, and add the figures to the site.

MkDocs runs this file as a hook.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "gallery.md"
EXAMPLES = Path(__file__).parents[1] / "examples"


def draw_figures(page: Path) -> dict[str, bytes]:
    """Run the blocks of Python of a page, beside the examples.

    Args:
        page: Its blocks save figures as SVG in the current folder.

    Returns:
        The content of each figure, by its name.
    """
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    with tempfile.TemporaryDirectory() as place, _enter(Path(place)) as folder:
        (folder / "examples").symlink_to(EXAMPLES, target_is_directory=True)
        exec("\n".join(code), {})
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.svg"))}


@contextlib.contextmanager
def _enter(folder: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the figures below gallery/; MkDocs calls this once for each build."""
    from mkdocs.structure.files import File

    for name, content in draw_figures(PAGE).items():
        files.append(File.generated(config, f"gallery/{name}", content=content))
    return files
