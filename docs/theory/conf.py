"""The site of the theory: definitions, theorems, proofs, notation, and the map of the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "_extensions"))

from fitplug import __version__

project = "fitplug theory"
release = __version__
extensions = ["myst_parser", "sphinx_copybutton", "mathml", "theory_links"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
smartquotes_action = "qe"

html_theme = "pydata_sphinx_theme"
html_title = "fitplug theory"
html_static_path = ["../_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_sidebars = {"**": ["globaltoc.html"]}
html_math_renderer = "mathml"
html_theme_options = {
    "icon_links": [{"name": "User guide", "url": "../index.html", "icon": "fa-solid fa-book"}],
    "globaltoc_maxdepth": 1,
    "navbar_center": [],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
}
