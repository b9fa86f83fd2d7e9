"""The page in headless Chromium: each view shows what it should, and the console stays silent."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from threading import Thread

import pytest
from small_runs import GAMES, make_run

from experiments.report.server import Viewer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def shown(url: str, profile: Path) -> str:
    """The page's elements once its scripts are done."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    options += [f"--user-data-dir={profile}", "--window-size=390,844"]
    command = [str(CHROMIUM), *options, "--virtual-time-budget=5000", "--dump-dom", url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "CONSOLE" not in result.stderr
    body = result.stdout[result.stdout.index("<body") :]
    return re.sub(r"<script\b.*?</script>", "", body, flags=re.DOTALL)


def test_every_view_of_a_page(page: Path, tmp_path: Path) -> None:
    # Charts are drawn in animation frames, which a busy machine may not come to in virtual time.
    views = (shown(page.as_uri(), tmp_path / str(number)) for number in range(4))
    overview = next(view for view in views if view.count("<canvas") > 5)
    assert "2 seeds" in overview

    games = shown(f"{page.as_uri()}#games", tmp_path)
    assert games.count('<a class="row') == 2 * 2 * GAMES
    assert f"{2 * 2 * GAMES} games" in games
    assert 'class="differ"' in shown(f"{page.as_uri()}#settings", tmp_path)

    # Hostile text is text.
    game = shown(f"{page.as_uri()}#seed0/1/2", tmp_path)
    assert "why &lt;/script&gt;&lt;script&gt;window.hacked" in game
    assert "<img" not in game
    assert game.count('<span class="own d') > 3


def test_a_run_in_progress(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2, finished=False)
    with Viewer([str(run.path)], "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert ">live<" in shown(url, tmp_path / "profile")
        game = shown(f"{url}#run/2/0", tmp_path / "profile")
        assert "step 2, slot 0" in game
        assert game.count('<a class="row') == 2 * GAMES
        server.shutdown()
        thread.join()
