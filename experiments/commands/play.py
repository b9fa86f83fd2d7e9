"""``ssp play``: a person against the policy, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import torch
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model
from experiments.cli import Chosen
from experiments.play import OUTAGES, Part, Session
from experiments.run.checks import check
from experiments.run.process import quiet_libraries
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.types import Action

_KEYS = {
    "solver": "[b]s[/b] words: search   [b]a[/b] words: answer   [b]n[/b]: next question   "
    "[b]q[/b]: quit",
    "proposer": "[b]s[/b] words: search   [b]a[/b] words: ask this question   "
    "[b]n[/b]: another answer   [b]q[/b]: quit",
}

_ENDINGS = {
    Ending.BUDGET_TOKENS: "what you have read and written used up the game's budget of tokens",
    Ending.BUDGET_QUERY: "that query was longer than the game allows",
    Ending.BUDGET_ANSWER: "that answer was longer than the game allows",
}


_REASONS = {
    "empty_question": "there is no question",
    "no_search": "nothing was searched for that a question could rest on",
    "short_question": "the question is too short",
    "long_question": "the question is too long",
    "spoiler": "the question gives its answer away",
    "repeated_query": "a query was repeated",
    "unverified": "the documents that were found do not support the answer",
    "closed_book": "the question can be answered without any search",
}
"""Why a question does not count, for a person to read."""


@dataclass
class Score:
    """Points so far, and of how many games."""

    person: float = 0.0
    policy: float = 0.0
    games: int = 0
    voids: int = 0
    """Games in a row that an outage has voided; they do not count."""

    def add(self, person: float, policy: float) -> None:
        """Counts a game."""
        self.person, self.policy = self.person + person, self.policy + policy
        self.games += 1
        self.voids = 0

    def void(self, error: ServiceError) -> None:
        """Notes a game that does not count.

        Raises:
            ServiceError: none of the last ones did.
        """
        self.voids += 1
        if self.voids == OUTAGES:
            raise ServiceError(error.service, f"{error.what}: {OUTAGES} games in a row are void")

    def __str__(self) -> str:
        games = f"{self.games} game{'' if self.games == 1 else 's'}"
        return f"you {self.person:.2f}, the policy {self.policy:.2f}, after {games}"


class Quit(Exception):
    """The person has had enough."""


class Skip(Exception):
    """The person wants another game."""


def run(chosen: Chosen, *, role: str, games: int | None) -> int:
    """Plays until the person quits, or ``--games`` are played."""
    quiet_libraries()
    config = chosen.config()
    rules, _ = check(config)

    torch.set_num_threads(config.compute.threads)
    model = load_model(config.model_dir, "cuda" if config.compute.gpus_per_env_runner else "cpu")
    engine = TransformersEngine(model, rules.tokenizer, StopRule.of(config.game, rules.tokenizer))

    terminal = Terminal(role)
    session, score = Session(rules, engine, config.seed), Score()
    terminal.rules(config.world, config.game.attempts)
    play = solve if role == "solver" else propose
    try:
        with suppress(Quit):
            for _ in play(terminal, session, score):
                if games is not None and score.games >= games:
                    return 0
                terminal.say(f"[dim]{score}[/dim]")
            terminal.say("The policy has not written any valid question for a long while.")
    finally:
        terminal.say(f"[b]{score}[/b]")
    return 0


def solve(terminal: Terminal, session: Session, score: Score) -> Iterator[None]:
    """Lets the person answer the policy's questions, one game per item."""
    terminal.say("[dim]The policy is writing questions ...[/dim]")
    for number, asked in enumerate(session.questions(), 1):
        terminal.panel(f"question {number}", escape(asked.question))
        part = session.solver(asked)
        right, said = False, "skipped"
        try:
            terminal.turns(part, Action.ANSWER)
            right = part.finish().attempts[0].right
            said = "[green]right[/green]" if right else "[red]not right[/red]"
        except ServiceError as error:
            _void(terminal, score, error)
            yield
            continue
        except Skip:
            pass

        terminal.say(f"{said}: it is [b]{escape(asked.truth.answer)}[/b]")
        terminal.say(f"the policy found it in {asked.solve_rate:.0%} of its attempts")
        score.add(float(right), asked.solve_rate)
        yield


