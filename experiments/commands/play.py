"""``ssp play``: a person against the policy, in the terminal; one of them writes a turn, then the
game goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, repeat

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from agents.engines.base import Engine, StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model
from agents.rollout import play
from experiments.cli import Chosen
from experiments.run.checks import open_run
from experiments.run.process import quiet_libraries
from ssp_env.commands.base import plural
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game, Origin, Start
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.types import Action, Document, GroundTruth

WAVE = 8
"""Games of self-play that are played at a time, for their questions."""
MOST_BARREN = 12
"""Waves without any valid question after which there is nothing to solve."""
OUTAGES = 3
"""Outages in a row after which there is nothing to play: waves without a question, or games."""

_QUESTIONS, _PERSON = 0x9E57, 0x5EA7
"""First numbers of the seeds of the policy's questions and of the person's games."""

KEYS = {
    "solver": "[b]s[/b] words: search   [b]a[/b] words: answer   [b]n[/b]: next question   "
    "[b]q[/b]: quit",
    "proposer": "[b]s[/b] words: search   [b]a[/b] words: ask this question   "
    "[b]n[/b]: another answer   [b]q[/b]: quit",
}
TASKS = {
    "solver": "Find the answers to the policy's questions, by searching.",
    "proposer": "You get an answer and write a question that has it, and only it. You are paid for "
    "what the policy gets wrong in {attempts} attempts, if the question is verified.",
}
REASONS: dict[str | None, str] = {
    Ending.BUDGET_TOKENS: "what you have read and written used up the game's budget of tokens",
    Ending.BUDGET_QUERY: "that query was longer than the game allows",
    Ending.BUDGET_ANSWER: "that answer was longer than the game allows",
    "empty_question": "there is no question",
    "no_search": "nothing was searched for that a question could rest on",
    "short_question": "the question is too short",
    "long_question": "the question is too long",
    "spoiler": "the question gives its answer away",
    "repeated_query": "a query was repeated",
    "unverified": "the documents that were found do not support the answer",
    "closed_book": "the question can be answered without any search",
}
"""Endings and reason codes, for a person to read; a filter of the user's own has its name."""


def run(chosen: Chosen, *, role: str, games: int | None) -> int:
    """Plays until the person quits, or ``--games`` are played."""
    quiet_libraries()
    config = chosen.config()
    rules, _ = open_run(config)

    torch.set_num_threads(config.compute.threads)
    model = load_model(config.model_dir, "cuda" if config.compute.gpus_per_env_runner else "cpu")
    engine = TransformersEngine(model, rules.tokenizer, StopRule.of(config.game, rules.tokenizer))

    terminal = Terminal(Session(rules, engine, config.seed), role)
    task = TASKS[role].format(attempts=config.game.attempts)
    terminal.panel(f"search self-play: {config.world}", f"{task}\n{KEYS[role]}")
    try:
        with suppress(Quit):
            terminal.play(games)
    finally:
        terminal.say(f"[b]{terminal.score}[/b]")
    return 0


