"""Cheats, the seats they play from, and the honest player that they are compared with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ssp_env.game.referee import chosen
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import SearchRecord, Trajectory
from ssp_env.players import scripted_player
from ssp_env.players.base import Player
from ssp_env.players.scripted import ScriptedPlayer
from ssp_env.search.base import all_found, search_each
from ssp_env.types import Document, Role

SKILL = 0.7
"""Share of attempts in which the honest solver finds the answer; it gives up in the others.

A solver that always succeeds would leave its proposer nothing, and could not be beaten by cheating.
"""


class HonestPlayer(ScriptedPlayer):
    """The scripted player that suits a world, with a solver that fails now and then.

    It fails as often where verification is an attempt, since it cannot tell. As a verifier that is
    given its documents, and at the closed-book gate, it does its best."""

    def __init__(self, rules: Rules, rng: np.random.Generator) -> None:
        super().__init__(rules.tags)
        self._player, self._rng = scripted_player(rules), rng
        self._sure: dict[int, bool] = {}

    def is_sure(self, trajectory: Trajectory) -> bool:
        """True if it finds the answer in this trajectory."""
        if trajectory.role is not Role.SOLVER and trajectory.library is None:
            return True
        # Drawn once: a trajectory is sure in all of its turns, or in none.
        if trajectory.key not in self._sure:
            self._sure[trajectory.key] = bool(self._rng.random() < SKILL)
        return self._sure[trajectory.key]

    def write(self, trajectory: Trajectory) -> str:
        turn = self._player.write(trajectory)
        answers = turn.startswith(self._tags.opening("answer"))
        return self.call("answer", "nothing") if answers and not self.is_sure(trajectory) else turn


class Recalled(NamedTuple):
    """A question that an honest proposer would have asked, and its evidence."""

    question: str
    documents: tuple[Document, ...]


class Turn:
    """A trajectory that waits for a cheater's turn: the view of it, and ways to write."""

    def __init__(
        self, trajectory: Trajectory, rules: Rules, honest: HonestPlayer, rng: np.random.Generator
    ) -> None:
        self._trajectory, self._honest = trajectory, honest
        self.rules, self.rng = rules, rng

    @property
    def answer(self) -> str:
        """The ground truth that a proposer is given, or the topic."""
        return self._trajectory.about

    @property
    def question(self) -> str:
        """The question that a solver is given."""
        return self._trajectory.about

    @property
    def text(self) -> str:
        """Everything the policy reads, decoded: prompt, its own turns and search results."""
        return self._trajectory.limits.tokenizer.decode(self._trajectory.ids)

    @property
    def searches(self) -> Sequence[SearchRecord]:
        return self._trajectory.searches

    @property
    def documents(self) -> list[Document]:
        found = [d for search in self._trajectory.searches for d in search.documents]
        return [*self._trajectory.documents, *found]

    @property
    def sure(self) -> bool:
        """True if an honest solver would find the answer in this attempt (see :data:`SKILL`)."""
        return self._honest.is_sure(self._trajectory)

    def search(self, query: str) -> str:
        return self._honest.call("search", query)

    def ask(self, question: str, answer: str | None = None) -> str:
        """A question; where the proposer chooses, with this answer, by default the topic."""
        if answer is None:
            return self._honest.ask(self._trajectory, question)
        return self._honest.call("question", f"{question}\n{answer}")

    def say(self, answer: str) -> str:
        return self._honest.answer(self._trajectory, answer)

    def honest(self, question: str | None = None, skip: int = 0) -> str:
        """The turn that an honest player would write here, if asked this question in place of the
        real one, and without the first ``skip`` searches, which it would not have made."""
        if question is None:
            return self._honest.write(self._trajectory)
        return self._honest.write(self._imagine(question, skip))

    def honest_answer(self, question: str) -> str | None:
        """An honest player's answer after what was read so far; ``None``: it searches."""
        imagined = self._imagine(question)
        imagined.feed_text(self._honest.write(imagined))
        return imagined.result

    def recall(self, answer: str | None = None) -> Recalled:
        """An honest proposer's question and evidence about an answer (the ground truth, if not
        given), which a cheater knows by heart."""
        about = self.answer if answer is None else answer
        prompt = self.rules.prompts.proposer(about, 1)
        imagined = Trajectory(self.rules.limits[Role.PROPOSER], prompt, about)

        while not imagined.done:
            imagined.feed_text(self._honest.write(imagined))
            if imagined.query is not None:
                retriever, k = self.rules.retrievers[imagined.tool], self.rules.config.top_k
                (found,) = all_found(search_each(retriever, [imagined.query], k))
                # Nobody reads its tokens: documents alone count.
                imagined.observe(found, ())

        documents = [d for search in imagined.searches for d in search.documents]
        question = imagined.result or ""
        if imagined.limits.chooses:
            question, _ = chosen(question)
        return Recalled(question, tuple(documents))

    def stranger(self) -> Document:
        corpus = self.rules.corpus
        return corpus[int(self.rng.integers(len(corpus)))]

    def other_answer(self) -> str:
        answers = self.rules.world.answers
        return answers[int(self.rng.integers(len(answers)))].answer

    def short(self, query: str) -> str:
        """The query if it fits its budget, else one that finds nothing."""
        limits = self._trajectory.limits
        fits = query and len(limits.tokenizer.encode_data(query)) <= limits.max_query_tokens
        return query if fits else "?"

    def _imagine(self, question: str, skip: int = 0) -> Trajectory:
        real = self._trajectory
        # With the same key it is the same attempt: an honest solver succeeds in both or in neither.
        imagined = Trajectory(real.limits, [], question, real.documents, real.library, key=real.key)
        imagined.searches.extend(real.searches[skip:])
        return imagined


