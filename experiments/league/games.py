"""The games of a league: each proposer asks about the same answers, each solver tries all of it.

Proposing is a step of self-play, with the noise and the verification of a step; solving is the
second half of one. So what a cell of the matrix holds is what the two would be paid in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from agents.rollout import play
from experiments.config import RunConfig
from experiments.evaluation.answers import with_attempts
from experiments.league.players import Player
from experiments.run.checks import check_model
from experiments.stats import Floats
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game import checked
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth, Question

LEAGUE = "league"
_PROPOSE, _SOLVE = 0x1EA6, 0x501E
"""First numbers of the seeds: the games are none of training's."""


@dataclass(frozen=True)
class Proposals:
    """What one proposer asked, by answer."""

    questions: list[Question | None]
    """``None`` where nothing valid was asked."""
    reasons: list[str | None]
    """The reason code of an invalid game; ``None`` of a valid one."""
    hops: list[int | None]
    """Of valid questions, where the world knows."""


@dataclass(frozen=True)
class Games:
    """All games of a league."""

    proposals: list[Proposals]
    """By proposer."""
    solved: Floats
    """Share of right attempts, of shape (proposers, solvers, answers); NaN without a question."""
    paid: Floats
    """The proposer's reward, of the same shape, invalid questions included."""

    @property
    def valid(self) -> Floats:
        """Share of valid questions, by proposer."""
        return np.array([np.mean([q is not None for q in p.questions]) for p in self.proposals])


def play_league(
    players: Sequence[Player],
    config: RunConfig,
    rules: Rules,
    *,
    answers: int,
    attempts: int,
    tell: Callable[[str], None],
) -> Games:
    """Lets each player propose once, and then answer what all have asked.

    Answers, seeds and the order of everything are the same for all players. A model is loaded
    twice, once per role.

    Args:
        players: policies of one tokenizer.
        config: settings of game, learning (rounds, temperature) and compute; its seed decides all.
        rules: what is played by.
        answers: how many answers each proposer gets.
        attempts: how often each solver tries each question.
        tell: is told what is played.

    Raises:
        ConfigError: a player that does not know the tokens of the others.
        ModelError: a policy that cannot be loaded.
        ServiceError: a service was out, so that some games cannot be compared.
    """
    folders = [config.model_dir if not player.model else Path(player.model) for player in players]
    _check_vocabularies(players, folders, rules)

    proposals = []
    for player, folder in zip(players, folders, strict=True):
        tell(f"{player.name} proposes")
        proposals.append(_propose(_engine(folder, config, rules), config, rules, answers))

    shape = (len(players), len(players), answers)
    solved, paid = np.full(shape, np.nan), np.full(shape, rules.config.invalid_reward)
    tried = with_attempts(rules, attempts)
    for column, (player, folder) in enumerate(zip(players, folders, strict=True)):
        tell(f"{player.name} solves")
        engine = _engine(folder, config, rules)
        for row, asked in enumerate(proposals):
            for place, game in _solve(engine, config, tried, asked):
                solved[row, column, place] = game.share_right
                paid[row, column, place] = checked.proposer_reward(rules, game)
    return Games(proposals, solved, paid)


def _propose(engine: Engine, config: RunConfig, rules: Rules, answers: int) -> Proposals:
    """A proposer's questions, in rounds of the size that training has: noise is of one's round."""
    # Its own solver answers each question once, since a round is played to its end; that is not
    # looked at.
    once = replace(rules, config=rules.config.replace(attempts=1, proposals=1))
    size = config.learning.round_size
    games: list[Game] = []
    for begin in range(0, answers, size):
        seed = [_PROPOSE, config.seed, begin]
        truths = _truths(rules, config.seed, answers)[begin : begin + size]
        round_ = Round(once, _in_turn(truths), len(truths), seed)
        play(round_, engine, temperature=config.learning.temperature)
        games += round_.games

    _check_outages(games)
    valid = [game.outcome is Outcome.VALID for game in games]
    analysed = [rules.world.analyse(game.question) if game.question else None for game in games]
    return Proposals(
        [
            _question(place, game) if fine else None
            for place, (game, fine) in enumerate(zip(games, valid, strict=True))
        ],
        [None if fine else game.reason for game, fine in zip(games, valid, strict=True)],
        [
            found.hops if found is not None and fine else None
            for found, fine in zip(analysed, valid, strict=True)
        ],
    )


def _question(place: int, game: Game) -> Question:
    truth = game.truth
    return Question(
        f"{LEAGUE}-{place}", game.question or "", (truth.answer, *truth.aliases), LEAGUE
    )


def _solve(
    engine: Engine, config: RunConfig, rules: Rules, asked: Proposals
) -> list[tuple[int, Game]]:
    """All valid questions of a proposer, tried by one solver: the place of each, and its game."""
    places = [place for place, question in enumerate(asked.questions) if question is not None]
    games: list[Game] = []
    size = config.learning.round_size
    for begin in range(0, len(places), size):
        part = [asked.questions[place] for place in places[begin : begin + size]]
        questions = [question for question in part if question is not None]
        round_ = Round.of_questions(rules, questions, [_SOLVE, config.seed, begin])
        play(round_, engine, temperature=config.learning.temperature)
        games += round_.games

    _check_outages(games)
    return list(zip(places, games, strict=True))


def _engine(folder: Path, config: RunConfig, rules: Rules) -> Engine:
    return open_engine(
        config.engine,
        folder,
        rules.tokenizer,
        StopRule.of(config.game, rules.tokenizer),
        device="cuda" if config.compute.gpus_per_env_runner else "cpu",
        longest=rules.longest_trajectory,
    )


def _truths(rules: Rules, seed: int, count: int) -> list[GroundTruth]:
    """The answers that every proposer gets, each once unless there are fewer."""
    known = rules.world.answers
    rng = np.random.default_rng([_PROPOSE, seed])
    return [known[i] for i in rng.choice(len(known), count, replace=count > len(known))]


def _in_turn(
    truths: Sequence[GroundTruth],
) -> Callable[[np.random.Generator, int], Sequence[GroundTruth]]:
    """Deals these answers, whatever the generator."""

    def answers(rng: np.random.Generator, count: int) -> Sequence[GroundTruth]:
        return truths[:count]

    return answers


def _check_vocabularies(players: Sequence[Player], folders: Sequence[Path], rules: Rules) -> None:
    for player, folder in zip(players, folders, strict=True):
        check_model(folder)
        pieces = HuggingFaceTokenizer.load(folder).pieces
        if pieces != rules.tokenizer.pieces:
            fix = "all players need one tokenizer, since one reads what another has written"
            raise ConfigError("player", player.name, fix)


def _check_outages(games: Sequence[Game]) -> None:
    """
    Raises:
        ServiceError: a game is void, so that players would not have played the same games.
    """
    for game in games:
        outage = game.outage or next((a.outage for a in game.attempts if a.outage), None)
        if outage is not None:
            raise ServiceError(outage.service, f"{outage.what}: a league needs all of its games")
