"""The page in a headless browser: two widths, by keyboard, and as a screen reader finds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fitplug_explore.access import open_browser
from tests.explore.conftest import Server
from tests.helpers.browser import CHROMIUM, Browser, wait_for
from tests.helpers.command_line import COST, SPEC

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

DESIGNED = """
    document.querySelectorAll('.cost:not([hidden])').length == {variants}
    && !document.querySelector('.cost:not([hidden]).stale')
    && [...document.querySelectorAll('.cost .number')].every((n) => n.textContent != '…')
"""
FOCUS = "(document.activeElement.closest('fieldset')?.querySelector('legend').textContent ?? '')"
FOCUSED = f"""{FOCUS} + '/' + (document.activeElement.ariaLabel
    ?? document.activeElement.labels?.[0]?.textContent.split('\\n')[0].trim()
    ?? document.activeElement.textContent.trim())"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def open_page(browser: Browser, server: Server, width: int, *, is_dark: bool = False) -> None:
    browser.complaints.clear()
    browser.open(server.url, width, is_dark=is_dark)
    wait_designed(browser)


def wait_designed(browser: Browser, variants: int = 1) -> None:
    browser.wait(DESIGNED.format(variants=variants))


def read(browser: Browser, selector: str) -> str:
    return str(browser.evaluate(f"document.querySelector({selector!r}).textContent"))


def focus_on(browser: Browser, selector: str) -> None:
    browser.evaluate(f"document.querySelector({selector!r}).focus()")


def enter(browser: Browser, selector: str, text: str) -> None:
    """Type a number over that of a field, as from a keyboard."""
    browser.evaluate(
        f"(() => {{ const f = document.querySelector({selector!r}); f.focus(); f.select(); }})()"
    )
    browser.type(text)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("is_dark", [False, True])
def test_everything_fits_and_can_be_read(
    browser: Browser, server: Server, width: int, is_dark: bool
) -> None:
    open_page(browser, server, width, is_dark=is_dark)
    assert browser.evaluate("location.href") == f"{server.origin}/"  # without the token
    browser.evaluate("document.querySelector('#compare').click()")
    wait_designed(browser, 2)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    faint = browser.evaluate(CONTRAST)
    assert faint == []
    assert browser.complaints == []  # no error, and nothing that the policy forbids


