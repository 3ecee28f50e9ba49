"""Texts of users in a review: two Markdown libraries make no element of them, and show them all."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import markdown as python_markdown
import pytest
import yaml
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

import fitplug as fp
from fitplug.releases.review_texts import format_markdown
from fitplug_opendp import release_files

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a & b &lt;b&gt; <!-- c",
    "[click](javascript:alert(1))",
    "![x](http://example.org/x.png)",
    "[x]: javascript:alert(1)",
    "<javascript:alert(1)> <http://example.org>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "`code` ``more` and ~~~",
    "```\nfence\n```",
    "# heading",
    "under\n===",
    "under\n---",
    "- list\n- of two",
    "+ list",
    "* list",
    "1. list",
    "2) list",
    "> quote",
    "***",
    "    code",
    "\tcode",
    "**bold** _thin_ __b__ ~~gone~~",
    "line  \nbreak\\\nbreak",
    "\\<b>x</b> \\",
    "{: .class onclick=x } [^1] *[HTML]: x",
    "one\n\n# two\n\n<b>three</b>",
    "\u2028# x\x00\x1b[31m",
    "_OMB No. 1_ C# 5_year Smith & Co (a) [b] 100 % ~ 3 < 4",
)

RENDERERS = {
    "markdown-it": MarkdownIt("commonmark", {"html": True})
    .enable(["table", "strikethrough"])
    .render,
    "Python-Markdown": lambda text: python_markdown.markdown(
        text, extensions=["extra", "sane_lists", "toc", "nl2br"]
    ),
}


class Elements(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[object] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [(k, v) for k, v in attrs if k != "id"]))

    def handle_endtag(self, tag):
        self.tags.append(tag)

    def handle_comment(self, data):
        self.tags.append("comment")

    def handle_decl(self, decl):
        self.tags.append("declaration")

    def handle_pi(self, data):
        self.tags.append("instruction")

    def handle_data(self, data):
        self.words += data.split()


def seen(text: str) -> str:
    return " ".join(
        "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split()
    )


def reviewed(text: str, ledger: Path):
    """A review in which every text that a user gives is this one."""
    group, other = text + " ", "other " + text
    domain = fp.Domain({text.strip() or "x": ["1", "2"], "b": ["1", "2"]})
    first = domain.names[0]
    asked = [fp.queries({first: "identity"}, std=3.0, name=group), fp.total(std=1.0, name=other)]
    plan = fp.design(fp.Workload(domain, asked))
    tables = fp.Tables(domain, {names: [3, 4] for names in plan.tables})
    kept = fp.Ledger(ledger, rho=100.0)
    release = fp.release(plan, tables, ledger=kept, what=text, key=text)
    texts = {
        name: (text, text) if name in ("curators", "authors") else text
        for name in fp.About.__dataclass_fields__
        if name != "sector"
    }
    return fp.review(release, about=fp.About(**texts, sector="Health"), ledger=kept)


@pytest.mark.parametrize("library", RENDERERS)
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.slow
def test_texts_make_no_element(text: str, library: str, tmp_path: Path) -> None:
    render = RENDERERS[library]
    plain = "\n\n".join("plain" for part in text.split("\n\n") if part.strip())
    hostile = Elements(render(format_markdown(reviewed(text, tmp_path / "a.db"))))
    harmless = Elements(render(format_markdown(reviewed(plain, tmp_path / "b.db"))))
    assert hostile.tags == harmless.tags
    shown = " ".join(hostile.words)
    for part in text.split("\n\n"):
        assert seen(part) in shown


@given(st.text(st.one_of(st.sampled_from("<>&|`*_[](){}#+-=~!:\\/.1a \n\t\"'"), st.characters())))
def test_random_texts_make_no_element(text: str) -> None:
    """In a heading, a paragraph, a list and a table."""

    def page(word: str) -> str:
        basic = {"name": word, "description": word, "data_curators": [word, word]}
        return format_markdown({"deployment": {"basic": basic}})

    for render in RENDERERS.values():
        shown = Elements(render(page(text)))
        names = {tag if isinstance(tag, str) else tag[0] for tag in shown.tags}
        assert names <= {"h1", "h2", "h3", "p", "ul", "li"}
        assert all(not tag[1] for tag in shown.tags if not isinstance(tag, str))


@pytest.mark.slow
def test_yaml_gives_every_text_back(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        record = reviewed(text, tmp_path / f"{number}.db")
        release_files.write_review(tmp_path, record)
        assert yaml.safe_load((tmp_path / release_files.YAML).read_text("utf-8")) == record


@pytest.mark.slow
def test_names_on_the_page_of_a_report_make_no_element() -> None:
    from fitplug_cli.render.facts import collect_facts
    from fitplug_cli.render.page import render_page

    def elements(words: list[str]) -> Elements:
        domain = fp.Domain({words[0]: ["1", "2"], "b": ["1", "2"]})
        groups = [fp.queries({domain.names[0]: "identity"}, std=3.0, name=word) for word in words]
        facts = collect_facts(fp.design(fp.Workload(domain, groups)))
        return Elements(render_page(facts, words[1]))

    hostile = [*HOSTILE, "$x$", "$\\frac{", "\"><script>alert('x')</script>"]
    found = elements(hostile)
    names = {tag if isinstance(tag, str) else tag[0] for tag in found.tags}
    harmless = elements([f"plain {i}" for i in range(len(hostile))])
    assert names == {tag if isinstance(tag, str) else tag[0] for tag in harmless.tags}
    assert not [
        a for tag in found.tags if not isinstance(tag, str) for a, _ in tag[1] if a[:2] == "on"
    ]
