"""Plays a saved game again, offline, and says where it comes out another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending
from ssp_env.game.record import TrajectoryRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.replay.compare import Difference, differences
from ssp_env.replay.recorded import OwnCode, Recorded, check_replayable, named, recorded_rules
from ssp_env.replay.saved import SavedGame
from ssp_env.tokenizers import Tokenizer


@dataclass(frozen=True)
class Replay:
    """What came of playing a saved game again."""

    game: Game
    """The game as it was replayed."""
    rules: Rules
    """What it was replayed by: search, judge and verifier are recorded ones."""
    differences: tuple[Difference, ...]
    as_saved: tuple[str, ...] = ()
    """Code of the user's own that was not given, so that what it said was played back and not
    checked."""

    @property
    def identical(self) -> bool:
        """Whether everything came out as it was saved."""
        return not self.differences


def replay(
    saved: SavedGame, tokenizer: Tokenizer | str | Path | None = None, own: OwnCode | None = None
) -> Replay:
    """Plays the policy's saved tokens again, without search or judge, and compares everything.

    Prompts and observations are made anew from texts and documents; filters, budgets and rewards
    are computed anew. What code of the user's own said (filters, rewards, noise) is played back,
    unless that code is given.

    Args:
        saved: the game.
        tokenizer: the one it was played with, or its directory; needed if the document cannot say
            what it is made of.
        own: functions of the user's own.

    Raises:
        ConfigError: the tokenizer is missing or another one, or the saved settings cannot work.
        UsageError: ``saved`` was written without token ids, or is not a saved game at all (the name
            of a file, say).
    """
    check_replayable(saved)
    recorded, own = Recorded(saved, strict=False), own or OwnCode()
    rules = recorded_rules(saved, recorded, saved.rules.tokenizer.open(tokenizer), own)

    game = _play(saved, rules, recorded)

    unrecorded = [Difference("game", "asked for", "nothing", what) for what in recorded.unrecorded]
    found = (*unrecorded, *differences(saved.record, record_game(game, rules)))
    return Replay(game, rules, found, tuple(_taken_as_saved(saved, own)))


def _taken_as_saved(saved: SavedGame, own: OwnCode) -> Iterator[str]:
    parts = saved.rules.parts
    for code, function in parts.filters.items():
        if parts.shipped_filter(code) is None and code not in (own.filters or {}):
            yield f"filter {code} ({function})"
    if parts.pays_proposer_itself and own.proposer_reward is None:
        yield f"proposer_reward ({parts.proposer_reward})"
    if parts.pays_solver_itself and own.solver_reward is None:
        yield f"solver_reward ({parts.solver_reward})"


class _Feed:
    """The tokens that are left for one trajectory; none if it was not played then."""

    def __init__(self, saved: TrajectoryRecord | None) -> None:
        written = zip(saved.own, saved.logprobs, strict=True) if saved is not None else ()
        self._tokens = iter(written)
        self._voided = saved is not None and saved.ending is Ending.OUTAGE
        self._searches = len(saved.searches) if saved is not None else 0

    def cut_off(self, trajectory: Trajectory) -> bool:
        """Whether the outage came in this turn, so that it has to be the last one."""
        return self._voided and len(trajectory.searches) >= self._searches

    def write(self, trajectory: Trajectory) -> None:
        """Writes the tokens of one turn, token by token, since a turn's end is not saved."""
        for token, logprob in self._tokens:
            if trajectory.feed((token,), (logprob,)):
                return


def _play(saved: SavedGame, rules: Rules, recorded: Recorded) -> Game:
    """Plays one turn after the other, so that a single search is due at a time.

    What an outage cut off comes last."""
    round_ = Round.of_start(rules, saved.record.start)
    recorded.watch(round_)
    game, then = round_.games[0], saved.record.named()
    feeds: dict[str, _Feed] = {}

    while waiting := {name: t for name, t in named(game).items() if t.waiting is Waiting.POLICY}:
        for name in waiting:
            feeds.setdefault(name, _Feed(then.get(name)))
        ready = [name for name, t in waiting.items() if not feeds[name].cut_off(t)]

        if not ready:
            for last, trajectory in waiting.items():
                feeds[last].write(trajectory)
            _void(round_, waiting, then, recorded)
        else:
            trajectory = waiting[ready[0]]
            feeds[ready[0]].write(trajectory)
            if trajectory.waiting is Waiting.POLICY:
                trajectory.feed_turn(())  # a turn may end without a token that says so

        round_.advance()

    return game


def _void(
    round_: Round,
    cut_off: Mapping[str, Trajectory],
    then: Mapping[str, TrajectoryRecord],
    recorded: Recorded,
) -> None:
    """The outages that cut these trajectories off."""
    hit = {name: then[name] for name in cut_off if name in then and then[name].outage is not None}
    if not hit:
        round_.void(list(cut_off.values()), recorded.outage("engine"))
        return

    # The last one to be hit made the game void, if it is.
    last = recorded.outage("engine")
    outages = {name: recorded.outage("engine", attempt) for name, attempt in hit.items()}
    for name in sorted(hit, key=lambda name: outages[name].args == last.args):
        round_.void([cut_off[name]], outages[name])