def test_a_file_that_redirects_opens_the_page(
    browser: Browser, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with open_browser(server.url):
        browser.send("Network.clearBrowserCookies")
        browser.open(*opened)
        wait_designed(browser)
    assert browser.evaluate("location.href") == f"{server.origin}/"


CONTRAST = """
(() => {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const brightness = (c) => c.map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] !== 0) return c.slice(0, 3);
    }
  };
  const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll('body *:not(option)')]
    .filter((e) => e.checkVisibility() && hasText(e)).map((e) => {
      const both = [parse(getComputedStyle(e).color).slice(0, 3), ground(e)].map(brightness);
      const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
      return [e.tagName, e.textContent.slice(0, 20), ratio];
    }).filter(([, , ratio]) => ratio < 4.5);
})()
"""
"""Texts with less contrast than WCAG 2.2 asks for (1.4.3)."""


def test_a_changed_target_changes_the_cost_and_is_spoken(browser: Browser, server: Server) -> None:
    open_page(browser, server, 1280)
    assert float(read(browser, ".number")) == pytest.approx(COST, rel=0.01)
    enter(browser, "#group-0 .value input", "7.5")
    browser.wait(
        f"{DESIGNED.format(variants=1)}"
        f"&& Number(document.querySelector('.number').textContent) < {COST}"
    )
    rho = read(browser, ".number")
    browser.wait(f"document.querySelector('#spoken').textContent.startsWith('rho {rho}, epsilon')")
    assert "of rho" in read(browser, "#group-0 .price")
    assert "A 10% larger std saves" in read(browser, "#group-0 .saving")
    assert read(browser, ".ledger p").startswith("Ledger: 0 of 100 spent, this plan 0.0")
    enter(browser, "#group-0 .value input", "0")
    browser.wait("!document.querySelector('#group-0 .fault').hidden")
    assert read(browser, "#group-0 .fault") == "Std must be above zero. Enter a larger number."
    assert browser.evaluate("document.querySelector('#group-0 .value input').ariaInvalid") == "true"
    browser.evaluate("document.querySelector('.reset').click()")
    wait_designed(browser)
    assert browser.evaluate("document.querySelector('#group-0 .value input').value") == "5"


def test_another_kind_keeps_the_accuracy(browser: Browser, server: Server) -> None:
    """std to margin to percentage: quantiles of the page and of fitplug agree."""
    open_page(browser, server, 1280)
    rho = read(browser, ".number")
    for kind, key in (("moe", "9.8"), ("relative", "0.98"), ("std", "5")):
        browser.evaluate(
            "(() => { const s = document.querySelector('#group-0 select');"
            f"s.value = '{kind}'; s.dispatchEvent(new Event('change')); }})()"
        )
        wait_designed(browser)
        assert float(read(browser, ".number")) == pytest.approx(float(rho), rel=2e-3)
        shown = browser.evaluate("document.querySelector('#group-0 .value input').value")
        assert float(shown) == pytest.approx(float(key), rel=1e-3)


def test_all_is_reached_by_keyboard_in_the_order_of_the_page(
    browser: Browser, server: Server
) -> None:
    open_page(browser, server, 1280)
    browser.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(14):
        browser.press("Tab")
        reached.append(browser.evaluate(FOCUSED))
    assert reached == [
        "/Compare two variants",
        "/Write this spec…",
        "/Reset to the spec",
        "ages/Target",
        "ages/Std",
        "ages/Std of ages",
        "income/Target",
        "income/Margin ±",
        "income/Confidence %",
        "income/Margin ± of income",
        "total/Target",
        "total/Std",
        "total/Std of total",
        "/" + browser.evaluate("document.body.textContent.trim()"),
    ]
    focus_on(browser, "#group-2 .slider")
    for _ in range(5):
        browser.press("ArrowRight")
    browser.wait("document.querySelector('#group-2 .value input').value == '3.37'")
    wait_designed(browser)
    assert browser.evaluate(FOCUSED) == "total/Std of total"  # the focus stays where it is


def test_two_variants_and_their_differences(browser: Browser, server: Server) -> None:
    open_page(browser, server, 1280)
    focus_on(browser, "#compare")
    browser.press("Enter")
    wait_designed(browser, 2)
    enter(browser, "#group-0 [data-variant=B] .value input", "10")
    browser.wait("document.querySelectorAll('.differs').length == 1")
    assert read(browser, "#group-0 [data-variant=B] .difference") == "▲ 2 times looser than A"
    assert "less rho than A" in read(browser, ".cost[data-variant=B] h2")
    assert read(browser, "#group-0 [data-variant=B] legend") == "ages, variant B"
    first = float(read(browser, ".cost[data-variant=A] .number"))
    assert first == pytest.approx(COST, rel=0.01)


def test_what_a_screen_reader_finds(browser: Browser, server: Server) -> None:
    open_page(browser, server, 390)
    tree = browser.read_tree()
    for entry in (
        ("heading", "Targets and their privacy cost"),
        ("heading", "Privacy cost"),
        ("heading", "Targets"),
        ("heading", "ages"),
        ("group", "ages"),
        ("combobox", "Target"),
        ("spinbutton", "Std"),
        ("slider", "Std of ages"),
        ("spinbutton", "Margin ±"),
        ("spinbutton", "Confidence %"),
        ("button", "Write this spec…"),
    ):
        assert entry in tree
    roles = [role for role, _ in tree]
    assert "main" in roles
    assert "status" in roles
    named = {"button", "combobox", "spinbutton", "slider", "textbox", "group"}
    assert all(name for role, name in tree if role in named)


def test_a_spec_is_written_and_not_over_another(browser: Browser, server: Server) -> None:
    open_page(browser, server, 1280)
    enter(browser, "#group-2 .value input", "4")
    focus_on(browser, ".write")
    browser.press("Enter")
    browser.wait("document.querySelector('#writing').open")
    assert browser.evaluate("document.activeElement.id") == "file-name"
    browser.type("by-page.toml")
    browser.press("Enter")
    browser.wait("document.querySelector('#writing-said').textContent.startsWith('Wrote by-page')")
    written = server.folder / "by-page.toml"
    wait_for(written.exists, 10)
    assert written.read_text() == (server.folder / "spec.toml").read_text().replace("3.0", "4.0")
    written.write_text(SPEC)
    enter(browser, "#file-name", "by-page.toml")
    browser.press("Enter")
    browser.wait("!document.querySelector('#do-replace').hidden")
    assert read(browser, "#writing-said") == "by-page.toml already exists."
    assert written.read_text() == SPEC
    focus_on(browser, "#do-replace")
    browser.press("Enter")
    browser.wait("document.querySelector('#do-replace').hidden")
    wait_for(lambda: "std = 4.0" in written.read_text(), 10)
    browser.press("Escape")
    browser.wait("!document.querySelector('#writing').open")
    assert browser.evaluate(FOCUSED) == "/Write this spec…"
    written.unlink()


def test_over_budget_is_a_problem_and_one_step_to_fix_it(browser: Browser, server: Server) -> None:
    open_page(browser, server, 1280)
    enter(browser, "#group-2 .value input", "0.05")
    browser.wait("document.querySelector('.is-over') !== null")
    assert read(browser, ".over").startswith("Over the ledger's remaining budget of 100 by 1")
    focus_on(browser, ".fit")
    browser.press("Enter")
    browser.wait(f"!document.querySelector('.is-over') && {DESIGNED.format(variants=1)}")
    assert 99 < float(read(browser, ".number")) <= 100
