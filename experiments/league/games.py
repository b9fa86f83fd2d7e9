"""Players and games of a league: each proposer asks about the same answers, each solver tries all.

Players are the policies of runs at every checkpoint that is there, and any others. Proposing is a
step of self-play, with the noise and the verification of a step; solving is the second half of one.
So a cell of the matrix holds what the two would be paid in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from agents.rollout import play
from experiments.config import RunConfig
from experiments.run.checks import check_model
from experiments.run.rundir import RunDirectory
from experiments.stats import Floats
from ssp_env.errors import ConfigError, RunError, ServiceError
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
class Player:
    """A policy; it plays both roles."""

    name: str
    model: str
    """Its model directory; empty: the tiny policy that ships."""
    step: int | None = None
    """Steps that it has learnt in its run; ``None`` of a policy that is of no run."""


def find_players(targets: Sequence[str]) -> list[Player]:
    """The players that a command line names, in its order; a policy that is named twice plays once.

    Args:
        targets: run directories, which stand for the policy that they began with and for all
            checkpoints that are there; and policies, as ``DIR`` or ``NAME=DIR``.
    """
    runs = [target for target in targets if _is_run(target)]
    found: dict[str, Player] = {}
    for target in targets:
        several = len(runs) > 1
        for player in _of_run(target, several) if target in runs else [_named(target)]:
            if player.model in [known.model for known in found.values()]:
                continue
            if player.name in found and player.step == 0:
                player = replace(player, name=f"{Path(target).resolve().name} base")
            if player.name in found:
                fix = f"two players have this name; write one as NAME={player.model}"
                raise ConfigError("player", player.name, fix)
            found[player.name] = player

    if len(found) < 2:
        fix = "give a run with checkpoints (checkpoints_kept: null keeps all), or two policies"
        raise ConfigError("players", list(found), fix)
    return [*found.values()]


def settings_of(targets: Sequence[str]) -> dict[str, Any] | None:
    """The settings of the first run among these; ``None`` if there is none."""
    runs = [target for target in targets if _is_run(target)]
    return RunDirectory(runs[0]).read_config() if runs else None


def _is_run(target: str) -> bool:
    run = RunDirectory(target)
    return run.config.exists() and run.metrics.exists()


def _of_run(target: str, several: bool) -> list[Player]:
    run = RunDirectory(target)
    prefix = f"{run.path.resolve().name} " if several else ""
    checkpoints = [(step, folder / "policy") for step, folder in run.kept_checkpoints()]
    if not checkpoints:
        raise RunError(f"{run.path} has no checkpoint")

    base = str(run.read_config().get("model", ""))
    steps = [Player(f"{prefix}step {step}", str(folder), step) for step, folder in checkpoints]
    # Runs often begin with the same policy, which is one player then.
    return [Player("base", base, 0), *steps]


def _named(target: str) -> Player:
    name, equals, folder = target.partition("=")
    path = Path(folder if equals else target)
    if not (path / "config.json").is_file():
        fix = "no run directory, and no model directory (config.json is missing)"
        raise ConfigError("player", target, fix)
    return Player(name if equals else path.name, str(path))


@dataclass(frozen=True)
class Proposal:
    """Question that a proposer made of an answer, if it was valid."""

    question: Question | None
    """``None`` where nothing valid was asked."""
    reason: str | None = None
    """Reason code of an invalid game."""
    hops: int | None = None
    """Of a valid question, where the world knows."""


@dataclass(frozen=True)
class Games:
    """All games of a league."""

    proposals: list[list[Proposal]]
    """By proposer and answer."""
    solved: Floats
    """Share of right attempts, of shape (proposers, solvers, answers); NaN without a question."""
    paid: Floats
    """The proposer's reward, of the same shape, invalid questions included."""


