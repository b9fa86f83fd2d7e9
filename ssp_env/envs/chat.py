"""A game as conversations: its turns are written by whoever answers chat messages, such as a
trainer's gateway that speaks OpenAI's protocol and records tokens itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Unpack

from ssp_env.envs.driver import GameDriver
from ssp_env.envs.setup import Setup, set_up
from ssp_env.errors import ConfigError, ServiceError, TransientServiceError
from ssp_env.game.game import Game
from ssp_env.game.rules import waits_for_others
from ssp_env.game.trajectory import Trajectory
from ssp_env.net import OVERLOADED, by_proxy, check_url, http_client, retried
from ssp_env.players import Player
from ssp_env.types import Question, Role

Write = Callable[[Trajectory, str], Awaitable[str]]
"""Writes a turn, given its trajectory and the text that its writer has not seen yet; raises
``ServiceError`` if that fails for good."""

RETRIES = 30.0
"""Seconds in which calls that fail are made again."""


@dataclass(frozen=True)
class Conversation:
    """A trajectory as messages: prompt and search results by ``user``, turns by ``assistant``; a
    set's system message and worked examples come first."""

    role: Role
    attempt: int
    """Index of its attempt in the game, from 0 up; -1 where it is none."""
    messages: list[dict[str, str]]
    reward: float | None
    """``None`` if there is nothing to learn from it: it is void, or verifies a question."""
    failure: str | None
    """Service whose outage made it void."""
    choices: list[dict[str, Any]] = field(default_factory=list)
    """The server's replies as they came, one for each turn, with all that it told of tokens."""


async def play_turns(driver: GameDriver, write: Write) -> None:
    """Plays a game that has begun to its end; turns that are open at the same time are written
    together. A turn whose writer raises ``ServiceError`` is void."""
    rules, shown = driver.rules, dict[int, int]()
    remote = waits_for_others(rules)

    async def written(trajectory: Trajectory) -> str | ServiceError:
        start = shown.get(trajectory.key, 0)
        try:
            # Whoever takes messages has a chat template of its own.
            return await write(trajectory, rules.prompts.unframed(trajectory.text_from(start)))
        except ServiceError as error:
            return error

    while not driver.over:
        turns = driver.batch.pending()
        for trajectory, text in zip(turns, await asyncio.gather(*map(written, turns)), strict=True):
            # An outage of another turn may have ended it.
            if isinstance(text, ServiceError):
                driver.batch.void([trajectory], text)
            elif not trajectory.done:
                trajectory.feed_text(text)
                shown[trajectory.key] = len(trajectory.ids)

        # Other games of this loop go on while a server is asked.
        if remote:
            await asyncio.to_thread(driver.advance)
        else:
            driver.advance()


def reward_of(game: Game, trajectory: Trajectory) -> float | None:
    """Pay of a trajectory of a finished game; ``None`` if nothing is to be learnt from it."""
    if trajectory is game.proposer:
        return game.proposer_reward
    number = game.number_of(trajectory)
    return game.attempts[number].reward if number >= 0 else None


def failure_of(game: Game, trajectory: Trajectory) -> str | None:
    """Service whose outage made a trajectory void, alone or with its game."""
    number = game.number_of(trajectory)
    outage = game.outage or (game.attempts[number].outage if number >= 0 else None)
    return None if outage is None else outage.service


async def play_chat(
    base_url: str,
    model: str,
    seed: int | None = None,
    *,
    api_key: str | None = None,
    sampling: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    role: str | None = None,
    other: Player | None = None,
    questions: Sequence[Question] | None = None,
    **setup: Unpack[Setup],
) -> list[Conversation]:
    """Plays a game against a server that speaks OpenAI's chat protocol.

    Each trajectory is a conversation of its own. Text of a reply after its first complete action is
    dropped; ``sampling={"stop": ["</search>", "</question>", "</answer>"],
    "include_stop_str_in_output": True}`` keeps a server such as vLLM from writing it.

    Args:
        base_url: root of the API, to which ``/chat/completions`` is appended.
        model: its name there.
        seed: of the game.
        api_key: sent as bearer token.
        sampling: further fields of each request, such as ``temperature`` or ``logprobs``.
        timeout: seconds for one call; failed ones are repeated for half a minute.
        role: play this role alone, and let ``other`` play the rest; both when not given. This and
            what follows as of :class:`~ssp_env.envs.turns.TextRole`.

    Returns:
        The conversations of the policy, in the order in which they began. If the server stays away,
        they are void: without reward, and ``failure`` is ``"engine"``.
    """
    check_url("base_url", base_url, "http://127.0.0.1:8000/v1")
    driver = GameDriver(set_up(setup).rules, role, other, questions)
    driver.reset(seed)
    said = defaultdict[int, list[dict[str, str]]](list)
    choices = defaultdict[int, list[dict[str, Any]]](list)

    async with http_client(base_url, timeout=timeout) as client:

        async def write(trajectory: Trajectory, text: str) -> str:
            messages = said[trajectory.key]
            prompt = [{"role": "user", "content": text}]
            # The first text is a prompt, which may have a system message and worked examples.
            messages += prompt if messages else driver.rules.prompts.chat(text)
            body = {"model": model, "messages": messages, **(sampling or {})}
            choice = await retried(lambda: _complete(client, base_url, api_key, body), RETRIES)
            content: str = choice["message"]["content"] or ""
            # Sent back as it came, so that a gateway finds the tokens that it has recorded.
            messages.append({"role": "assistant", "content": content})
            choices[trajectory.key].append(choice)
            return content

        await play_turns(driver, write)

    game = driver.game
    return [
        Conversation(
            t.role,
            game.number_of(t),
            said[t.key],
            reward_of(game, t),
            failure_of(game, t),
            choices[t.key],
        )
        for t in game.trajectories()
        if driver.role in (None, t.role)
    ]


async def _complete(
    client: Any, base_url: str, api_key: str | None, body: dict[str, Any]
) -> dict[str, Any]:
    """The first choice of one chat completion."""
    import httpx

    head = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        url = f"{base_url.rstrip('/')}/chat/completions"
        reply = await client.post(url, json=body, headers=head)
    except httpx.HTTPError as error:
        what = f"{base_url}: {error!r}{by_proxy(base_url)}"
        raise TransientServiceError("engine", what) from error

    status, text = reply.status_code, reply.text
    if api_key:  # some servers quote it
        text = text.replace(api_key, "...")
    what = f"HTTP {status}: {text[:200]!r}{by_proxy(base_url)}"
    if status in (401, 403, 404):
        fix = f"{what}; see that address, model and key are the server's"
        raise ConfigError("base_url", base_url, fix)
    if status in OVERLOADED or status >= 500:
        raise TransientServiceError("engine", f"{base_url}: {what}")
    with suppress(ValueError, LookupError, TypeError):
        choice = reply.json()["choices"][0]
        if status == 200 and isinstance(choice["message"]["content"], str | None):
            return dict(choice)
    raise ServiceError("engine", f"{base_url}: no chat completion with a text: {what}")
