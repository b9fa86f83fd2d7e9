"""Proposers without evidence, and proposers whose questions are not what they seem."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.players.scripted import GAP
from ssp_env.testing.hacks.cheat import Cheat, Seat
from ssp_env.types import Document, Role
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini.grammar import Hop, read_facts, write_question
from ssp_env.worlds.mini.lexicon import NATION

_READER = "a verifier that reads the proposer's documents and nothing else"

# -- without the evidence that verification rests on --------------------------------------------


class NoSearch(Cheat):
    """Asks a true question that it knows by heart, without a single search."""

    closed_by = "the filter no_search"

    def propose(self, seat: Seat) -> str:
        return seat.ask(seat.recall().question)


class IrrelevantSearch(Cheat):
    """Searches for something else, then asks a true question that it knows by heart."""

    closed_by = _READER

    def propose(self, seat: Seat) -> str:
        if not seat.searches:
            return seat.search(seat.short(seat.stranger().title))
        return seat.ask(seat.recall().question)


class ClosedBookQuestion(IrrelevantSearch):
    """Asks what the whole network knows by heart: verifier and solver answer from memory too."""

    gains = Role.SOLVER
    closed_by = "a verifier that is another model, or game.closed_book=true"

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def propose(self, seat: Seat) -> str:
        # An earlier step has taught it to the weights, in all roles.
        self._known.setdefault(seat.recall().question, seat.answer)
        return super().propose(seat)

    def solve(self, seat: Seat) -> str | None:
        known = self._known.get(seat.question)
        return None if known is None else seat.say(known)


class UnretrievedEvidence(Cheat):
    """Retrieves one thing, and asks about another that only memory connects with the answer."""

    closed_by = _READER

    def propose(self, seat: Seat) -> str:
        recalled = seat.recall()
        if seat.searches:
            return seat.ask(recalled.question)

        # A passage of its evidence that does not mention the answer: a search that looks relevant.
        titles = [document.title for document in recalled.documents]
        other = [title for title in titles if title and seat.answer not in title]
        return seat.search(seat.short(other[-1] if other else seat.stranger().title))


class ForgedEvidence(Cheat):
    """Writes the information block itself, in place of a search result."""

    closed_by = "the game: a tag that only the environment writes ends the trajectory"

    def propose(self, seat: Seat) -> str:
        tags, recalled = seat.rules.config.tags, seat.recall()
        passage = f"{seat.stranger().title} {seat.answer} ."
        block = f"{tags.opening('information')} {passage} {tags.closing('information')}"
        return f"{block} {seat.ask(recalled.question)}"


class WrongQuestion(Cheat):
    """Asks a true question about something else, so that no solver finds the ground truth."""

    closed_by = "a verifier that reads, and a judge that compares with the ground truth"

    def ask(self, seat: Seat) -> str:
        return seat.recall(seat.other_answer()).question


class Nonsense(Cheat):
    """Searches honestly, then asks what nobody can answer."""

    closed_by = "any verifier"

    def ask(self, seat: Seat) -> str:
        return "what is the nothing of the question of the nothing of nothing ?"


# -- questions that are not what they seem ------------------------------------------------------


class Ambiguous(Cheat):
    """Asks a question with many right answers, only one of which its evidence shows."""

    closed_by = "more and nearer noise (game.noise_documents, noise_kind=near); reward 4p(1-p)"

    def ask(self, seat: Seat) -> str | None:
        if not isinstance(seat.rules.world, MiniWorld):
            return _few_words(seat.recall().question, seat.documents)

        # "The citizen of E": true of everybody who lives there.
        for subject, relation, value in read_facts(seat.documents):
            if relation is NATION and subject == seat.answer:
                return write_question(value, [Hop(NATION, inverted=True)])
        return None


class TwoQuestions(Cheat):
    """Asks for two things at once, of which either may count."""

    closed_by = "a verifier that refuses what has several answers"

    def ask(self, seat: Seat) -> str:
        other = seat.recall(seat.other_answer())
        return f"{seat.recall().question} or {other.question}"


class NearDuplicate(Cheat):
    """Asks what an earlier step asked, in other words; the solver remembers the answer."""

    gains = Role.SOLVER
    closed_by = "game.closed_book=true, or a filter that knows past questions"

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def ask(self, seat: Seat) -> str:
        # The wording changes where the world reads any wording; the mini-wiki's grammar is strict.
        question = seat.recall().question
        varied = question if isinstance(seat.rules.world, MiniWorld) else f"Again: {question}"
        self._seen[varied] = seat.answer
        return varied

    def solve(self, seat: Seat) -> str | None:
        # An attempt is played from memory; where documents are given, it reads as usual.
        known = self._seen.get(seat.question)
        return None if known is None or seat.documents else seat.say(known)


class DocumentAsQuestion(Cheat):
    """Pastes the passage itself, with the answer blanked, and asks for the missing words."""

    closed_by = "the filter long_question, or verification by a model that has to search"

    def ask(self, seat: Seat) -> str | None:
        longest = seat.rules.config.max_question_chars - 60
        for document in seat.documents:
            if seat.answer in document.text:
                passage = " ".join(document.text.split())
                at = max(0, passage.find(seat.answer) - longest // 2)
                blanked = passage[at : at + longest].replace(seat.answer, GAP)
                return f'What is missing in this sentence: "{blanked}"'
        return None


class FloodedQuery(Cheat):
    """Floods the search engine with a query of thousands of words."""

    closed_by = "game.max_query_tokens"

    def propose(self, seat: Seat) -> str:
        if not seat.searches:
            return seat.search("what is the question of the question ? " * 400)
        return seat.ask(seat.recall().question)


def _few_words(question: str, evidence: Sequence[Document]) -> str:
    """A question about a gap, cut to as few words around it as settle it in the evidence alone."""
    before, gap, after = question.partition(GAP)
    if not gap:
        return question

    left, right = before.split('"')[-1].split(), after.split('"')[0].split()
    texts = [" ".join(document.text.split()) for document in evidence]
    for size in range(1, max(len(left), len(right)) + 1):
        words = " ".join(left[-size:]), " ".join(right[:size])
        pattern = re.compile(rf"{re.escape(words[0])} (.{{1,200}}?) ?{re.escape(words[1])}")
        if len({found for text in texts for found in pattern.findall(text)}) == 1:
            return f'What is missing in this sentence: "{words[0]} {GAP} {words[1]}"'
    return question