def play_league(
    players: Sequence[Player],
    config: RunConfig,
    rules: Rules,
    *,
    answers: int,
    attempts: int,
    report: Callable[[str], None],
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
        report: takes a line about what is played.

    Raises:
        ConfigError: a player that does not know the tokens of the others.
        ModelError: a policy that cannot be loaded.
        ServiceError: a service was out, so that some games cannot be compared.
    """
    folders = [Path(player.model) if player.model else config.model_dir for player in players]
    for player, folder in zip(players, folders, strict=True):
        check_model(folder)
        if HuggingFaceTokenizer.load(folder).pieces != rules.tokenizer.pieces:
            fix = "all players need one tokenizer, since one reads what another has written"
            raise ConfigError("player", player.name, fix)

    proposals = []
    for player, folder in zip(players, folders, strict=True):
        report(f"{player.name} proposes")
        proposals.append(_propose(_engine(folder, config, rules), config, rules, answers))

    shape = (len(players), len(players), answers)
    solved, paid = np.full(shape, np.nan), np.full(shape, rules.config.invalid_reward)
    tried = replace(rules, config=rules.config.replace(attempts=attempts))
    for column, (player, folder) in enumerate(zip(players, folders, strict=True)):
        report(f"{player.name} solves")
        engine = _engine(folder, config, rules)
        for row, asked in enumerate(proposals):
            valid = [(place, each.question) for place, each in enumerate(asked) if each.question]
            games = _solve(engine, config, tried, [question for _, question in valid])
            for (place, _), game in zip(valid, games, strict=True):
                solved[row, column, place] = game.share_right
                paid[row, column, place] = rules.proposer_reward(game)
    return Games(proposals, solved, paid)


def _propose(engine: Engine, config: RunConfig, rules: Rules, answers: int) -> list[Proposal]:
    """A proposer's questions, in rounds of the size that training has: noise is of one's round."""
    # A round is played to its end, so the proposer's own solver tries each question; once will do.
    once = replace(rules, config=rules.config.replace(attempts=1, proposals=1))
    # All proposers get the same answers, each once unless there are fewer.
    known, rng = rules.world.answers, np.random.default_rng([_PROPOSE, config.seed])
    dealt = [known[i] for i in rng.choice(len(known), answers, replace=answers > len(known))]
    size = config.learning.round_size
    games: list[Game] = []
    for begin in range(0, answers, size):

        def deal(_: object, count: int, begin: int = begin) -> list[GroundTruth]:
            return dealt[begin : begin + count]

        seed = [_PROPOSE, config.seed, begin]
        round_ = Round(once, deal, min(size, answers - begin), seed)
        games += play(round_, engine, temperature=config.learning.temperature).games

    _check_outages(games)
    proposals = []
    for place, game in enumerate(games):
        if game.outcome is not Outcome.VALID or not game.question:
            proposals.append(Proposal(None, game.reason))
            continue
        found = rules.world.analyse(game.question)
        wordings = (game.truth.answer, *game.truth.aliases)
        question = Question(f"{LEAGUE}-{place}", game.question, wordings, LEAGUE)
        proposals.append(Proposal(question, hops=found.hops if found is not None else None))
    return proposals


def _solve(
    engine: Engine, config: RunConfig, rules: Rules, questions: Sequence[Question]
) -> list[Game]:
    """One game per question of a proposer, tried by one solver."""
    games: list[Game] = []
    size = config.learning.round_size
    for begin in range(0, len(questions), size):
        seed = [_SOLVE, config.seed, begin]
        round_ = Round.of_questions(rules, questions[begin : begin + size], seed)
        games += play(round_, engine, temperature=config.learning.temperature).games

    _check_outages(games)
    return games


def _engine(folder: Path, config: RunConfig, rules: Rules) -> Engine:
    return open_engine(
        config.engine,
        folder,
        rules.tokenizer,
        StopRule.of(config.game, rules.tokenizer),
        device="cuda" if config.compute.gpus_per_env_runner else "cpu",
        longest=rules.longest_trajectory,
    )


def _check_outages(games: Sequence[Game]) -> None:
    """
    Raises:
        ServiceError: a game is void, so that players would not have played the same games.
    """
    for game in games:
        outage = game.outage or next((a.outage for a in game.attempts if a.outage), None)
        if outage is not None:
            raise ServiceError(outage.service, f"{outage.what}: a league needs all of its games")
