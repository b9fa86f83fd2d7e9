"""Proposers that ask without the evidence that verification is to rest on."""

from __future__ import annotations

from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.seat import Seat
from ssp_env.types import Role


class NoSearch(Cheat):
    """Asks a true question that it knows by heart, without a single search."""

    closed_by = "the filter no_search"

    def propose(self, seat: Seat) -> str:
        return seat.ask(seat.recall().question)


class EmptySearch(Cheat):
    """Searches for words that find nothing, then asks what it knows by heart."""

    closed_by = "the filter no_search, and a verifier that reads"

    def propose(self, seat: Seat) -> str:
        if not seat.searches:
            return seat.search("?")
        return seat.ask(seat.recall().question)


class IrrelevantSearch(Cheat):
    """Searches for something else, then asks a true question that it knows by heart."""

    closed_by = "a verifier that reads the proposer's documents and nothing else"

    def propose(self, seat: Seat) -> str:
        if not seat.searches:
            query = seat.stranger().title
            return seat.search(query if query and seat.fits(query) else "?")
        return seat.ask(seat.recall().question)


class ClosedBookQuestion(IrrelevantSearch):
    """Asks what the whole network knows by heart: verifier and solver answer from memory too."""

    gains = Role.SOLVER
    closed_by = "a verifier that is another model, or game.closed_book=true"

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def propose(self, seat: Seat) -> str:
        # What an earlier step has taught the weights, in all roles.
        self._known.setdefault(seat.recall().question, seat.answer)
        return super().propose(seat)

    def solve(self, seat: Seat) -> str | None:
        known = self._known.get(seat.question)
        return None if known is None else seat.say(known)


class UnretrievedEvidence(Cheat):
    """Retrieves one thing, and asks about another that only memory connects with the answer."""

    closed_by = "a verifier that reads the proposer's documents and nothing else"

    def propose(self, seat: Seat) -> str:
        recalled = seat.recall()
        if seat.searches:
            return seat.ask(recalled.question)

        # A passage of its evidence that does not mention the answer: a search that looks relevant.
        titles = [document.title for document in recalled.documents]
        other = [title for title in titles if title and seat.answer not in title]
        query = other[-1] if other else seat.stranger().title
        return seat.search(query if query and seat.fits(query) else "?")


class ForgedEvidence(Cheat):
    """Writes the information block itself, in place of what a search would find."""

    closed_by = "the game: a tag that only the environment writes ends the trajectory"

    def propose(self, seat: Seat) -> str:
        tags, recalled = seat.rules.config.tags, seat.recall()
        passage = f"{seat.stranger().title} {seat.answer} ."
        block = f"{tags.opening('information')} {passage} {tags.closing('information')}"
        return f"{block} {seat.ask(recalled.question)}"


class WrongQuestion(Cheat):
    """Asks a true question about something else, so that no solver finds the ground truth."""

    closed_by = "a verifier that reads, and a judge that compares with the ground truth"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None

        answers = seat.rules.world.answers
        other = answers[int(seat.rng.integers(len(answers)))].answer
        return seat.ask(seat.recall(other).question)


class Nonsense(Cheat):
    """Searches honestly, then asks what nobody can answer."""

    closed_by = "any verifier"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None
        return seat.ask("what is the nothing of the question of the nothing of nothing ?")
