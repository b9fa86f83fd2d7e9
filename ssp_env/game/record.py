"""The record of a game: the one model for statistics, the report and files of games.

A line of a file is a :class:`GameRecord` as JSON: with the rules
(:class:`~ssp_env.replay.files.SavedRules`), all that a replay needs. Everything in it follows from
seeds, weights and services. Where a field has another name in files, its ``alias`` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, zip_longest
from typing import Annotated, Any, TypeVar

from pydantic import Field

from ssp_env.errors import UsageError
from ssp_env.game.game import Game, InitialState
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Ending, Outage, Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import SearchRecord, Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.types import Role

T = TypeVar("T")
PROMPT, POLICY, ENVIRONMENT, RETRY = "prompt", "policy", "environment", "retry"
"""Authors of segments. A trajectory is a prompt, then by turns the policy and the environment: what
was found, or a message that asks for another action."""
LINE: dict[str, Any] = {"extra": "forbid", "strict": True, "ser_json_inf_nan": "constants"}
"""Pydantic's settings for lines of a file. Plain dataclasses, since a step makes thousands."""


@dataclass(frozen=True)
class SegmentRecord:
    by: str
    """``prompt``, ``policy``, ``environment``, or ``retry`` (of the environment too: its message
    about a malformed action)."""
    text: str
    tokens: int
    ids: tuple[int, ...] | None = None
    """The token ids; ``None`` in a record that was written without them."""
    logprobs: tuple[float, ...] | None = None
    """Behaviour log-probability of each of the policy's tokens, in nats; ``None`` elsewhere."""


@dataclass(frozen=True)
class TrajectoryRecord:
    """One trajectory: its tokens and authors, what was found, its ending and its reward."""

    role: Role
    segments: tuple[SegmentRecord, ...]
    searches: tuple[SearchRecord, ...]
    ending: Ending | None
    """``None`` while it goes on."""
    result: str | None
    verdict: Verdict | None = None
    reward: float | None = None
    outage: Outage | None = None
    """Reason for which an attempt to solve is void; ``None`` for all others."""

    @property
    def right(self) -> bool:
        """True if its answer was judged right, whatever that pays."""
        return self.verdict is not None and self.verdict.correct

    @property
    def policy_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments if segment.by == POLICY)

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @property
    def ids(self) -> tuple[int, ...]:
        """All token ids, in order; raises a ``UsageError`` if it was written without them."""
        return tuple(chain.from_iterable(known(segment.ids) for segment in self.segments))

    @property
    def mask(self) -> bytes:
        """The loss mask, one byte per token: 1 on precisely those that the policy wrote."""
        return b"".join(bytes([s.by == POLICY]) * s.tokens for s in self.segments)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Behaviour log-probabilities of the policy's tokens, in nats; raises as ``ids`` does."""
        by_policy = (known(segment.logprobs) for segment in self.segments if segment.by == POLICY)
        return tuple(chain.from_iterable(by_policy))


@dataclass(frozen=True, kw_only=True)
class GameRecord:
    """One game: how it began, what came of it, and all that was written, found and decided;
    ``docs/run_directory.md`` has its fields."""

    __pydantic_config__ = LINE

    initial_state: Annotated[InitialState, Field(alias="start")]
    first_index: Annotated[int, Field(alias="first_slot")] = 0
    """Games of other env runners that come before this runner's in the step."""
    question_group: str | None = None
    outcome: Outcome
    reason: str | None
    outage: Outage | None
    question: str | None
    solve_rate: float | None
    proposer_reward: float | None
    solver_reward: float | None
    verification: Verdict | None
    closed_book: Verdict | None
    """The verdict on the solver's answer from memory, where that gate is on."""
    evidence: tuple[str, ...]
    """Ids of what the proposer retrieved, each passage once."""
    materials: tuple[str, ...] | None
    """Ids of what verification read, in its order; ``None`` if nothing was verified."""
    hops: int | None
    """Hops of the question according to the world; ``None`` when it cannot tell."""
    truly_correct: bool | None
    """True if the ground truth is among the question's right answers in the world; ``None`` when
    the world cannot tell."""
    right_answers: tuple[str, ...] | None
    """All right answers in the world, in alphabetical order; ``None`` when it cannot tell."""
    weights_version: int
    """Number of steps that the policy's weights had learnt from."""
    noise: tuple[NoiseDocument, ...]
    trajectories: tuple[TrajectoryRecord, ...]
    """In the order of play: proposer, verifiers, closed_book, then the attempts to solve."""

    @property
    def index(self) -> int:
        """Its place in the step."""
        return self.first_index + self.initial_state.index

    @property
    def origin(self) -> str:
        return self.initial_state.origin.value

    @property
    def answer(self) -> str:
        return self.initial_state.truth.answer

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.initial_state.truth.aliases

    @property
    def attempts(self) -> tuple[TrajectoryRecord, ...]:
        return tuple(t for t in self.trajectories if t.role is Role.SOLVER)

    def named(self) -> dict[str, TrajectoryRecord]:
        """All trajectories by name: ``proposer``, ``verifier 1``, ..., ``solver 1``, ..."""
        return dict(zip(names(t.role for t in self.trajectories), self.trajectories, strict=True))

    def without_tokens(self) -> GameRecord:
        """The same without token ids and log-probabilities: it can be read, but not replayed."""
        bare = (
            replace(t, segments=tuple(replace(s, ids=None, logprobs=None) for s in t.segments))
            for t in self.trajectories
        )
        return replace(self, trajectories=tuple(bare))


