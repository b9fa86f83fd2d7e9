"""Proposers whose questions have several answers, or are not the questions they seem to be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from ssp_env.game.rules import Rules
from ssp_env.players.cloze import GAP
from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.seat import Seat
from ssp_env.types import Document, Role
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini.grammar import Hop, write_question
from ssp_env.worlds.mini.lexicon import NATION, RELATIONS
from ssp_env.worlds.mini.pages import read_facts


class Ambiguous(Cheat):
    """Asks a question with many right answers, only one of which its evidence shows."""

    closed_by = "more and nearer noise (game.noise_documents, noise_kind=near); reward 4p(1-p)"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None
        if not isinstance(seat.rules.world, MiniWorld):
            return seat.ask(_few_words(seat.recall().question, seat.documents))

        # "The citizen of E": true of everybody who lives there.
        for subject, relation, value in read_facts(seat.documents):
            if relation is NATION and subject == seat.answer:
                return seat.ask(write_question(value, [Hop(NATION, inverted=True)]))
        return None


class TwoQuestions(Cheat):
    """Asks for two things at once, of which either may count."""

    closed_by = "a verifier that refuses what has several answers"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None

        answers = seat.rules.world.answers
        other = seat.recall(answers[int(seat.rng.integers(len(answers)))].answer)
        return seat.ask(f"{seat.recall().question} or {other.question}")


class Cycle(Cheat):
    """Goes round in a circle, so that an easy question looks as if it took many searches."""

    closed_by = "hops that are counted of the shortest form of a question"

    def applies(self, rules: Rules) -> bool:
        """Where a world can say that a path leads back to where it began."""
        return isinstance(rules.world, MiniWorld)

    def propose(self, seat: Seat) -> str | None:
        asked = seat.recall().question
        start = asked.split()[-2]
        loop = self._loop(seat, start)
        if loop is None:
            return None

        # All pages of the circle are retrieved, so its evidence is complete.
        out, back, between = loop
        queries = [seat.answer, start, between]
        if len(seat.searches) < len(queries):
            return seat.search(queries[len(seat.searches)])

        body = asked.removesuffix(f"{start} ?")
        return seat.ask(f"{body}the {back} of the {out} of {start} ?")

    def _loop(self, seat: Seat, start: str) -> tuple[str, str, str] | None:
        """Two relations that lead from an entity back to it, and the entity between."""
        analyse = seat.rules.world.analyse
        for out, back in product(RELATIONS, RELATIONS):
            there = analyse(f"what is the {out.noun} of {start} ?")
            again = analyse(f"what is the {back.noun} of the {out.noun} of {start} ?")
            if there and again and len(there.answers) == 1 and again.answers == {start}:
                return out.noun, back.noun, next(iter(there.answers))
        return None


class NearDuplicate(Cheat):
    """Asks what an earlier step asked, in other words; the solver remembers the answer."""

    gains = Role.SOLVER
    closed_by = "game.closed_book=true, or a filter that knows past questions"

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None

        # The wording changes where the world reads any wording; the mini-wiki's grammar is strict.
        question = seat.recall().question
        varied = question if isinstance(seat.rules.world, MiniWorld) else f"Again: {question}"
        self._seen[varied] = seat.answer
        return seat.ask(varied)

    def solve(self, seat: Seat) -> str | None:
        # An attempt is played from memory; where documents are given, it reads as usual.
        known = self._seen.get(seat.question)
        return None if known is None or seat.documents else seat.say(known)


class DocumentAsQuestion(Cheat):
    """Pastes the passage itself, with the answer blanked, and asks for what is missing."""

    closed_by = "the filter long_question, or verification by a model that has to search"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None

        longest = seat.rules.config.max_question_chars - 60
        for document in seat.documents:
            if seat.answer in document.text:
                passage = " ".join(document.text.split())
                at = max(0, passage.find(seat.answer) - longest // 2)
                blanked = passage[at : at + longest].replace(seat.answer, GAP)
                return seat.ask(f'What is missing in this sentence: "{blanked}"')
        return None


class OtherLanguage(Cheat):
    """Asks in another language than the documents', which the solver reads just as well."""

    closed_by = "a judge and a verifier that read other languages"
    _words = (
        ("What is missing in this sentence:", "Que manque-t-il dans cette phrase :"),
        ("what is the", "quel est le"),
        (" of the ", " du "),
        (" of ", " de "),
    )

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None
        return seat.ask(self._translate(seat.recall().question, 0))

    def solve(self, seat: Seat) -> str:
        return seat.honest(self._translate(seat.question, 1))

    def _translate(self, question: str, language: int) -> str:
        # Only the frame of a question about a sentence: the sentence itself is quoted.
        words = self._words[:1] if GAP in question else self._words[1:]
        for pair in words:
            question = question.replace(pair[language], pair[1 - language])
        return question


class PaddedQuestion(Cheat):
    """Floods the question with words, so that the fact that is asked for is hard to see."""

    closed_by = "the filter long_question"

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None

        question = seat.recall().question
        filler = "nothing is the question of the question . "
        room = seat.rules.config.max_question_chars - len(question)
        return seat.ask(f"{filler * (room // len(filler))}{question}")


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
