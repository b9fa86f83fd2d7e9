"""The OpenEnv servers, validated by OpenEnv's own command and played by a client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded import SETUP

import ssp_env
from ssp_env import Rules
from ssp_env.envs.setup import set_up

pytest.importorskip("openenv", reason="openenv is not installed; run: make integrations")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "integrations"
SESSIONS = 200
COMMAND = str(Path(sys.executable).with_name("openenv"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the world ``mini``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{FOLDER}", "SSP_SETUP": json.dumps(SETUP)}
    env["SSP_SESSIONS"] = str(SESSIONS)
    command = [sys.executable, "-m", "ssp_openenv.server.app", "--port", str(port)]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out) as server:
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                assert server.poll() is None, log.read_text()
                try:
                    httpx.get(f"{address}/health")
                    break
                except httpx.ConnectError:
                    time.sleep(0.2)
            yield address
        finally:
            server.terminate()


def script(seed: int, role: str) -> tuple[list[str], list[str], float]:
    """What our own interface shows in a game, what a script writes, and what that earns."""
    game = ssp_env.TextRole(role, rules=RULES)
    text, _ = game.reset(seed)
    player, shown, written, reward = ssp_env.scripted_player(RULES), [text], [], 0.0
    while not game._driver.over:
        written.append(player.write(game._driver.turn))
        text, reward, *_ = game.step(written[-1])
        shown.append(text)
    return shown, written, reward


RULES = set_up(SETUP).rules  # type: ignore[arg-type]


async def play(url: str, seed: int, role: str, turns: list[str]) -> tuple[list[str], Any]:
    """A game by their client: what it shows, and the last result."""
    from ssp_openenv import SspAction, SspEnv

    async with SspEnv(base_url=url) as client:
        result = await client.reset(seed=seed, split=role)
        shown = [result.observation.text]
        for turn in turns:
            assert not result.done
            result = await client.step(SspAction(text=turn))
            shown.append(result.observation.text)
        assert (await client.state()).step_count == len(turns)
    return shown, result


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_a_client_plays_our_game(url: str, role: str) -> None:
    shown, written, reward = script(3, role)
    seen, result = asyncio.run(play(url, 3, role, written))
    assert (seen, result.reward, result.done) == (shown, reward, True)
    assert result.observation.metadata["outcome"] == "valid"


def test_their_validation_passes(url: str) -> None:
    static = [COMMAND, "validate", str(FOLDER / "ssp_openenv"), "--level", "static", "--skip-build"]
    for command in (static, [COMMAND, "validate", "--url", url]):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "FAIL" not in ran.stdout


def test_two_hundred_sessions_keep_apart(url: str) -> None:
    """All that the server may have, at once; some leave in mid-game, and all are free again."""
    from ssp_openenv import SspAction, SspEnv

    scripts = {seed: script(seed, "solver") for seed in range(8)}

    async def one(i: int, opened: asyncio.Barrier) -> None:
        shown, written, reward = scripts[i % 8]
        async with SspEnv(base_url=url) as client:
            result = await client.reset(seed=i % 8)
            assert result.observation.text == shown[0]
            await opened.wait()
            if i == 0:
                with pytest.raises(RuntimeError, match="CAPACITY"):
                    async with SspEnv(base_url=url) as another:
                        await another.reset(seed=0)
            await opened.wait()
            if i % 10 == 9:
                return
            for turn, text in zip(written, shown[1:], strict=True):
                result = await client.step(SspAction(text=turn))
                assert result.observation.text == text
            assert (result.reward, result.done) == (reward, True)

    async def all_of_them() -> None:
        opened = asyncio.Barrier(SESSIONS)
        await asyncio.gather(*(one(i, opened) for i in range(SESSIONS)))

    for _ in range(2):
        asyncio.run(all_of_them())
        time.sleep(1)


def test_mistakes_are_errors_in_their_form(url: str) -> None:
    with pytest.raises(RuntimeError, match="referee"):
        asyncio.run(play(url, 3, "referee", []))


def test_a_search_server_that_is_gone_is_no_reward_and_a_game_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, without_search: Callable[[Rules], None]
) -> None:
    from ssp_openenv.models import SspAction

    monkeypatch.setenv("SSP_SETUP", json.dumps(SETUP))
    from ssp_openenv.server import app

    env = app.SspEnvironment()
    with pytest.raises(IndexError):
        env.get_task("solver", app.SEEDS)
    env.reset(seed=0)
    without_search(app.RULES)
    last = env.step(SspAction(text="<search> Tatal </search>"))
    assert (last.reward, last.done, last.metadata["outcome"]) == (None, True, "void")
