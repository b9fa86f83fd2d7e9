"""Plays cheats against rules, and reports who was paid what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.players.base import Player
from ssp_env.testing.hacks.cheat import Cheat, CheatPlayer
from ssp_env.types import GroundTruth, World

SIDE_BY_SIDE = 50
"""Games of one round, which give each other noise documents."""


class Finding(StrEnum):
    """Outcome of a cheat's games."""

    HELD = "held"
    """It pays no more than an honest player's margin allows: the interval ends below it."""
    PAYS = "pays"
    """It pays more: the interval begins above the margin."""
    UNSURE = "unsure"
    """The interval holds the margin; more games would decide."""
    NO_RESULT = "no result"
    """So many of its games are void that either may be true."""
    NOT_PLAYED = "not played"
    """These rules lack the part that it cheats."""


class Interval(NamedTuple):
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float


class Gate(NamedTuple):
    """Questions that filters, verification and closed-book gate accepted and rejected."""

    accepted_sound: int = 0
    accepted_unsound: int = 0
    rejected_sound: int = 0
    rejected_unsound: int = 0

    @property
    def precision(self) -> float | None:
        """Sound share of what it accepts; ``None`` if it accepts nothing."""
        accepted = self.accepted_sound + self.accepted_unsound
        return self.accepted_sound / accepted if accepted else None

    @property
    def recall(self) -> float | None:
        """Accepted share of what is sound; ``None`` if nothing is."""
        sound = self.accepted_sound + self.rejected_sound
        return self.accepted_sound / sound if sound else None

    def as_dict(self) -> dict[str, Any]:
        """Counts and shares."""
        return self._asdict() | {"precision": self.precision, "recall": self.recall}


@dataclass(frozen=True)
class Played:
    """The games of one cheat, added up."""

    cheat: type[Cheat]
    games: int
    void: int
    """Games that an outage hit, as a whole or in one of their attempts."""
    accepted: int
    """Questions that reached the solver, in games that no outage hit."""
    proposer: tuple[float, ...]
    """Reward of each game that no outage hit."""
    solver: tuple[float, ...]
    """The same: the mean of a game's attempts; 0 where the question was rejected."""
    solver_with_gate: tuple[float, ...]
    """The same, with what answers at the closed-book gate earn."""
    stopped_by: dict[str, int]
    """Number of invalid games by reason code; the most frequent one first."""
    gate: Gate

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the mean pay in place of each game's; ``None`` if all games are void."""
        pays = {role: getattr(self, role) for role in ("proposer", "solver", "solver_with_gate")}
        return {
            "name": self.cheat.name,
            "about": self.cheat.about,
            "gains": self.cheat.gains.value,
            "games": self.games,
            "void": self.void,
            "accepted": self.accepted,
            **{role: fmean(paid) if paid else None for role, paid in pays.items()},
            "stopped_by": self.stopped_by,
            "gate": self.gate.as_dict(),
        }


@dataclass(frozen=True)
class Result:
    """The finding about one cheat."""

    played: Played
    beside: Played
    """Games that it is compared with: the honest player's, or those of the cheat's rival."""
    finding: Finding
    more: Interval | None
    """Pay per game beyond an honest player's; ``None`` where that is unknown."""


