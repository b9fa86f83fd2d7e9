"""Answers of a policy to fixed questions: with search, several attempts each, or from memory."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import track

from agents.engines.base import Engine, Request, StopRule, generate
from agents.engines.opening import open_engine
from experiments.config import RunConfig
from experiments.evaluation.scores import outage_of
from experiments.run.progress import heartbeat
from ssp_env.disk import replacing, unwritten
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.referee import ask_each
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.players import Player
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedGame, SavedRules, game_lines
from ssp_env.types import Question, Role

CHUNK = 256
"""Questions that are answered side by side."""

_MEMORY = 0x3E30
"""Sets the random numbers of answers from memory apart."""

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

    With ``out``, each chunk has a file in a folder next to it until all are there. An evaluation
    that was stopped takes its chunks from there, but for those that an outage has hit. It is
    continued by the same policy and sampling alone, ``made_by``.
    """
    header = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
    # Everything that decides the answers: another evaluation has another folder.
    files = sorted(config.model_dir.resolve().glob("*.safetensors"))
    weights = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    decides = (header.fingerprint, made_by, weights, config.game, config.seed, questions)
    digest = hashlib.sha256(repr(decides).encode()).hexdigest()[:8]
    folder = out.with_name(f"{out.name}.{digest}.part") if out else None
    try:
        if folder:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritten(out or Path(), error) from error

    records, console = list[GameRecord](), Console(stderr=True)
    begins = range(0, len(questions), CHUNK)
    bar = track(begins, description="answering", console=console, transient=True)
    try:
        with heartbeat(lambda text: console.print(text, highlight=False)):
            for begin in bar:
                part = folder / f"{begin:06d}.jsonl" if folder else None
                held = read_games(part) if part and part.exists() else ()
                chunk = [saved.record for saved in held]
                if not chunk or any(map(outage_of, chunk)):
                    asked = questions[begin : begin + CHUNK]
                    chunk = answer(rules, asked, answers, [config.seed, begin])
                    outages = [outage for record in chunk if (outage := outage_of(record))]
                    if len(outages) == len(chunk):
                        what = f"{len(chunk)} questions in a row were void, the first by: "
                        raise ServiceError(outages[0].service, what + outages[0].what)
                    if part:
                        games = (SavedGame(header, record) for record in chunk)
                        with replacing(part) as file:
                            file.writelines(game_lines(games))
                records += chunk
    except KeyboardInterrupt:
        if out:
            done = f"{len(records)} of {len(questions)} questions"
            print(f"ssp: stopped; the same command goes on after {done}", file=sys.stderr)
        raise
    finally:
        if folder and not any(folder.iterdir()):
            folder.rmdir()

    if out and folder:
        with replacing(out) as file:
            for part in sorted(folder.iterdir()):
                file.write(part.read_text(encoding="utf-8"))
        shutil.rmtree(folder)
    return records


def from_memory(
    rules: Rules, questions: Sequence[Question], engine: Engine, seed: int
) -> list[bool | None]:
    """Verdicts on one greedy answer per question without search; ``None`` after an outage.

    Limits, judge and prompt are those of the closed-book gate.
    """
    verdicts: list[Verdict | ServiceError] = []
    for begin in range(0, len(questions), CHUNK):
        asked = questions[begin : begin + CHUNK]
        written = [
            Trajectory(rules.limits[Role.CLOSED_BOOK], rules.prompts.closed_book(q.text), q.text)
            for q in asked
        ]
        requests = [Request(t.key, t.ids, t.tokens_left, 0.0, _MEMORY + seed) for t in written]
        for trajectory, generation in zip(written, generate(engine, requests), strict=True):
            trajectory.feed_turn(generation.ids, generation.logprobs)

        engine.release([trajectory.key for trajectory in written])
        tasks = [
            JudgeTask(q.text, t.result or "", q.truth) for q, t in zip(asked, written, strict=True)
        ]
        verdicts += ask_each(rules.judge.judge, tasks)
    return [None if isinstance(one, ServiceError) else bool(one.correct) for one in verdicts]
