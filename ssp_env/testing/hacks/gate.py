"""How well the gate tells sound questions from others, where the world knows the truth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.types import World


@dataclass(frozen=True)
class Gate:
    """What filters, verification and the closed-book gate made of questions."""

    accepted_sound: int = 0
    accepted_unsound: int = 0
    rejected_sound: int = 0
    rejected_unsound: int = 0

    @property
    def precision(self) -> float | None:
        """Of what it accepts, the share that is sound; ``None`` if it accepts nothing."""
        accepted = self.accepted_sound + self.accepted_unsound
        return self.accepted_sound / accepted if accepted else None

    @property
    def recall(self) -> float | None:
        """Of what is sound, the share that it accepts; ``None`` if nothing is."""
        sound = self.accepted_sound + self.rejected_sound
        return self.accepted_sound / sound if sound else None

    def __add__(self, other: Gate) -> Gate:
        return Gate(
            self.accepted_sound + other.accepted_sound,
            self.accepted_unsound + other.accepted_unsound,
            self.rejected_sound + other.rejected_sound,
            self.rejected_unsound + other.rejected_unsound,
        )


def tally(games: Iterable[Game], world: World) -> Gate:
    """Counts the questions of games whose soundness the world knows; void games are left out."""
    counts = {(accepted, good): 0 for accepted in (True, False) for good in (True, False)}
    for game in games:
        good = is_sound(game, world)
        if good is not None and game.outcome is not Outcome.VOID:
            counts[game.outcome is Outcome.VALID, good] += 1

    return Gate(counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def is_sound(game: Game, world: World) -> bool | None:
    """Whether a question has one right answer, the ground truth, and its evidence shows it.

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
