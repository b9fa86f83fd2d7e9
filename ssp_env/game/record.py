"""What is kept of a game: plain data, complete enough to see why everything happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from ssp_env.game.game import Game
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Analysis


@dataclass(frozen=True)
class SegmentRecord:
    """A run of tokens by one author."""

    by: str
    """``prompt``, ``policy`` or ``environment``."""
    text: str
    tokens: int


@dataclass(frozen=True)
class TrajectoryRecord:
    """One trajectory, as text."""

    role: str
    ending: str
    """How it ended; ``pending`` while it goes on."""
    result: str | None
    segments: tuple[SegmentRecord, ...]
    searches: tuple[dict[str, Any], ...]
    """Query and ids of what was found, for each call."""
    verdict: dict[str, Any] | None = None
    reward: float | None = None

    @property
    def policy_tokens(self) -> int:
        """How many tokens the policy wrote."""
        return sum(segment.tokens for segment in self.segments if segment.by == "policy")


@dataclass(frozen=True)
class GameRecord:
    """One game. Everything in it follows from seeds and weights; no time, no random id."""

    slot: int
    group: int
    origin: str
    outcome: str
    reason: str | None
    answer: str
    aliases: tuple[str, ...]
    question: str | None
    asked_searches: int
    evidence: tuple[str, ...]
    """Ids of what the proposer retrieved."""
    noise: tuple[dict[str, str], ...]
    """Id and origin of each noise document."""
    verification: dict[str, Any] | None
    closed_book: dict[str, Any] | None
    """The verdict on the solver's answer from memory, where that gate is on."""
    solve_rate: float | None
    """Share of right answers in a valid game."""
    solver_reward: float | None
    """Mean reward of the attempts of a valid game."""
    proposer_reward: float | None
    hops: int | None
    """What the world says of the question; ``None`` when it cannot tell."""
    truly_correct: bool | None
    """Whether the world counts the ground truth among the question's right answers; ``None`` when
    it cannot tell."""
    right_answers: tuple[str, ...] | None
    """All right answers in the world, at most ten; ``None`` when it cannot tell."""
    weights_version: int
    trajectories: tuple[TrajectoryRecord, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return asdict(self)


def record_game(game: Game, rules: Rules, weights_version: int = 0) -> GameRecord:
    """The record of a game, whatever its outcome.

    Args:
        game: any outcome, a pending one included.
        rules: what it was played by.
        weights_version: which weights the policy had.
    """
    analysis: Analysis | None = rules.world.analyse(game.question) if game.question else None
    plays = [
        _trajectory(t) for t in (game.proposer, game.verifier, game.closed_book) if t is not None
    ]
    plays.extend(
        _trajectory(
            attempt.trajectory, asdict(attempt.verdict) if attempt.verdict else None, attempt.reward
        )
        for attempt in game.attempts
    )
    return GameRecord(
        slot=game.slot,
        group=game.group,
        origin=game.origin.value,
        outcome=game.outcome.value,
        reason=game.reason,
        answer=game.truth.answer,
        aliases=game.truth.aliases,
        question=game.question,
        asked_searches=game.asked_searches,
        evidence=tuple(document.id for document in game.evidence),
        noise=tuple({"id": item.document.id, "origin": item.origin} for item in game.noise),
        verification=asdict(game.verification) if game.verification is not None else None,
        closed_book=asdict(game.closed_book_verdict)
        if game.closed_book_verdict is not None
        else None,
        solve_rate=game.solve_rate,
        solver_reward=game.solver_reward,
        proposer_reward=game.proposer_reward,
        hops=analysis.hops if analysis is not None else None,
        truly_correct=game.truth.answer in analysis.answers if analysis is not None else None,
        right_answers=tuple(sorted(analysis.answers)[:10]) if analysis is not None else None,
        weights_version=weights_version,
        trajectories=tuple(plays),
    )


def _trajectory(
    trajectory: Trajectory, verdict: dict[str, Any] | None = None, reward: float | None = None
) -> TrajectoryRecord:
    return TrajectoryRecord(
        role=trajectory.role.value,
        ending="pending" if trajectory.ending is None else trajectory.ending.value,
        result=trajectory.result,
        segments=tuple(_segments(trajectory)),
        searches=tuple(
            {"query": search.query, "found": [document.id for document in search.documents]}
            for search in trajectory.searches
        ),
        verdict=verdict,
        reward=reward,
    )


def _segments(trajectory: Trajectory) -> list[SegmentRecord]:
    pieces = trajectory.limits.tokenizer.pieces
    ids, mask = trajectory.ids, trajectory.mask
    bounds = [0, trajectory.prompt_length]
    bounds += [i for i in range(trajectory.prompt_length + 1, len(ids)) if mask[i] != mask[i - 1]]
    bounds.append(len(ids))
    segments = []
    for start, stop in pairwise(bounds):
        if start == stop:
            continue
        author = (
            "prompt"
            if start < trajectory.prompt_length
            else "policy"
            if mask[start]
            else "environment"
        )
        text = b"".join(pieces[i] for i in ids[start:stop]).decode("utf-8", "replace")
        segments.append(SegmentRecord(author, text.strip(" "), stop - start))
    return segments
