"""The page in headless Chromium: it fits, is small, says nothing on the console, and works."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from threading import Thread

import chromium
import pytest
from chromium import Page
from small_runs import GAMES, add_step, make_run

from experiments.report.server import Viewer, open_server

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason=f"no browser: none of {', '.join(chromium.NAMES)} is installed"
)

DESKTOP, PHONE = (1280, 900), (390, 844)
LIGHT, DARK = "rgb(251, 250, 247)", "rgb(22, 24, 27)"
LOOKS = [*product((DESKTOP, PHONE), (False, True))]
"""Sizes of the window, and whether its user prefers dark colours."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_fits_and_works(browser: Page, page: Path) -> None:
    assert page.stat().st_size < 5_000_000
    for size, dark in LOOKS:
        tour(browser, page.as_uri(), "seed1", size, dark)
        browser.value("location.hash = 'settings'")
        browser.wait("document.querySelector('tr.differ')")

        # Hostile text is text.
        browser.value("location.hash = 'seed0/1/2'")
        browser.wait("document.querySelector('.game h2')?.textContent.includes('</script>')")
        assert browser.value("typeof hacked") == "undefined"
        assert browser.value("document.querySelector('.game img')") is None

    assert all(seen.startswith(("file:", "data:", "about:")) for seen in browser.requests)


def test_a_run_in_progress_is_shown_and_followed(browser: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, finished=False)
    asked = len(browser.requests)
    with open_server(Viewer([str(run.path)]), "127.0.0.1", 0) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        for size, dark in LOOKS:
            tour(browser, url, "run", size, dark)

        browser.value("location.hash = 'games'")
        browser.wait(f"document.querySelectorAll('.row').length === {2 * GAMES}")
        add_step(run, 3)
        browser.wait(f"document.querySelectorAll('.row').length === {3 * GAMES}")
        browser.open("about:blank")  # it asks for news no more
        server.shutdown()
        thread.join()

    assert browser.errors == []
    assert all(seen.startswith((url, "data:", "about:")) for seen in browser.requests[asked:])


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

    # Twice before the browser has told of the first new address.
    key = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))"
    browser.value(f"{key} && {key}")
    browser.wait("location.hash === '#seed0/1/2'")
    browser.value("document.querySelector('.filters').open = true")
    browser.value(
        "(() => { const reason = document.querySelector('.filters select[name=reason]');"
        "reason.value = 'format'; reason.dispatchEvent(new Event('change')); })()"
    )
    browser.wait("document.querySelector('.count').textContent === '4 of 20 games'")
    find = "document.querySelector('.find')"
    browser.value(f"{find}.value = 'no such word'; {find}.dispatchEvent(new Event('input'))")
    browser.wait("document.querySelector('.count').textContent === '0 of 20 games'")
    assert browser.errors == []


def tour(browser: Page, url: str, run: str, size: tuple[int, int], dark: bool) -> None:
    """Opens the page and looks at each of its views, a game's tokens included: all of it fits, in
    the colours that are preferred, and without a complaint."""
    browser.look(*size, dark)
    browser.open("about:blank")
    browser.open(url)
    browser.wait("document.querySelectorAll('.chart canvas').length > 5")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == (
        DARK if dark else LIGHT
    )
    fits(browser, size[0])
    table = "document.querySelector('.scroll')"
    assert browser.value(f"{table}.scrollWidth <= {table}.clientWidth"), "accuracies are cut off"

    browser.value("location.hash = 'settings'")
    browser.wait("document.body.dataset.view === 'settings'")
    fits(browser, size[0])
    browser.value("location.hash = 'games'")
    browser.wait("document.querySelectorAll('.row').length >= 10")
    fits(browser, size[0])

    browser.value(f"location.hash = '{run}/2/0'")
    browser.wait("document.querySelector('.game .meta')?.textContent.includes('step 2, slot 0')")
    browser.value("document.querySelector('.exact').open = true")
    browser.wait("document.querySelectorAll('.tokens .own').length > 3")
    assert browser.value("document.querySelectorAll('.tokens .given').length") > 0
    fits(browser, size[0])
    assert browser.errors == []


def fits(browser: Page, width: int) -> None:
    """Nothing is wider than the window."""
    assert browser.value("document.documentElement.scrollWidth") == width