@dataclass(frozen=True)
class Report:
    """A probe's outcome."""

    honest: Played
    results: tuple[Result, ...]
    margin: float
    seed: int

    @property
    def gate(self) -> Gate:
        """Of all questions, honest ones and cheaters'."""
        gates = [self.honest.gate, *(result.played.gate for result in self.results)]
        return Gate(*(sum(counts) for counts in zip(*gates, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``ssp probe --json`` prints it."""
        cheats = [
            result.played.as_dict()
            | {
                "beside": result.beside.cheat.name,
                "finding": result.finding.value,
                "more_than_honest": result.more and list(result.more),
                "closed_by": result.played.cheat.closed_by,
            }
            for result in self.results
        ]
        return {
            "seed": self.seed,
            "margin": self.margin,
            "honest": self.honest.as_dict(),
            "cheats": cheats,
            "gate": self.gate.as_dict(),
        }


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
        rules: world, verifier, judge, filters, prompts and settings to be probed.
        cheats: the cheats to play.
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

    on_cheat(Honest())
    honest = play(rules, Honest(), games, seed, partner)
    if not honest.accepted:
        why = ", ".join(f"{count} {reason}" for reason, count in honest.stopped_by.items())
        raise UsageError(f"no honest question was accepted ({why or 'void'}): nothing to compare")

    results = []
    for cheat in cheats:
        on_cheat(cheat)
        if not cheat.applies(rules):
            nothing = _add_up(cheat, [], rules)
            results.append(Result(nothing, honest, Finding.NOT_PLAYED, None))
            continue

        played = play(rules, cheat, games, seed, partner)
        if played.void:
            # Was it the cheater's text that voided them, or is the service down?
            play(rules, Honest(), min(games, SIDE_BY_SIDE), seed, partner)

        # A rival knows as much as the cheat, and is paid at the closed-book gate for it.
        beside, pay = honest, cheat.gains.value
        if cheat.rival is not None:
            beside, pay = play(rules, cheat.rival(), games, seed, partner), "solver_with_gate"
        paid = getattr(played, pay), getattr(beside, pay)
        results.append(Result(played, beside, *find(*paid, margin, played.void)))

    return Report(honest, tuple(results), margin, seed)


def play(
    rules: Rules, cheat: Cheat, games: int, seed: int, partner: Player | None = None
) -> Played:
    """Plays a cheat."""
    ended: list[Game] = []
    truths = rules.world.answers

    def draw(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        """Answers, each once while there are enough."""
        size = len(truths)
        return [truths[i] for i in rng.choice(size, count, replace=count > size)]

    for start in range(0, games, SIDE_BY_SIDE):
        player = CheatPlayer(rules, cheat, (seed, start), partner)
        count = min(SIDE_BY_SIDE, games - start)
        round_ = Round(rules, draw, count, (seed, start))

        while pending := round_.pending():
            try:
                player.play(pending)
            except ServiceError as error:
                round_.void(pending, error)
            round_.advance()

        outages = [game.outage for game in round_.games if game.outage is not None]
        valid = any(game.outcome is Outcome.VALID for game in round_.games)
        if isinstance(cheat, Honest) and outages and not valid:
            raise ServiceError(outages[0].service, outages[0].what, outages[0].calls)
        ended += round_.games

    return _add_up(cheat, ended, rules)


def _add_up(cheat: Cheat, games: Sequence[Game], rules: Rules) -> Played:
    counted = [
        game
        for game in games
        if game.outcome is not Outcome.VOID and all(a.outage is None for a in game.attempts)
    ]
    valid = [game.outcome is Outcome.VALID for game in counted]
    solver = tuple(game.solver_reward or 0.0 for game in counted)
    reasons = Counter(str(game.reason) for game in counted if game.outcome is Outcome.INVALID)

    return Played(
        cheat=type(cheat),
        games=len(games),
        void=len(games) - len(counted),
        accepted=sum(valid),
        proposer=tuple(game.proposer_reward or 0.0 for game in counted),
        solver=tuple(paid * ok for paid, ok in zip(solver, valid, strict=True)),
        solver_with_gate=solver,
        stopped_by=dict(reasons.most_common()),
        gate=tally(games, rules.world),
    )


def find(
    cheat: Sequence[float], honest: Sequence[float], margin: float, void: int = 0
) -> tuple[Finding, Interval | None]:
    """Finding about a cheat: does it pay more than an honest player by more than a margin?

    Args:
        cheat: pay of the role that gains, by game.
        honest: pay of an honest player in that role; not all games are void.
        margin: how much more is allowed.
        void: further games of the cheat; they might all have been paid in full, and count so.
    """
    if not cheat:
        return Finding.NO_RESULT, None

    more = more_than(cheat, honest)
    if more.low > margin:
        return Finding.PAYS, more

    best = max(1.0, *cheat)
    if more_than([*cheat, *[best] * void], honest).high <= margin:
        return Finding.HELD, more
    return (Finding.NO_RESULT if void else Finding.UNSURE), more


def more_than(cheat: Sequence[float], honest: Sequence[float]) -> Interval:
    """Difference of the means of two samples, with a 95% interval.

    The interval is that of Agresti and Caffo (2000), for figures between bounds in place of shares:
    each sample is given one lowest and one highest value more. It therefore has a width even where
    all games pay alike.
    """
    bounds = [min(0.0, *cheat, *honest), max(1.0, *cheat, *honest)]
    left, right = np.array([*cheat, *bounds]), np.array([*honest, *bounds])

    # centre +- 1.96 * sqrt(var_1 / n_1 + var_2 / n_2)
    half = 1.96 * math.sqrt(left.var() / len(left) + right.var() / len(right))
    centre = float(left.mean() - right.mean())
    return Interval(float(np.mean(cheat) - np.mean(honest)), centre - half, centre + half)


def tally(games: Iterable[Game], world: World) -> Gate:
    """Counts the questions of games whose soundness the world knows; void games are left out."""
    counts = Counter(
        (game.outcome is Outcome.VALID, sound)
        for game in games
        if game.outcome is not Outcome.VOID and (sound := _is_sound(game, world)) is not None
    )
    return Gate(*(counts[accepted, sound] for accepted in (True, False) for sound in (True, False)))


def _is_sound(game: Game, world: World) -> bool | None:
    """True if a question has one right answer, the ground truth, and its evidence shows it.

    ``None`` where nothing was asked, or the world cannot tell.
    """
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