class Cheat:
    """A documented way to be paid without playing the game as intended.

    Subclass it, and let the docstring's first line say what the cheat does. Override :meth:`ask`
    or :meth:`propose`, :meth:`solve`, or both: then it is a pair that shares a convention, as the
    proposer and the solver of one network can. One object plays all games of a probe: attributes
    are what a network has learnt, not its memory of a game."""

    name: str
    """Its name in reports: the class's, in small letters."""
    about: str
    """One sentence: the first line of the docstring."""
    gains: Role = Role.PROPOSER
    """Role whose pay is compared with an honest player's."""
    closed_by: str = ""
    """Setting or part that closes it; shown where it pays."""
    opt_in: str = ""
    """Filter that holds it and is off by default: without it, it is ``open`` where it pays. It is
    then played in two steps about the same answers, of which the second counts."""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        cls.about = (cls.__doc__ or "").strip().partition("\n")[0]

    def applies(self, rules: Rules) -> bool:
        """False for rules without the part that it cheats, such as a gate that is off."""
        return True

    def ask(self, turn: Turn) -> str | None:
        """The question after an honest search; ``None``: an honest one."""
        return None

    def propose(self, turn: Turn) -> str | None:
        """The proposer's next turn; ``None``: an honest player's."""
        question = self.ask(turn) if turn.searches else None
        return None if question is None else turn.ask(question)

    def solve(self, turn: Turn) -> str | None:
        """The next turn of the solver's network; ``None``: an honest player's.

        Asked for in attempts, in the policy's own verification and at the closed-book gate alike. A
        policy is not told which of them it is playing: only :attr:`Turn.text` may differ."""
        return None


@dataclass(kw_only=True, eq=False)
class Listed(Cheat):
    """One of several cheats that are told apart by texts and functions."""

    name: str
    about: str
    closed_by: str


def framed(frame: str, question: str) -> str | None:
    """What stands at the place of ``{}`` in a question; ``None`` in one without this frame."""
    before, _, after = map(str.strip, frame.partition("{}"))
    question = question.strip()
    if not (question.startswith(before) and question.endswith(after)):
        return None
    return question.removeprefix(before).removesuffix(after).strip()


class CheatPlayer:
    """A :class:`~ssp_env.players.base.Player` that cheats where a cheat says so."""

    def __init__(
        self, rules: Rules, cheat: Cheat, seed: Sequence[int], partner: Player | None = None
    ) -> None:
        """``partner`` writes the other turns; not given, the scripted honest player does."""
        self._rules, self._cheat = rules, cheat
        self._honest = HonestPlayer(rules, np.random.default_rng([*seed, 0]))
        self._partner = self._honest if partner is None else partner
        self._rng = np.random.default_rng([*seed, 1])

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        left = []
        for trajectory in trajectories:
            turn = Turn(trajectory, self._rules, self._honest, self._rng)
            written: str | None = None
            if trajectory.role is Role.PROPOSER:
                written = self._cheat.propose(turn)
            # A frozen verifier has not learnt it.
            elif trajectory.role is not Role.VERIFIER or self._rules.config.verifier != "frozen":
                written = self._cheat.solve(turn)
            if written is None:
                left.append(trajectory)
            else:
                trajectory.feed_text(written)

        if left:
            self._partner.play(left)