class Session:
    """Deals games between a person and the policy; the seed decides every one of them."""

    def __init__(self, rules: Rules, engine: Engine, seed: int) -> None:
        self.rules, self.engine, self.seed = rules, engine, seed
        self._dealt = 0

    def questions(self) -> Iterator[Game]:
        """Valid games of the policy's own, easy and hard, as self-play makes them.

        Ends where the policy has not written any valid question for a long while.

        Raises:
            ServiceError: outages have left no question of several waves in a row.
        """
        barren = outages = 0
        for wave in count():
            seed = [_QUESTIONS, self.seed, wave]
            games = self.finish(Round(self.rules, self._answers, WAVE, seed)).games
            found = [game for game in games if game.outcome is Outcome.VALID]
            void = [game for game in games if game.outage is not None]
            yield from found

            if found:
                barren = outages = 0
            elif void:
                outages += 1
            else:
                barren += 1
            if outages == OUTAGES:
                checked(void[0])
            if barren == MOST_BARREN:
                return

    def solver(self, asked: Game) -> Part:
        """The person gets the question of a game, once."""
        once = replace(self.rules, config=self.rules.config.replace(attempts=1))
        seed, truth = (_PERSON, self.seed, self._dealt), asked.truth
        start = Start(seed, 0, 0, truth, Origin.GIVEN, question=asked.question)
        self._dealt += 1
        return Part(self, Round.of_starts(once, [start]))

    def proposer(self, truth: GroundTruth | None = None) -> Part:
        """The person gets an answer, a random one if none is given, and writes a question."""
        seed = (_PERSON, self.seed, self._dealt)
        if truth is None:
            (truth,) = self._answers(np.random.default_rng(seed), 1)
        start = Start(seed, 0, 0, truth, Origin.PROPOSED, 1)
        self._dealt += 1
        return Part(self, Round.of_starts(self.rules, [start]))

    def rival(self, game: Game) -> Game:
        """The policy's own game about the same answer, begun in the same way."""
        return checked(self.finish(Round.of_starts(self.rules, [game.start])).games[0])

    def finish(self, round_: Round) -> Round:
        """Lets the policy play what remains."""
        return play(round_, self.engine, temperature=1.0)

    def _answers(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        answers = self.rules.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=count > len(answers))]


class Part:
    """The person's part of a game; the policy plays all the rest."""

    def __init__(self, session: Session, round_: Round) -> None:
        self._session, self._round = session, round_
        self.trajectory, self.game = round_.pending()[0], round_.games[0]

    @property
    def searches_left(self) -> int:
        """Searches that the person may still make."""
        return self.trajectory.limits.max_searches - len(self.trajectory.searches)

    def unknown_words(self, text: str) -> list[str]:
        """Words that the tokenizer cannot spell: the policy would read a blank instead."""
        tokenizer = self.trajectory.limits.tokenizer
        unknown = getattr(tokenizer, "unknown_id", None)
        words = text.split() if unknown is not None else []
        return [word for word in words if unknown in tokenizer.encode_data(word)]

    def write(self, action: Action, content: str) -> tuple[Document, ...]:
        """Takes the person's turn; returns what it found, if it was a search.

        Raises:
            ServiceError: the search, the verifier or the judge is out.
        """
        before, tags = len(self.trajectory.searches), self._session.rules.tags
        turn = f"{tags.opening(action)} {content} {tags.closing(action)}"
        self.trajectory.feed_turn(self.trajectory.limits.tokenizer.encode(turn))
        self._round.advance()
        checked(self.game)
        searches = self.trajectory.searches
        return searches[-1].documents if len(searches) > before else ()

    def finish(self) -> Game:
        """Lets the policy play what remains; returns the finished game."""
        return checked(self._session.finish(self._round).games[0])


def checked(game: Game) -> Game:
    """The same game.

    Raises:
        ServiceError: an outage has voided it.
    """
    if game.outage is not None:
        raise ServiceError(game.outage.service, game.outage.what)
    return game


class Quit(Exception):
    """The person has had enough."""


