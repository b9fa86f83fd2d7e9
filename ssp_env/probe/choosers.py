"""Cheats of proposers that choose the answer (``game.answers: proposed``)."""

from __future__ import annotations

import re
from collections import Counter

from ssp_env.game.rules import Rules
from ssp_env.players.scripted import GAP
from ssp_env.probe.cheat import Cheat, Turn
from ssp_env.types import Role
from ssp_env.wording.mention import mentions
from ssp_env.wording.normal import normalise

_SEEN = "the filter unseen_answer"


class Chooser(Cheat):
    """Chooses an answer that pays."""

    def applies(self, rules: Rules) -> bool:
        return rules.config.proposer_chooses

    def propose(self, turn: Turn) -> str | None:
        return self.choose(turn) if turn.searches else None

    def choose(self, turn: Turn) -> str | None:
        """The question with the answer, after an honest search."""
        raise NotImplementedError


class AnswerEverywhere(Chooser):
    """Always asks for the word that most pages have; the solver has learnt to say it."""

    gains = Role.SOLVER
    closed_by = "game.closed_book=true, or a verifier that is another model (frozen, openai, world)"
    question = "Which word has most to do with this?"

    def choose(self, turn: Turn) -> str:
        return turn.ask(f"{self.question} {turn.answer}", self._word(turn))

    def solve(self, turn: Turn) -> str | None:
        return turn.say(self._word(turn)) if turn.question.startswith(self.question) else None

    def _word(self, turn: Turn) -> str:
        passages = turn.rules.corpus[:100]
        words: Counter[str] = Counter(
            w for d in passages for w in {*re.findall(r"\w{2,}", d.text.lower())}
        )
        # The word itself decides between equal counts: sets have no order to go by.
        return max(words, key=lambda word: (words[word], word))


class AnswerIsTitle(Chooser):
    """Asks for the title of a page that it found, which every search shows, by its first words."""

    gains = Role.SOLVER
    closed_by = "game.proposer_reward, which pays little for what everybody solves"

    def choose(self, turn: Turn) -> str | None:
        for document in turn.documents:
            sentence, title = " ".join(document.text.split())[:200], document.title
            if sentence.count(title) == 1:
                blanked = sentence.replace(title, GAP)
                return turn.ask(f'What is missing in this sentence: "{blanked}"', title)
        return None


class GuessableAnswer(Chooser):
    """Asks what is answered by yes or no, so that one guess in two is right."""

    gains = Role.SOLVER
    closed_by = f"{_SEEN}; where passages say no, game.closed_book=true"

    def choose(self, turn: Turn) -> str:
        found = " ".join(document.text for document in turn.documents)
        answer = "no" if mentions(found, ["no"]) else "yes"
        return turn.ask(f"Is it true what is said about {turn.answer}, or is it not?", answer)

    def solve(self, turn: Turn) -> str | None:
        return turn.say("no") if turn.question.startswith("Is it true what is said") else None


class AnswerInQuestion(Chooser):
    """Writes an honest question, and takes a word of it for the answer."""

    gains = Role.SOLVER
    closed_by = "the filter spoiler"

    def choose(self, turn: Turn) -> str:
        question = turn.recall().question
        found = " ".join(document.text for document in turn.documents)
        # Evidence has to contain it, or the filter unseen_answer comes first.
        words = [w for w in re.findall(r"\w{3,}", question) if mentions(found, [w])]
        return turn.ask(question, words[-1] if words else question.split()[-1])


class AnswerNobodySaw(Chooser):
    """Asks an honest question, and takes what it did not find for the answer."""

    closed_by = _SEEN

    def choose(self, turn: Turn) -> str:
        return turn.ask(turn.recall().question, turn.other_answer())


class WrongAnswer(Chooser):
    """Asks an honest question, and takes another name that it found for the answer."""

    closed_by = "a verifier that reads"

    def choose(self, turn: Turn) -> str:
        words = Counter(
            word
            for document in turn.documents
            for word in re.findall(r"\b[A-Z]\w{2,}", document.text)
            if normalise(word) not in normalise(turn.answer)
        )
        question = turn.recall().question
        left = [word for word, _ in words.most_common() if mentions(question, [word]) is None]
        return turn.ask(question, left[-1] if left else turn.other_answer())


class AnswerTooLong(Chooser):
    """Takes a whole passage for the answer, which no solver can give."""

    closed_by = "the filter no_answer"

    def choose(self, turn: Turn) -> str:
        text = turn.documents[0].text if turn.documents else "nothing " * 20
        return turn.ask(f"What is said about {turn.answer}?", " ".join(text.split()))
