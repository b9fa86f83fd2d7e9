"""The page in headless Chromium: it loads fast, fits, says nothing on the console, and works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from chromium import Page

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason=f"no browser: none of {', '.join(chromium.NAMES)} is installed"
)

DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_fits_and_works(browser: Page, page: Path) -> None:
    url = page.as_uri()
    for size, dark in ((DESKTOP, False), (PHONE, True)):
        browser.look(*size, dark)
        browser.open("about:blank")
        browser.open(url)
        browser.wait("document.querySelectorAll('.chart svg').length > 5")
        fits(browser, size[0])
        browser.value("location.hash = 'settings'")
        browser.wait("document.querySelector('tr.differ')")
        fits(browser, size[0])
        browser.value("location.hash = 'games'")
        browser.wait("document.querySelectorAll('.row').length >= 10")
        fits(browser, size[0])

        # A game: its page, the hostile text as text, tokens on demand.
        browser.value("location.hash = 'seed0/1/2'")
        browser.wait("document.querySelector('.game h2')?.textContent.includes('</script>')")
        assert browser.value("typeof hacked") == "undefined"
        assert browser.value("document.querySelector('.game img')") is None
        browser.value("location.hash = 'seed1/2/0'")
        browser.wait(
            "document.querySelector('.game .meta')?.textContent.includes('step 2, slot 0')"
        )
        browser.value("document.querySelector('.exact').open = true")
        browser.wait("document.querySelector('.exactly button')")
        browser.value("document.querySelector('.exactly button').click()")
        browser.wait("document.querySelectorAll('.tokens .own').length > 3")
        assert browser.value("document.querySelectorAll('.tokens .given').length") > 0
        fits(browser, size[0])

    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    assert browser.errors == []
    assert all(seen.startswith(("file:", "data:", "about:")) for seen in browser.requests)


def test_games_are_chosen_by_keys_filters_and_text(browser: Page, page: Path) -> None:
    browser.look(*DESKTOP)
    browser.open("about:blank")
    browser.open(f"{page.as_uri()}#games")
    browser.wait("document.querySelector('.count')?.textContent.startsWith('20 games')")
    browser.press("j")
    browser.wait("location.hash === '#seed0/1/0'")
    browser.press("j")
    browser.wait("location.hash === '#seed0/1/1'")
    browser.press("k")
    browser.wait("location.hash === '#seed0/1/0'")
    browser.value("document.querySelector('.filters details').open = true")
    browser.value(
        "(() => { const all = [...document.querySelectorAll('.filters select')];"
        "const reason = all.find((one) => [...one.options].some((o) => o.value === 'format'));"
        "reason.value = 'format'; reason.dispatchEvent(new Event('change')); })()"
    )
    browser.wait("document.querySelector('.count').textContent.startsWith('4 of 20 games')")
    browser.value("[...document.querySelectorAll('.count button')].at(-1).click()")
    browser.wait("document.querySelector('.count').textContent === '20 games'")

    # The word is in every prompt, and in no question, so only a look inside finds it.
    find = "document.querySelector('.find')"
    browser.value(f"{find}.value = 'propose'; {find}.dispatchEvent(new Event('input'))")
    browser.wait("document.querySelector('.count').textContent.startsWith('0 of 20')")
    browser.value("document.querySelector('.count button').click()")
    browser.wait("document.querySelector('.count').textContent === '20 games'")
    assert browser.errors == []


def fits(browser: Page, width: int) -> None:
    """Nothing is wider than the window."""
    assert browser.value("document.documentElement.scrollWidth") == width
