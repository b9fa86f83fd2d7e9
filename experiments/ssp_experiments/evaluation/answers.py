"""Answers of a policy to fixed questions, in several attempts at each."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import track

from ssp_agents.engines.base import Engine, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_env.disk import replacing
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.players import Player
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedGame, SavedRules, game_lines
from ssp_env.types import Question
from ssp_experiments.config import RunConfig
from ssp_experiments.evaluation.scores import outage_of
from ssp_experiments.run.progress import heartbeat

CHUNK = 256
"""Questions that are answered side by side."""

Answers = Callable[[Round], Round]
"""Plays a round to its end."""


def engine_of(config: RunConfig, rules: Rules, policy: Path) -> Engine:
    """An engine with a policy, in this process."""
    return open_engine(
        config.engine,
        policy,
        rules.tokenizer,
        StopRule.of(config.game, rules.tokenizer),
        device="cpu" if config.compute.gpus == "none" else "cuda",
        longest=rules.longest_trajectory,
        tensor_parallel=config.compute.tensor_parallel,
    )


def by_player(player: Player) -> Answers:
    """A player, such as a model behind an API."""

    def answers(round_: Round) -> Round:
        while pending := round_.pending():
            try:
                player.play(pending)
            except ServiceError as error:
                # Finished turns stand; trajectories that still wait for the player are void.
                lost = {trajectory.key for trajectory in pending}
                round_.void([t for t in round_.pending() if t.key in lost], error)
            round_.advance()
        return round_

    return answers


def answer(
    rules: Rules, questions: Sequence[Question], answers: Answers, seed: Sequence[int]
) -> list[GameRecord]:
    """Answers questions side by side, as often as ``attempts`` of the rules; one record each."""
    round_ = answers(Round.of_questions(rules, questions, list(seed)))
    return [
        record_game(game, rules, question_group=question.group)
        for game, question in zip(round_.games, questions, strict=True)
    ]


def answer_all(
    config: RunConfig,
    rules: Rules,
    questions: Sequence[Question],
    answers: Answers,
    made_by: object,
    out: Path | None,
) -> list[GameRecord]:
    """Games about all questions, chunk by chunk.

    With ``out``, they are in a file next to it until all are there. An evaluation that was stopped
    takes its chunks from there, but for those that an outage has hit. It is continued by the same
    policy and sampling alone, ``made_by``.
    """
    header = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
    # Everything that decides the answers: another evaluation has another file.
    files = sorted(config.model_dir.resolve().glob("*.safetensors"))
    weights = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    decides = (header.fingerprint, made_by, weights, config.game, config.seed, questions)
    digest = hashlib.sha256(repr(decides).encode()).hexdigest()[:8]
    part = out.with_name(f"{out.name}.{digest}.part") if out else None
    held = [saved.record for saved in read_games(part)] if part and part.exists() else []

    records, console = list[GameRecord](), Console(stderr=True)
    begins = range(0, len(questions), CHUNK)
    bar = track(begins, description="answering", console=console, transient=True)
    try:
        with heartbeat(lambda text: console.print(text, highlight=False)):
            for begin in bar:
                asked = questions[begin : begin + CHUNK]
                chunk = held[begin : begin + CHUNK]
                # A chunk with an outage is asked again as a whole: it has one seed.
                if len(chunk) < len(asked) or any(map(outage_of, chunk)):
                    chunk = answer(rules, asked, answers, [config.seed, begin])
                    outages = [outage for record in chunk if (outage := outage_of(record))]
                    if len(outages) == len(chunk):
                        what = f"{len(chunk)} questions in a row were void, the first by: "
                        raise ServiceError(outages[0].service, what + outages[0].what)
                    if part:
                        known = [*records, *chunk, *held[begin + CHUNK :]]
                        with replacing(part) as file:
                            file.writelines(game_lines(SavedGame(header, each) for each in known))
                records += chunk
    except KeyboardInterrupt:
        if out:
            done = f"{len(records)} of {len(questions)} questions"
            print(f"ssp: stopped; the same command goes on after {done}", file=sys.stderr)
        raise

    if out and part:
        part.rename(out)
    return records