def propose(terminal: Terminal, session: Session, score: Score) -> Iterator[None]:
    """Lets the person ask the policy, one game per item."""
    for number in count(1):
        part = session.proposer()
        answer = escape(part.game.truth.answer)
        terminal.panel(f"answer {number}", f"write a question whose only answer is [b]{answer}[/b]")
        try:
            terminal.turns(part, Action.QUESTION)
            game = part.finish()
            rival = session.rival(game)
        except ServiceError as error:
            _void(terminal, score, error)
            yield
            continue
        except Skip:
            continue

        if game.outcome is Outcome.VALID:
            tried = ", ".join(escape(a.trajectory.result or "nothing") for a in game.counted)
            terminal.say(f"[green]valid[/green]: the policy answered {tried}")
            said = f"{game.share_right:.0%} of that is right"
        else:
            read = "" if game.verification is None else f" ({escape(game.verification.detail)})"
            said = f"[red]{game.outcome}[/red]: {_why(game)}{read}"
        points, theirs = game.proposer_reward or 0.0, rival.proposer_reward or 0.0
        terminal.say(f"{said}, {points:.2f} points for you")
        wrote = escape(rival.question or "no question")
        why = "" if rival.reason is None else f" ({_why(rival)})"
        terminal.say(f"the policy itself would have asked: {wrote}{why}, {theirs:.2f} points")
        score.add(points, theirs)
        yield


def _void(terminal: Terminal, score: Score, error: ServiceError) -> None:
    terminal.say(f"[red]void[/red]: {escape(str(error))}; this game does not count")
    score.void(error)


def _why(game: Game) -> str:
    """Why a proposal failed, in words; a filter of the user's own has its name."""
    reason = game.reason or ""
    return _REASONS.get(reason, escape(reason.replace("_", " ")))


class Terminal:
    """Screen and keyboard of the person who plays."""

    def __init__(self, role: str) -> None:
        self._console, self._role = Console(highlight=False), role

    def rules(self, world: str, attempts: int) -> None:
        """Says how it goes."""
        solver = "Find the answers to the policy's questions, by searching."
        proposer = (
            "You get an answer and write a question that has it, and only it. You are paid for "
            f"what the policy gets wrong in {attempts} attempts, if the question is verified."
        )
        text = solver if self._role == "solver" else proposer
        self.panel(f"search self-play: {world}", f"{text}\n{_KEYS[self._role]}")

    def say(self, text: str) -> None:
        """Prints a line, with rich's markup."""
        self._console.print(text)

    def panel(self, title: str, text: str) -> None:
        """Prints a frame."""
        self._console.print(Panel(text, title=title, title_align="left", expand=False))

    def turns(self, part: Part, last: Action) -> None:
        """Lets the person play a trajectory to its end.

        Raises:
            Quit: no more games.
            Skip: another game.
            ServiceError: an outage has voided the game.
        """
        while not part.over:
            key, text = self._read(part)
            match key:
                case "s" if not part.searches_left:
                    self.say("no searches are left")
                case "s" | "a" if unknown := part.unknown_words(text):
                    self.say(f"this world has no such word: {escape(', '.join(unknown))}")
                case "s" if text:
                    for document in part.write(Action.SEARCH, text):
                        self.panel(escape(document.title), escape(document.text))
                case "a" if text:
                    part.write(last, text)
                case _:
                    self.say(_KEYS[self._role])

        ending = part.trajectory.ending
        if ending is not Ending.ACTION:
            self.say(f"[red]over[/red]: {_ENDINGS.get(ending, str(ending)) if ending else ''}")

    def _read(self, part: Part) -> tuple[str, str]:
        try:
            line = self._console.input(
                f"[cyan]{part.searches_left} searches left >[/cyan] "
            ).strip()
        except EOFError:
            raise Quit from None

        key, _, text = line.partition(" ")
        if key == "q":
            raise Quit
        if key == "n":
            raise Skip
        return key, text.strip()