class Terminal:
    """A session as a person reads and types it, with the points so far."""

    def __init__(self, session: Session, role: str) -> None:
        self._session, self._role = session, role
        self._console = Console(highlight=False)
        self.person = self.policy = 0.0
        self.games = 0

    @property
    def score(self) -> str:
        """Points so far, and of how many games."""
        points = f"you {self.person:.2f}, the policy {self.policy:.2f}"
        return f"{points}, after {plural(self.games, 'game')}"

    def play(self, games: int | None) -> None:
        """Plays so many games, or as long as there are questions.

        Raises:
            Quit: the person types it.
            ServiceError: outages have voided several games in a row; they do not count.
        """
        solving, voids = self._role == "solver", 0
        if solving:
            self.say("[dim]The policy is writing questions ...[/dim]")
        dealt: Iterator[Game | None] = self._session.questions() if solving else repeat(None)
        for number, asked in enumerate(dealt, 1):
            try:
                if asked is not None:
                    self._solve(number, asked)
                else:
                    self._propose(number)
                voids = 0
            except ServiceError as error:
                self.say(f"[red]void[/red]: {escape(str(error))}; this game does not count")
                voids += 1
                if voids == OUTAGES:
                    what = f"{error.what}: {OUTAGES} games in a row are void"
                    raise ServiceError(error.service, what) from error
            if self.games == games:
                return
            self.say(f"[dim]{self.score}[/dim]")
        self.say("The policy has not written any valid question for a long while.")

    def say(self, text: str) -> None:
        """Prints a line, with rich's markup."""
        self._console.print(text)

    def panel(self, title: str, text: str) -> None:
        """Prints a frame."""
        self._console.print(Panel(text, title=title, title_align="left", expand=False))

    def _solve(self, number: int, asked: Game) -> None:
        """Lets the person answer a question of the policy's."""
        self.panel(f"question {number}", escape(asked.question or ""))
        part = self._session.solver(asked)
        right, said = False, "skipped"
        if self._turns(part, Action.ANSWER):
            right = part.finish().attempts[0].right
            said = "[green]right[/green]" if right else "[red]not right[/red]"
        self.say(f"{said}: it is [b]{escape(asked.truth.answer)}[/b]")
        self.say(f"the policy found it in {asked.share_right:.0%} of its attempts")
        self._count(float(right), asked.share_right)

    def _propose(self, number: int) -> None:
        """Lets the person ask the policy."""
        part = self._session.proposer()
        answer = escape(part.game.truth.answer)
        self.panel(f"answer {number}", f"write a question whose only answer is [b]{answer}[/b]")
        if not self._turns(part, Action.QUESTION):
            return
        game = part.finish()
        rival = self._session.rival(game)

        if game.outcome is Outcome.VALID:
            tried = ", ".join(escape(a.trajectory.result or "nothing") for a in game.counted)
            self.say(f"[green]valid[/green]: the policy answered {tried}")
            said = f"{game.share_right:.0%} of that is right"
        else:
            read = "" if game.verification is None else f" ({escape(game.verification.detail)})"
            said = f"[red]{game.outcome}[/red]: {_why(game.reason)}{read}"
        points, theirs = game.proposer_reward or 0.0, rival.proposer_reward or 0.0
        self.say(f"{said}, {points:.2f} points for you")
        wrote = escape(rival.question or "no question")
        why = f" ({_why(rival.reason)})" if rival.reason else ""
        self.say(f"the policy itself would have asked: {wrote}{why}, {theirs:.2f} points")
        self._count(points, theirs)

    def _count(self, person: float, policy: float) -> None:
        self.person, self.policy = self.person + person, self.policy + policy
        self.games += 1

    def _turns(self, part: Part, last: Action) -> bool:
        """Lets the person play a trajectory to its end; False if another game is wanted.

        Raises:
            Quit: no more games.
        """
        while not part.trajectory.done:
            try:
                prompt = f"[cyan]{part.searches_left} searches left >[/cyan] "
                key, _, text = self._console.input(prompt).strip().partition(" ")
            except EOFError:
                raise Quit from None
            text = text.strip()
            if key == "q":
                raise Quit
            if key == "n":
                return False
            if key == "s" and not part.searches_left:
                self.say("no searches are left")
            elif key not in ("s", "a") or not text:
                self.say(KEYS[self._role])
            elif unknown := part.unknown_words(text):
                self.say(f"this world has no such word: {escape(', '.join(unknown))}")
            elif key == "s":
                for document in part.write(Action.SEARCH, text):
                    self.panel(escape(document.title), escape(document.text))
            else:
                part.write(last, text)

        if part.trajectory.ending is not Ending.ACTION:
            self.say(f"[red]over[/red]: {_why(part.trajectory.ending)}")
        return True


def _why(reason: str | None) -> str:
    return REASONS.get(reason, escape((reason or "").replace("_", " ")))
