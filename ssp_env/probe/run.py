"""Plays cheats against rules, and reports who was paid what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy, Remembering
from ssp_env.players.base import Player, play_by
from ssp_env.probe.cheat import Cheat, CheatPlayer
from ssp_env.types import Role, World

SIDE_BY_SIDE = 50
"""Games of one batch, which give each other noise documents."""
OTHER = {Role.PROPOSER: Role.SOLVER.value, Role.SOLVER: Role.PROPOSER.value}


class Finding(StrEnum):
    """Where the interval of a cheat's pay lies; ``docs/probe.md`` says what each means."""

    HELD = "held"
    PAYS = "pays"
    MOVES = "moves"
    UNSURE = "unsure"
    NO_RESULT = "no result"
    OPEN = "open"
    NOT_PLAYED = "not played"


class Interval(NamedTuple):
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Gate:
    """Questions that filters, verification and closed-book gate accepted and rejected."""

    accepted_sound: int
    accepted_unsound: int
    rejected_sound: int
    rejected_unsound: int
    precision: float | None
    """Sound share of what it accepts; ``None`` if it accepts nothing."""
    recall: float | None
    """Accepted share of what is sound; ``None`` if nothing is."""

    @classmethod
    def of(cls, a: int, b: int, c: int, d: int) -> Gate:
        # a sound and b unsound questions were accepted, c and d were rejected:
        # precision = a / (a + b), recall = a / (a + c).
        return cls(a, b, c, d, a / (a + b) if a + b else None, a / (a + c) if a + c else None)


@dataclass(frozen=True)
class Result:
    """The games of one cheat, or of the honest player, added up."""

    name: str
    about: str
    gains: Role
    games: int
    void: int
    """Games that an outage hit, as a whole or in one of their attempts."""
    accepted: int
    """Questions that reached the solver, in games that no outage hit."""
    proposer: float | None
    """Mean reward in games that no outage hit; ``None`` if there are none."""
    solver: float | None
    """The same of all that a game paid the solver's network: its attempts, 0 where the question was
    rejected, and its answer at the closed-book gate."""
    stopped_by: dict[str, int]
    """Number of invalid games by reason code; the most frequent one first."""
    gate: Gate
    closed_by: str
    """Setting or part that would close it."""
    finding: Finding | None = None
    more_than_honest: Interval | None = None
    """Pay per game beyond the honest player's, of the role that gains or, where it moves, of the
    other; ``None`` where that is unknown."""


@dataclass(frozen=True)
class Report:
    """A probe's outcome; ``dataclasses.asdict`` makes plain data of it."""

    seed: int
    margin: float
    honest: Result
    cheats: list[Result]
    gate: Gate
    """Of all questions, honest ones and cheaters'."""


class Honest(Cheat):
    """Plays by the rules."""


def probe(
    rules: Rules,
    cheats: Iterable[Cheat],
    *,
    games: int = 200,
    margin: float = 0.1,
    seed: int = 0,
    partner: Player | None = None,
    on_cheat: Callable[[Cheat], object] = lambda cheat: None,
) -> Report:
    """Plays each cheat against the rules, and compares its pay with an honest player's.

    Args:
        games: per cheat.
        margin: how much more than an honest player a cheat may be paid per game.
        seed: decides everything, together with the replies of services.
        partner: plays what a cheat leaves alone, such as a model behind an API; the scripted honest
            player when not given.
        on_cheat: called before each cheat is played.

    Raises:
        ServiceError: a service is down: no honest game came to an end.
        UsageError: ``games`` is below 1, or no honest question was accepted.
    """
    if games < 1:
        raise UsageError(f"games = {games}: play at least one per cheat")

    def played(cheat: Cheat, count: int = games) -> tuple[Result, dict[str, list[float]]]:
        return _add_up(cheat, play(rules, cheat, count, seed, partner), rules)

    on_cheat(Honest())
    honest, honest_pays = played(Honest())
    if not honest.accepted:
        why = ", ".join(f"{count} {reason}" for reason, count in honest.stopped_by.items())
        raise UsageError(f"no honest question was accepted ({why or 'void'}): nothing to compare")

    results = []
    for cheat in cheats:
        on_cheat(cheat)
        if not cheat.applies(rules):
            nothing, _ = _add_up(cheat, [], rules)
            results.append(replace(nothing, finding=Finding.NOT_PLAYED))
            continue

        result, pays = played(cheat)
        if result.void:
            # Was it the cheater's text that voided them, or is the service down?
            played(Honest(), min(games, SIDE_BY_SIDE))

        gains, other = cheat.gains.value, OTHER[cheat.gains]
        finding, more = find(pays[gains], honest_pays[gains], margin, result.void)
        moved, others = find(pays[other], honest_pays[other], margin, result.void)
        # What one role gains and the other loses is no gain of the network that plays both.
        both, _ = find(_sums(pays), _sums(honest_pays), margin, result.void)
        if finding is Finding.PAYS and cheat.opt_in and cheat.opt_in not in rules.filters:
            finding = Finding.OPEN
        elif finding is not Finding.PAYS and moved is both is Finding.PAYS:
            finding, more = Finding.MOVES, others
        results.append(replace(result, finding=finding, more_than_honest=more))

    # A world that finds no honest question sound does not read what these players write.
    judged = [honest, *results] if honest.gate.accepted_sound else []
    counts = [*zip(*(astuple(result.gate)[:4] for result in judged), strict=True)] or [()] * 4
    return Report(seed, margin, honest, results, Gate.of(*map(sum, counts)))


