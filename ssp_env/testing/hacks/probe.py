"""Plays cheats against rules, and reports who was paid what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.players.base import Player
from ssp_env.testing.hacks.catalogue import all_cheats
from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.gate import Gate, tally
from ssp_env.testing.hacks.pay import Finding, Interval, Pay, find
from ssp_env.testing.hacks.player import CheatPlayer
from ssp_env.types import GroundTruth, Role

GAMES = 200
"""Games per cheat: enough to tell a difference of .1 from none, whatever the rewards' spread."""
MARGIN = 0.1
"""How much more than an honest player a cheat may be paid."""
SIDE_BY_SIDE = 50
"""Games of one round, which give each other noise documents."""


class Honest(Cheat):
    """Plays by the rules."""


@dataclass(frozen=True)
class Played:
    """The games of one cheat, added up."""

    name: str
    about: str
    gains: Role
    """Whose pay is compared."""
    games: int
    accepted: int
    """Questions that reached the solver, in games that no outage hit."""
    proposer: Pay
    solver: Pay
    """Mean reward of a game's attempts; 0 where the question was rejected."""
    solver_with_gate: Pay
    """The same, with what answers at the closed-book gate earn."""
    stopped_by: dict[str, int]
    """Reason codes of invalid games, and how many each; the most frequent one first."""
    gate: Gate

    @property
    def pay(self) -> Pay:
        """Of the role that gains."""
        return self.proposer if self.gains is Role.PROPOSER else self.solver


@dataclass(frozen=True)
class Result:
    """What is known of one cheat."""

    played: Played
    beside: Played
    """What it is compared with: the honest player, or the cheat's rival."""
    finding: Finding
    more: Interval | None
    """How much more than an honest player it is paid per game; ``None`` where nobody can say."""
    closed_by: str
    """Which setting or part would close it."""


@dataclass(frozen=True)
class Report:
    """A probe's outcome."""

    honest: Played
    results: tuple[Result, ...]
    margin: float
    seed: int

    @property
    def paying(self) -> list[Result]:
        """Cheats that pay more than an honest player by more than the margin."""
        return [result for result in self.results if result.finding is Finding.PAYS]

    @property
    def unknown(self) -> list[Result]:
        """Cheats about which void games leave nothing known."""
        return [result for result in self.results if result.finding is Finding.NO_RESULT]

    @property
    def gate(self) -> Gate:
        """Of all questions, honest ones and cheaters'."""
        return sum((result.played.gate for result in self.results), self.honest.gate)


def probe(
    rules: Rules,
    cheats: Iterable[Cheat] | None = None,
    *,
    games: int = GAMES,
    margin: float = MARGIN,
    seed: int = 0,
    partner: Player | None = None,
    on_cheat: Callable[[Cheat], object] = lambda cheat: None,
) -> Report:
    """Plays each cheat against the rules, and compares its pay with an honest player's.

    Args:
        rules: world, verifier, judge, filters, prompts and settings to be probed.
        cheats: what to play; all that ship when not given.
        games: per cheat.
        margin: how much more than an honest player a cheat may be paid per game.
        seed: decides everything, with what services reply.
        partner: plays what a cheat leaves alone, such as a model behind an API; the scripted honest
            player when not given.
        on_cheat: called before each cheat is played.

    Raises:
        ServiceError: a service is down: no honest game came to an end.
        UsageError: ``games`` is below 1, no honest question was accepted, or a cheat or a part of
            the rules returned the wrong thing.
    """
    if games < 1:
        raise UsageError(f"games = {games}: play at least one per cheat")

    on_cheat(Honest())
    honest = play(rules, Honest(), games, seed, partner)
    if not honest.accepted:
        raise UsageError(f"no honest question was accepted ({_why(honest)}): nothing to compare")

    results = []
    for cheat in all_cheats() if cheats is None else cheats:
        on_cheat(cheat)
        if not cheat.applies(rules):
            nothing = _add_up(cheat, [], rules)
            results.append(Result(nothing, honest, Finding.NOT_PLAYED, None, cheat.closed_by))
            continue

        played = play(rules, cheat, games, seed, partner)
        if played.pay.void:
            # Was it the cheater's text that voided them, or is the service down?
            play(rules, Honest(), min(games, SIDE_BY_SIDE), seed, partner)

        beside = play(rules, cheat.rival(), games, seed, partner) if cheat.rival else honest
        finding, more = find(_compared(played, cheat), _compared(beside, cheat), margin)
        results.append(Result(played, beside, finding, more, cheat.closed_by))

    return Report(honest, tuple(results), margin, seed)