def outages(records: Iterable[GameRecord]) -> list[Outage]:
    """All outages in these games: one per void game, and one per void attempt."""
    each = chain.from_iterable((r.outage, *(t.outage for t in r.trajectories)) for r in records)
    return [outage for outage in each if outage is not None]


def names(roles: Iterable[Role]) -> list[str]:
    """Names of trajectories: their roles, numbered where there may be several."""
    numbered: list[str] = []
    seen: Counter[Role] = Counter()

    for role in roles:
        seen[role] += 1
        several = role in (Role.VERIFIER, Role.SOLVER)
        numbered.append(f"{role} {seen[role]}" if several else role.value)

    return numbered


def record_game(
    game: Game, rules: Rules, weights_version: int = 0, question_group: str | None = None
) -> GameRecord:
    """The record of a game, which may still go on; the fields of a record explain the arguments."""
    analysis = rules.world.analyse(game.question) if game.question else None
    read = None if game.verification is None else game.materials
    # Where the policy verifies, its trajectory holds what was left to read.
    for attempt in game.verification_attempts[:1]:
        library = attempt.trajectory.library
        read = attempt.trajectory.documents if library is None else library

    plays = [] if game.proposer is None else [_trajectory(game.proposer)]
    plays += [_trajectory(a.trajectory, verdict=a.verdict) for a in game.verification_attempts]
    if game.closed_book is not None:
        plays.append(_trajectory(game.closed_book))
    plays += [
        _trajectory(a.trajectory, verdict=a.verdict, reward=a.reward, outage=a.outage)
        for a in game.attempts
    ]

    return GameRecord(
        initial_state=game.initial_state,
        question_group=question_group,
        outcome=game.outcome,
        reason=game.reason,
        outage=game.outage,
        question=game.question,
        solve_rate=game.solve_rate,
        proposer_reward=game.proposer_reward,
        solver_reward=game.solver_reward,
        verification=game.verification,
        closed_book=game.closed_book_verdict,
        evidence=tuple(document.id for document in game.evidence),
        noise=game.noise,
        materials=None if read is None else tuple(document.id for document in read),
        hops=analysis.hops if analysis is not None else None,
        truly_correct=game.truth.answer in analysis.answers if analysis is not None else None,
        right_answers=tuple(sorted(analysis.answers)) if analysis is not None else None,
        weights_version=weights_version,
        trajectories=tuple(plays),
    )


def _trajectory(trajectory: Trajectory, **scored: Any) -> TrajectoryRecord:
    pieces, ids = trajectory.limits.tokenizer.pieces, trajectory.ids
    # The prompt is always the first segment, even an empty one: what follows is the policy's.
    runs = [(0, trajectory.prompt_length, PROMPT)]
    for start, stop, by_policy in trajectory.runs():
        # ``retried`` has the places where messages about malformed actions begin.
        other = RETRY if start in trajectory.retried else ENVIRONMENT
        runs.append((start, stop, POLICY if by_policy else other))

    segments = []
    for start, stop, author in runs:
        text = b"".join(map(pieces.__getitem__, ids[start:stop])).decode("utf-8", "replace")
        logprobs = tuple(trajectory.logprobs[start:stop]) if author == POLICY else None
        written = tuple(map(int, ids[start:stop]))
        segments.append(SegmentRecord(author, text.strip(" "), stop - start, written, logprobs))

    return TrajectoryRecord(
        role=trajectory.role,
        segments=tuple(segments),
        searches=tuple(trajectory.searches),
        ending=trajectory.ending,
        result=trajectory.result,
        **scored,
    )


def known(values: tuple[T, ...] | None) -> tuple[T, ...]:
    if values is None:
        raise UsageError("this record was written without token ids")
    return values


def differences(saved: GameRecord, replayed: GameRecord) -> list[str]:
    """Every field that differs, trajectories first; of a list, the first place that does."""
    # Trajectories by name, and all else of the game as one part more.
    then, now = ({**r.named(), "game": replace(r, trajectories=())} for r in (saved, replayed))
    differing: list[str] = []
    for name in dict.fromkeys([*then, *now]):
        differing += _walk(f"{name}: ", then.get(name), now.get(name))
    return differing


def _walk(place: str, then: Any, now: Any) -> Iterator[str]:
    if is_dataclass(then) and type(then) is type(now):
        within = place if place.endswith(" ") else f"{place}."
        for f in fields(then):
            yield from _walk(f"{within}{f.name}", getattr(then, f.name), getattr(now, f.name))
    elif isinstance(then, tuple) and isinstance(now, tuple) and then and now:
        for i, (before, after) in enumerate(zip_longest(then, now)):
            # Behind the first difference of a list, most of the rest differs with it.
            if differing := list(_walk(f"{place}[{i}]", before, after)):
                yield from differing
                return
    # Not ``!=``: a replay is exact, to the bit of a float.
    elif repr(then) != repr(now):  # it tells 0.0 from -0.0, and NaN equals itself
        name = place.removesuffix(": ")
        yield f"{name}: saved {repr(then)[:80]}, replayed {repr(now)[:80]}"
