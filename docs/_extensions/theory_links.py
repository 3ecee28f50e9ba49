"""Links between the site for users and the site of the theory, which is built apart from it.

A page links to `theory/dual.md`, so that the link leads somewhere where the code is hosted, too.
"""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx


def link_other_site(app: Sphinx, doctree: nodes.document) -> None:
    """Resolve the links to pages of the other site; Sphinx calls this for each page it has read."""
    for link in list(doctree.findall(pending_xref)):
        page = os.path.relpath(Path(app.srcdir, link["reftarget"]).resolve(), app.srcdir)
        if link["refdomain"] != "doc" or page in app.env.found_docs:
            continue
        if not Path(app.srcdir, f"{page}.md").exists():
            continue  # Sphinx warns of it
        folder = posixpath.dirname(link["refdoc"]) or "."
        anchor = f"#{link['reftargetid']}" if link.get("reftargetid") else ""
        url = posixpath.relpath(f"{page}.html", folder) + anchor
        link.replace_self(nodes.reference("", "", *link.children, internal=False, refuri=url))


def link_from_header(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Make the links of the header relative to the page; the theme copies them as they are."""
    links = context.get("theme_external_links") or []
    context["theme_external_links"] = [
        link | {"url": context["pathto"](link["url"], resource=True)} for link in links
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", link_other_site)
    app.connect("html-page-context", link_from_header)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
