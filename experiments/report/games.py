"""Games for the page: a row of each for the list, and the parts that its template shows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ssp_env.errors import SSPError
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.replay import SavedGame
from ssp_env.types import Document

_OUTCOME = ("slot", "outcome", "reason", "origin", "hops")
ROW = (*_OUTCOME, "reward", "rate", "right", "judged", "answer", "question")
"""Columns of the list. ``right`` of the ``judged`` attempts were right."""
DOUBTS = 6
"""Shades of tokens, from likely to unlikely."""


def row(game: GameRecord) -> list[Any]:
    """The game's row of the list."""
    judged = [attempt for attempt in game.attempts if attempt.outage is None]
    return [
        game.slot,
        game.outcome.value,
        game.reason,
        game.origin,
        game.hops,
        game.proposer_reward,
        game.solve_rate,
        sum(bool(attempt.verdict and attempt.verdict.correct) for attempt in judged),
        len(judged),
        game.answer,
        (game.question or "")[:110],
    ]


class Block(NamedTuple):
    """A piece of what the policy wrote: the text of a tag, or text outside of any."""

    kind: str
    text: str
    closed: bool = True


class Turn(NamedTuple):
    """A turn of the policy, and what its search found."""

    blocks: list[Block]
    found: tuple[Document, ...] | None


class Token(NamedTuple):
    """A token as it is shown."""

    text: str
    own: bool
    """The policy wrote it: its loss mask is 1."""
    doubt: int
    """Shade, by how unlikely it was."""
    title: str


def blocks(text: str, tags: Tags) -> list[Block]:
    """Cuts what the policy wrote at its tags."""
    kinds = {
        tags.think: "thinks",
        tags.search: "searches",
        tags.question: "asks",
        tags.answer: "answers",
        tags.information: "forges",
        **dict.fromkeys(tags.also, "notes"),
    }
    names = "|".join(map(re.escape, kinds))
    found, at = [], 0
    for match in re.finditer(rf"<({names})>(.*?)(</\1>|$)", text, re.DOTALL):
        found.append(Block("plain", text[at : match.start()].strip()))
        found.append(Block(kinds[match[1]], match[2].strip(), bool(match[3])))
        at = match.end()
    found.append(Block("plain", text[at:].strip()))
    return [block for block in found if block.kind != "plain" or block.text]


def turns(play: TrajectoryRecord, tags: Tags) -> list[Turn]:
    """The turns of a trajectory, each with the documents that its search found."""
    searches = iter(play.searches)
    found = []
    for segment in play.segments:
        if segment.by == "policy":
            parts = blocks(segment.text, tags)
            asked = any(block.kind == "searches" for block in parts)
            search = next(searches, None) if asked else None
            found.append(Turn(parts, search.documents if search else None))
    return found


def alike(plays: list[TrajectoryRecord]) -> Iterator[tuple[str, TrajectoryRecord]]:
    """Attempts that were word for word the same, once each, with their numbers."""
    groups: dict[str, list[int]] = {}
    for number, play in enumerate(plays, start=1):
        wrote = [segment.text for segment in play.segments if segment.by == "policy"]
        key = repr((wrote, play.searches, play.ending, play.verdict, play.reward, play.outage))
        groups.setdefault(key, []).append(number)
    for numbers in groups.values():
        yield ", ".join(map(str, numbers)), plays[numbers[0] - 1]


def materials(game: GameRecord) -> list[tuple[Document, str | None]]:
    """Documents that verification read, in its order, with the origin of those that are noise."""
    noise = {item.document.id: item for item in game.noise}
    known = {item.document.id: item.document for item in game.noise}
    searches = [search for play in game.trajectories for search in play.searches]
    known |= {document.id: document for search in searches for document in search.documents}
    return [
        (
            known.get(name) or Document(name, name, ""),
            noise[name].origin if name in noise and name not in game.evidence else None,
        )
        for name in game.materials or ()
    ]


def tokens(play: TrajectoryRecord, pieces: Any) -> Iterator[Token]:
    """The tokens of a trajectory with loss mask and log-probabilities.

    Args:
        play: recorded with its tokens.
        pieces: bytes of each token id, or ``None`` where the tokenizer cannot be opened.
    """
    for segment in play.segments:
        logprobs = segment.logprobs or ()
        for place, id_ in enumerate(segment.ids or ()):
            text = f"⟨{id_}⟩" if pieces is None else pieces[id_].decode("utf-8", "replace")
            if segment.by != "policy":
                yield Token(text, False, 0, f"id {id_}; loss mask 0")
                continue
            logprob = logprobs[place]
            doubt = int(min(DOUBTS - 1, -logprob * DOUBTS / 3))
            chance = f"log-probability {logprob:.4f} (p = {math.exp(logprob):.3g})"
            yield Token(text, True, doubt, f"id {id_}; loss mask 1; {chance}")


def pieces_of(saved: SavedGame) -> Any:
    """The bytes of each token id; ``None`` where the tokenizer cannot be opened here."""
    try:
        return saved.rules.tokenizer.open().pieces
    except SSPError:
        return None