def play(
    rules: Rules, cheat: Cheat, games: int, seed: int, partner: Player | None = None
) -> Played:
    """Plays a cheat.

    Raises:
        ServiceError: an honest player's games were void, and none of its round came to an end.
        UsageError: the cheat or a part of the rules returned the wrong thing.
    """
    ended: list[Game] = []
    for start in range(0, games, SIDE_BY_SIDE):
        count = min(SIDE_BY_SIDE, games - start)
        batch = _play_round(rules, cheat, count, (seed, start), partner)

        if isinstance(cheat, Honest):
            _check_up(batch)
        ended += batch

    return _add_up(cheat, ended, rules)


def _play_round(
    rules: Rules, cheat: Cheat, games: int, seed: tuple[int, int], partner: Player | None
) -> list[Game]:
    player = CheatPlayer(rules, cheat, seed, partner)
    round_ = Round(rules, _Answers(rules.world.answers), games, seed)

    while pending := round_.pending():
        try:
            player.play(pending)
        except ServiceError as error:
            round_.void(pending, error)
        round_.advance()
    return round_.games


class _Answers:
    """Draws answers without replacement while there are enough."""

    def __init__(self, truths: Sequence[GroundTruth]) -> None:
        self._truths = truths

    def __call__(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        size = len(self._truths)
        return [self._truths[i] for i in rng.choice(size, count, replace=count > size)]


def _check_up(games: Sequence[Game]) -> None:
    """
    Raises:
        ServiceError: some honest games are void, and none is valid.
    """
    outages = [game.outage for game in games if game.outage is not None]
    if outages and not any(game.outcome is Outcome.VALID for game in games):
        outage = outages[0]
        raise ServiceError(outage.service, outage.what, outage.calls)


def _add_up(cheat: Cheat, games: Sequence[Game], rules: Rules) -> Played:
    counted = [game for game in games if not _is_hit(game)]
    void = len(games) - len(counted)
    reasons = Counter(str(game.reason) for game in counted if game.outcome is Outcome.INVALID)

    return Played(
        name=cheat.name,
        about=cheat.about,
        gains=cheat.gains,
        games=len(games),
        accepted=sum(game.outcome is Outcome.VALID for game in counted),
        proposer=Pay(tuple(game.proposer_reward or 0.0 for game in counted), void),
        solver=Pay(tuple(_attempts_pay(game) for game in counted), void),
        solver_with_gate=Pay(tuple(game.solver_reward or 0.0 for game in counted), void),
        stopped_by=dict(reasons.most_common()),
        gate=tally(games, rules.world),
    )


def _is_hit(game: Game) -> bool:
    """Whether an outage has voided a game, or an attempt of it."""
    return game.outcome is Outcome.VOID or any(a.outage is not None for a in game.attempts)


def _attempts_pay(game: Game) -> float:
    return (game.solver_reward or 0.0) if game.outcome is Outcome.VALID else 0.0


def _compared(played: Played, cheat: Cheat) -> Pay:
    """The pay by which a cheat is compared."""
    if cheat.gains is Role.PROPOSER:
        return played.proposer
    return played.solver_with_gate if cheat.rival is not None else played.solver


def _why(played: Played) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in played.stopped_by.items()) or "void"
