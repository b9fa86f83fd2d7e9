"""Drives games one after another, from a seed: the same ones behind every interface. Roles that are
not yours are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np

from ssp_env.envs.observation import Info, info_of
from ssp_env.errors import (
    ConfigError,
    RenderModeError,
    ServiceError,
    UsageError,
    check_part,
    named_values,
    one_of,
    whole_number,
)
from ssp_env.game.batch import GameBatch, check_questions
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.game.transcript import LiveView, render_ansi
from ssp_env.players import Player, scripted_player
from ssp_env.types import GroundTruth, Question, Role
from ssp_env.worlds import WORLDS

MOST_RESTARTS = 100
"""Games in a row that may end before one's first turn."""
RENDER_MODES = ["ansi", "human"]


class GameDriver:
    """Drives one game after another, of both roles, or of one, where a player plays the rest.

    After ``reset(seed)``, the k-th game is the same whichever interface it is played through."""

    def __init__(
        self,
        rules: Rules,
        role: str | None = None,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """``role`` is the one that is yours, both when not given; the others as of
        :class:`~ssp_env.envs.one_role.OneRoleEnv`."""
        if role is not None:
            one_of("role", role, ("proposer", "solver"))
            role = Role(role)
        if render_mode is not None and render_mode not in RENDER_MODES:
            hint = f"; a world is named as world={render_mode!r}" if render_mode in WORLDS else ""
            fix = f"choose 'ansi', 'human' or None{hint}"
            raise RenderModeError("render_mode", render_mode, fix)
        if questions is not None:
            if role is Role.PROPOSER:
                raise ConfigError("questions", questions, "only a solver is given questions")
            if not questions or not all(isinstance(question, Question) for question in questions):
                fix = "give a list of Questions; ssp_env.worlds.questions.read_questions makes one "
                raise ConfigError("questions", questions, f"{fix}of a file")
            check_questions(rules, questions)
        if other is not None:
            check_part("other", other, "play")
        if questions is None and not rules.world.answers:
            fix = "this world has no answers to play from; give it some, or play questions"
            raise ConfigError("world.answers", [], fix)

        if role is Role.SOLVER and rules.config.attempts > 1:
            # An episode is one trajectory: nobody would play the other attempts.
            rules = replace(rules, config=rules.config.replace(attempts=1))
        self.rules, self.role, self.render_mode = rules, role, render_mode
        self.other = None if role is None else other or scripted_player(rules)
        self.info: Info = {}
        """State of the game at the beginning of your turn, or at its end."""
        self.needs_turn = role is not None
        """True if games that end before your first turn are begun again, with the same options."""
        self._questions, self._live = questions, LiveView(rules)
        self._rng: np.random.Generator | None = None
        self._options: Mapping[str, Any] | None = None
        self._batch: GameBatch | None = None
        self._own: Trajectory | None = None

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the next game, and plays it to your first turn.

        Args:
            seed: decides every draw of this and the following games; ``None`` continues, or draws
                one from the system at first.
            options: subject of the game: ``answer`` (a string, or a ``GroundTruth``) plays about
                this answer, ``question`` (a ``Question``) lets the solver answer it; ``None``
                counts as not given.
        """
        self.begin(seed, options)
        self._play_on()

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the next game, and plays none of it; arguments as of :meth:`reset`."""
        if seed is not None or self._rng is None:
            whole = None if seed is None else whole_number("seed", seed, 0)
            self._rng = np.random.default_rng(whole)
        self._options = options
        self._start_game()

    def advance(self) -> None:
        """Plays on to your next turn, or to the end of the game."""
        self._play_on()
        if self.render_mode == "human":
            self._live.show(self.game)

    @property
    def batch(self) -> GameBatch:
        if self._batch is None:
            raise UsageError("call reset() first")
        return self._batch

    @property
    def game(self) -> Game:
        return self.batch.games[0]

    @property
    def over(self) -> bool:
        return self.batch.done

    @property
    def trajectory(self) -> Trajectory:
        """Your trajectory, which may have ended."""
        if self._own is None:
            raise UsageError("call reset() first")
        return self._own

    @property
    def turn(self) -> Trajectory:
        """Your trajectory, which waits for tokens."""
        if self.over:
            raise UsageError("the game is over: call reset()")
        return self.trajectory

    @property
    def result(self) -> tuple[Any, bool, bool]:
        """Reward (of both agents by name, where you play both; 0 in the middle of a game),
        terminated, truncated. A void game pays nothing and is truncated, since an outage does not
        end play."""
        game, over = self.game, self.over
        paid = {"proposer": game.proposer_reward, "solver": game.solver_reward}
        rewards = {agent: float(reward or 0.0) for agent, reward in paid.items()}
        void = game.outcome is Outcome.VOID
        reward = rewards if self.role is None else rewards[self.role.value]
        return reward, over and not void, over and void

    def render(self) -> str | None:
        """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
        match self.render_mode:
            case "ansi":
                return render_ansi(self.game, self.rules)
            case "human":
                LiveView(self.rules).show(self.game)
            case None:
                gym.logger.warn("render() was called without a render_mode")
        return None

    def _play_on(self) -> None:
        """Plays all other turns until it is yours or the game is over."""
        for games in count(1):
            self.batch.advance()
            # Of other roles, the verifier and the closed book are played too, all in one call.
            while self.other is not None and (
                others := [t for t in self.batch.pending() if t.role != self.role]
            ):
                self._play_others(self.other, others)
                self.batch.advance()

            self._own = next(iter(self.batch.pending()), self._own)
            self.info = info_of(self.batch)
            if self._own is not None or not self.needs_turn:
                return
            if games > MOST_RESTARTS:
                what = f"{MOST_RESTARTS} games in a row ended before your first turn"
                if self.game.outcome is Outcome.VOID:
                    raise ServiceError(str(self.game.reason), what)
                fix = "see that the budgets and the other player suit this game"
                raise UsageError(f"{what}, the last one as {self.game.reason}; {fix}")
            self._start_game()

    def _play_others(self, other: Player, turns: Sequence[Trajectory]) -> None:
        try:
            other.play(turns)
        except ServiceError as error:
            self.batch.void([t for t in turns if t.waiting is Waiting.POLICY], error)  # not written
            return

        for trajectory in turns:
            if trajectory.waiting is Waiting.POLICY:
                what = f"the player left a {trajectory.role}'s turn unfinished"
                raise UsageError(f"{what}: write it with feed_turn()")

    def _start_game(self) -> None:
        assert self._rng is not None
        subject = _subject(self._options, self.rules)
        if self.role is Role.PROPOSER and isinstance(subject, Question):
            raise UsageError("the question is given: there is nothing to propose")

        # Drawn whatever is played, so that options do not shift the games that follow.
        seed = [int(self._rng.integers(1 << 62))]
        if subject is None and self._questions is not None:
            subject = self._questions[int(self._rng.integers(len(self._questions)))]
        if isinstance(subject, Question):
            self._batch = GameBatch.of_questions(self.rules, [subject], seed)
        else:
            self._batch = GameBatch(self.rules, partial(_answers, self.rules, subject), 1, seed)
        self._own = None


def _subject(options: Mapping[str, Any] | None, rules: Rules) -> GroundTruth | Question | None:
    # PettingZoo's API tests pass {"options": 1} to see whether options are taken at all.
    fix = "give an answer (a string or a GroundTruth) or a question (a Question), or neither"
    given = named_values("options", options or {}, fix)
    match [(n, v) for n, v in given.items() if v is not None and n != "options"]:
        case []:
            return None
        case [("question", Question() as question)]:
            check_questions(rules, [question])
            return question
        case [("answer", GroundTruth() | str() as answer)]:
            truth = GroundTruth("given", answer) if isinstance(answer, str) else answer
            if truth.answer.strip() and rules.prompts.can_spell(truth.answer):
                return truth
            why = "it is blank, or the tokenizer has no tokens for some of it; choose other words"
            raise UsageError(f"options['answer'] = {truth.answer!r}: {why}")
    raise UsageError(f"options = {options!r}: {fix}")


# A function with a name, since it is copied and pickled with a game that has begun.
def _answers(
    rules: Rules, given: GroundTruth | None, rng: np.random.Generator, count: int
) -> list[GroundTruth]:
    if given is not None:
        return [given] * count
    answers = rules.world.answers
    return [answers[int(rng.integers(len(answers)))] for _ in range(count)]
