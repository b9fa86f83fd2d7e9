"""``ssp play``: games between a person and the policy, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, repeat

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from ssp_agents.engines.base import Engine
from ssp_agents.rollout import play
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.game import Game, InitialState, Origin
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.rules import Rules
from ssp_env.types import Action, GroundTruth
from ssp_experiments.evaluation import players_of
from ssp_experiments.options import Chosen, plural
from ssp_experiments.run.checks import open_run
from ssp_experiments.run.process import quiet_libraries

QUESTIONS_AT_ONCE = 8
"""Games of self-play that are played at a time, for their questions."""
_QUESTIONS, _PERSON = 0x9E57, 0x5EA7
"""First numbers of the seeds of the policy's questions and of the person's games."""

KEYS = "[b]s[/b] words: search   [b]a[/b] words: {}   [b]n[/b]: another one   [b]q[/b]: quit"
LAST = {"solver": "answer", "proposer": "ask this question"}
TASKS = {
    "solver": "Find the answers to the policy's questions, by searching.",
    "proposer": "You get an answer and write a question that has it, and only it. You are paid for "
    "what the policy gets wrong in {attempts} attempts, if the question is verified.",
}


def run(chosen: Chosen, *, role: str, games: int | None) -> int:
    """Plays until the person quits, or ``--games`` are played."""
    quiet_libraries()
    config = chosen.config(values=chosen.start())
    if role == "proposer" and config.game.proposer_chooses:
        fix = "a person is told the answer, and types one line: leave it out"
        raise ConfigError("game.answers", config.game.answers, fix)
    rules, _ = open_run(config.replace(per_group=1))  # a question is needed for checks alone
    session = Session(rules, players_of(config, rules), config.seed, role)
    task = TASKS[role].format(attempts=config.game.attempts)
    session.panel(f"search self-play: {config.world}", f"{task}\n{session.keys}")
    try:
        with suppress(EOFError):  # the person types q, or Ctrl-D
            session.play(games)
    finally:
        session.say(f"[b]{session.score}[/b]")
    return 0


class Session:
    """Games between a person, in a role, and the policy, with their points so far.

    The seed decides every game."""

    def __init__(self, rules: Rules, engine: Engine, seed: int, role: str) -> None:
        self.rules, self.engine, self.seed, self.role = rules, engine, seed, role
        self.keys = KEYS.format(LAST[role])
        self._answers = answers_of(rules.world)
        self._console = Console(highlight=False)
        self.say = self._console.print
        self._points: list[tuple[float, float]] = []
        """The person's and the policy's, of each game that counts."""

    @property
    def score(self) -> str:
        """Points so far, and of how many games."""
        person, policy = np.sum([(0.0, 0.0), *self._points], axis=0)
        points = f"you {person:.2f}, the policy {policy:.2f}"
        return f"{points}, after {plural(len(self._points), 'game')}"

    def play(self, games: int | None = None) -> None:
        """Plays so many games, or until the person quits; void ones do not count."""
        solving = self.role == "solver"
        if solving:
            self.say("[dim]The policy is writing questions ...[/dim]")
        questions: Iterator[Game | None] = self.questions() if solving else repeat(None)
        for number, asked in enumerate(questions):
            seed = (_PERSON, self.seed, number)
            try:
                if asked is not None:
                    self.solve(asked, seed)
                else:
                    (truth,) = self._answers(np.random.default_rng(seed), 1)
                    self.propose(truth, seed)
            except ServiceError as error:
                self.say(f"[red]void[/red]: {escape(str(error))}; this game does not count")
            if len(self._points) == games:
                return
            self.say(f"[dim]{self.score}[/dim]")

    def questions(self) -> Iterator[Game]:
        """Valid games of the policy's own, easy and hard, as self-play makes them."""
        for number in count():
            batch = GameBatch(
                self.rules, self._answers, QUESTIONS_AT_ONCE, [_QUESTIONS, self.seed, number]
            )
            games = play(batch, self.engine, temperature=1.0).games
            valid = [game for game in games if game.outcome is Outcome.VALID]
            yield from valid
            if not valid:
                self.say("[dim]None of them is valid; it writes others ...[/dim]")
                for game in games:
                    raise_outage(game)

    def solve(self, asked: Game, seed: tuple[int, ...]) -> None:
        """Lets the person answer the question of a game, once."""
        self.panel("question", escape(asked.question or ""))
        once = replace(self.rules, config=self.rules.config.replace(attempts=1))
        state = InitialState(seed, 0, 0, asked.truth, Origin.GIVEN, question=asked.question)
        game = self._turns(GameBatch.from_initial_states(once, [state]), Action.ANSWER)
        right = game is not None and game.attempts[0].right
        said = "[green]right[/green]" if right else "[red]not right[/red]"
        self.say(f"{said if game else 'skipped'}: it is [b]{escape(asked.truth.answer)}[/b]")
        self.say(f"the policy found it in {asked.share_right:.0%} of its attempts")
        self._points.append((float(right), asked.share_right))

    def propose(self, truth: GroundTruth, seed: tuple[int, ...]) -> None:
        """Lets the person ask the policy a question with this answer."""
        self.panel("answer", f"write a question whose only answer is [b]{escape(truth.answer)}[/b]")
        state = InitialState(seed, 0, 0, truth, Origin.PROPOSED, 1)
        game = self._turns(GameBatch.from_initial_states(self.rules, [state]), Action.QUESTION)
        if game is None:
            return

        points, theirs = game.proposer_reward or 0.0, 0.0
        if game.outcome is Outcome.VALID:
            theirs = game.share_right
            tried = ", ".join(escape(a.trajectory.result or "nothing") for a in game.counted)
            said = f"[green]valid[/green]: the policy answered {tried}; {theirs:.0%} of it is right"
        else:
            read = "" if game.verification is None else f" ({escape(game.verification.detail)})"
            said = f"[red]{game.outcome}[/red]: {_words(game.reason)}{read}"
        self.say(f"{said}, {points:.2f} points for you")
        self._points.append((points, theirs))

    def _turns(self, batch: GameBatch, last: Action) -> Game | None:
        """The game, once the person has written a trajectory and the policy all others; ``None`` if
        the person wants another one."""
        trajectory, game = batch.pending()[0], batch.games[0]
        tags, tokenizer = self.rules.tags, self.rules.tokenizer
        while not trajectory.done:
            left = trajectory.limits.max_searches - len(trajectory.searches)
            tools = trajectory.limits.tools
            actions = {"s": "search", "a": last.value} | dict(zip(tools, tools, strict=True))
            line = self._console.input(f"[cyan]{left} searches left >[/cyan] ")
            key, _, text = line.strip().partition(" ")
            if key == "q":
                raise EOFError
            if key == "n":
                return None

            # The policy would read a blank in place of a word that the tokenizer cannot spell.
            unknown_id = getattr(tokenizer, "unknown_id", None)
            unknown = [w for w in text.split() if unknown_id in tokenizer.encode_data(w)]
            if key not in actions or not text.strip() or (key != "a" and not left):
                self.say(self.keys)
            elif unknown:
                self.say(f"this world has no such word: {escape(', '.join(unknown))}")
            else:
                action, before = actions[key], len(trajectory.searches)
                turn = f"{tags.opening(action)} {text.strip()} {tags.closing(action)}"
                trajectory.feed_text(turn)
                batch.advance()
                raise_outage(game)
                for search in trajectory.searches[before:]:
                    for document in search.documents:
                        self.panel(escape(document.title), escape(document.text))

        if trajectory.ending is not Ending.ACTION:
            self.say(f"[red]over[/red]: {_words(trajectory.ending)}")
        play(batch, self.engine, temperature=1.0)
        raise_outage(game)
        return game

    def panel(self, title: str, text: str) -> None:
        self._console.print(Panel(text, title=title, title_align="left", expand=False))


def raise_outage(game: Game) -> None:
    """Raises the ``ServiceError`` that has voided a game, if one has."""
    if game.outage is not None:
        raise ServiceError(game.outage.service, game.outage.what)


def _words(reason: str | None) -> str:
    return escape((reason or "").replace("_", " "))