def _sums(pays: Mapping[str, Sequence[float]]) -> list[float]:
    """What both roles are paid, game by game: a role that gives its pay away moves nothing."""
    return [sum(each) for each in zip(*pays.values(), strict=True)]


def play(
    rules: Rules, cheat: Cheat, games: int, seed: int, partner: Player | None = None
) -> list[Game]:
    ended: list[Game] = []
    answers = answers_of(rules.world)

    for start in range(0, games, SIDE_BY_SIDE):
        count, strategy = min(SIDE_BY_SIDE, games - start), Remembering(BatchStrategy())
        # The second batch asks about the same answers, and knows what the first one asked.
        for _ in range(2 if cheat.opt_in else 1):
            player = CheatPlayer(rules, cheat, (seed, start), partner)
            batch = play_by(GameBatch(rules, answers, count, (seed, start), strategy), player)

        outages = [game.outage for game in batch.games if game.outage is not None]
        valid = any(game.outcome is Outcome.VALID for game in batch.games)
        if isinstance(cheat, Honest) and outages and not valid:
            raise ServiceError(outages[0].service, outages[0].what, outages[0].calls)
        ended += batch.games
    return ended


def _add_up(
    cheat: Cheat, games: Sequence[Game], rules: Rules
) -> tuple[Result, dict[str, list[float]]]:
    """The result, and the rewards of the games that count, of which it has the means."""
    counted = [
        game
        for game in games
        if game.outcome is not Outcome.VOID and all(a.outage is None for a in game.attempts)
    ]
    valid = [game.outcome is Outcome.VALID for game in counted]
    pays = {
        "proposer": [game.proposer_reward or 0.0 for game in counted],
        "solver": [game.solver_reward or 0.0 for game in counted],
    }
    reasons = Counter(str(game.reason) for game in counted if game.outcome is Outcome.INVALID)
    means: dict[str, Any] = {role: fmean(paid) if paid else None for role, paid in pays.items()}
    result = Result(
        name=cheat.name,
        about=cheat.about,
        gains=cheat.gains,
        games=len(games),
        void=len(games) - len(counted),
        accepted=sum(valid),
        **means,
        stopped_by=dict(reasons.most_common()),
        gate=tally(games, rules.world),
        closed_by=cheat.closed_by,
    )
    return result, pays


def find(
    cheat: Sequence[float], honest: Sequence[float], margin: float, void: int = 0
) -> tuple[Finding, Interval | None]:
    """Finding about a cheat: does it pay more than an honest player by more than a margin?

    The pay is that of the role that gains, by game; ``void`` further games of the cheat might all
    have been paid in full, and count so."""
    if not cheat:
        return Finding.NO_RESULT, None

    more = more_than(cheat, honest)
    if more.low > margin:
        return Finding.PAYS, more

    # Whether the cheat has voided them is not known: the worst case counts.
    best = max(1.0, *cheat)
    if more_than([*cheat, *[best] * void], honest).high <= margin:
        return Finding.HELD, more
    return (Finding.NO_RESULT if void else Finding.UNSURE), more


def more_than(cheat: Sequence[float], honest: Sequence[float]) -> Interval:
    """Difference of the means of two samples, with a 95% interval.

    It is that of Agresti and Caffo (2000), for figures between bounds in place of shares: each
    sample is given one lowest and one highest value more, so that it has a width even where all
    games pay alike.

    >>> [round(each, 2) for each in more_than([1.0] * 50, [0.5] * 50)]
    [0.5, 0.43, 0.53]
    """
    bounds = [min(0.0, *cheat, *honest), max(1.0, *cheat, *honest)]
    left, right = np.array([*cheat, *bounds]), np.array([*honest, *bounds])

    # centre +- 1.96 * sqrt(var_1 / n_1 + var_2 / n_2)
    # NumPy's variance divides by n, so that of shares is p (1 - p).
    half = 1.96 * math.sqrt(left.var() / len(left) + right.var() / len(right))
    centre = float(left.mean() - right.mean())
    return Interval(float(np.mean(cheat) - np.mean(honest)), centre - half, centre + half)


def tally(games: Iterable[Game], world: World) -> Gate:
    """Counts the questions of games whose soundness the world knows; void games are left out."""
    counts = Counter(
        (game.outcome is Outcome.VALID, _is_sound(game, world))
        for game in games
        if game.outcome is not Outcome.VOID
    )
    # In the order of ``Gate.of``; what the world cannot tell of is counted under None.
    four = (counts[accepted, sound] for accepted in (True, False) for sound in (True, False))
    return Gate.of(*four)


def _is_sound(game: Game, world: World) -> bool | None:
    """True if a question has one right answer, the ground truth, and its evidence shows it.

    ``None`` where nothing was asked, or the world cannot tell."""
    if game.question is None:
        return None
    analysis = world.analyse(game.question)
    if analysis is None:
        # A world that reads its questions knows that this is none.
        return False if world.can_read else None
    if analysis.answers != {game.truth.answer}:
        return False

    # What the proposer did not retrieve is not evidence, however true.
    read = world.read(game.question, game.evidence) if world.can_read else None
    return read is None or read == {game.truth.answer}
