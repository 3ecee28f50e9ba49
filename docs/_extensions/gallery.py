"""Draw the plots of the gallery by running the Python of its page, whenever the site is built."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from fitplug.display.plotting import INK

PAGE = Path(__file__).parents[1] / "howto" / "gallery.md"
EXAMPLES = Path(__file__).parents[2] / "examples"


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


def write_figures(app: Sphinx) -> None:
    """Write the figures to howto/gallery/, where the page finds them.

    The style sheet shows _static/gallery/grid-dark.svg, the grid with light text, on dark pages.
    """
    folder = Path(app.srcdir) / "howto" / "gallery"
    folder.mkdir(exist_ok=True)
    for name, content in draw_figures(PAGE).items():
        (folder / name).write_bytes(content)
    grid = (folder / "grid.svg").read_text(encoding="utf-8")
    for before, after in {INK.lower(): "#ced6dd", "fill: #ffffff": "fill: none"}.items():
        grid = grid.replace(before, after)
    dark = Path(app.srcdir) / "_static" / "gallery"
    dark.mkdir(exist_ok=True)
    (dark / "grid-dark.svg").write_text(grid, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_figures)
    return {"parallel_read_safe": True}
