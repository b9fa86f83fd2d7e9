"""A game against a server that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from hf_tokenizers import byte_level
from recorded import SETUP, Recorded, by_trajectory
from scripted_model import completion, hang_up

import ssp_env
from ssp_env.envs import chat
from ssp_env.envs.chat import Conversation, play_chat
from ssp_env.errors import ConfigError, require_version
from ssp_env.tokenizers import HuggingFaceTokenizer


def play(url: str, seed: int, **more: Any) -> list[Conversation]:
    setup = more if "rules" in more else {**SETUP, **more}
    return asyncio.run(play_chat(url, "stub", seed, **setup))


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded(8)


def test_conversations_are_the_games_trajectories(recorded: Recorded) -> None:
    """Each game is the one that its seed says, and nothing of another is in it."""
    rules = recorded.rules

    async def at_once(url: str) -> list[list[Conversation]]:
        games = [play_chat(url, "stub", seed % 8, rules=rules) for seed in range(100)]
        return list(await asyncio.gather(*games))

    with recorded.server() as server:
        alone = [play(server.url, seed, rules=rules) for seed in range(8)]
        calls = len(server.bodies)
        together = asyncio.run(at_once(server.url))
    for i, talks in enumerate(together):
        assert [replace(t, choices=[]) for t in talks] == [
            replace(t, choices=[]) for t in alone[i % 8]
        ]
    played = [talk for talks in alone for talk in talks]
    expected = by_trajectory(recorded.games)
    assert [(t.role.value, t.attempt, t.reward) for t in played] == expected
    assert {reward for role, _, reward in expected} == {0.0, 1.0}
    assert {game.outcome.value for game in recorded.games} == {"valid", "invalid"}

    turns = sum(len(t.messages) // 2 for t in played)
    assert turns == calls == sum(len(t.choices) for t in played)
    assert all(t.failure is None for t in played)
    # The server's own words go back as they came, with what was dropped from the game.
    assert played[0].messages[1]["content"].endswith("and so on")


def test_one_role_is_played_against_a_script(recorded: Recorded) -> None:
    questions = [
        ssp_env.Question(id="1", text=game.question, answers=(game.truth.answer,), group="mine")
        for game in recorded.games
        if game.question and game.solver_reward == 1.0
    ][:1]
    given = Recorded(1)
    with given.server() as server:
        server.reply = recorded.next_turn
        (talk,) = play(server.url, 0, role="solver", questions=questions)
    assert (talk.role.value, talk.reward) == ("solver", 1.0)


def test_a_server_that_goes_away_makes_games_void(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "RETRIES", 0.0)
    with recorded.server() as server:
        url = server.url
    for talk in play(url, 0):
        assert (talk.reward, talk.failure) == (None, "engine")

    # In the middle of a game, one attempt of five alone.
    first = threading.Lock()

    def once(text: str) -> Any:
        solving = not text.startswith("propose") and first.acquire(blocking=False)
        return hang_up if solving else recorded.next_turn(text)

    seed = next(i for i, game in enumerate(recorded.games) if game.solver_reward == 1.0)
    with recorded.server() as server:
        server.reply = once
        talks = play(server.url, seed)
    assert [t.failure for t in talks].count("engine") == 1
    assert [t.reward for t in talks].count(1.0) == 4


@pytest.mark.parametrize(
    ("reply", "kind"),
    [((404, b"no such model"), ConfigError), ((200, b"<html>"), None), ((400, b"{}"), None)],
)
def test_a_wrong_address_is_said_and_a_strange_reply_is_an_outage(
    recorded: Recorded, reply: Any, kind: Any
) -> None:
    with recorded.server() as server:
        server.reply = lambda text: reply
        if kind is not None:
            with pytest.raises(kind, match="no such model"):
                play(server.url, 0)
        else:
            assert [t.failure for t in play(server.url, 0)] == ["engine"]


def test_a_message_without_text_is_a_turn_that_says_nothing(recorded: Recorded) -> None:
    """As of a model whose thought reached its limit, behind a server that keeps thoughts apart."""
    with recorded.server() as server:
        server.reply = lambda text: (200, completion(None))
        (talk,) = play(server.url, 0)
    assert (talk.reward, talk.failure) == (0.0, None)


def test_the_servers_chat_template_is_the_only_one(recorded: Recorded) -> None:
    """A tokenizer that has one too frames the game's prompt, and not the message."""
    framed = HuggingFaceTokenizer(byte_level(chat=True))
    with recorded.server() as server:
        server.reply = lambda text: "I have no question."
        for tokenizer in (framed, "bytes"):
            play(server.url, 0, tokenizer=tokenizer)
        own, plain = (body["messages"] for body in server.bodies)
    assert own == plain


def test_a_partner_of_another_version_is_refused_with_the_one_that_works() -> None:
    with pytest.raises(ConfigError, match=r"works with 0\.1\.0; run: pip install 'numpy==0\.1\.0'"):
        require_version("numpy", "0.1.0")
