"""``ssp eval``: scores of one policy on questions that it never trains on, or of two."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from json import dumps
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from experiments.cli import DEFAULT_PRESET, Chosen
from experiments.config import RunConfig, load_preset
from experiments.evaluation.answers import (
    CHUNK,
    Answers,
    answer,
    by_engine,
    by_player,
    from_memory,
)
from experiments.evaluation.retrievers import with_retriever
from experiments.evaluation.scores import answered, outage_of
from experiments.evaluation.tables import Evaluated, as_data, show, show_comparison
from experiments.run.checks import check, check_model
from experiments.run.process import quiet_libraries
from experiments.run.progress import heartbeat
from ssp_env.disk import replacing, unwritten
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.parts import fingerprint
from ssp_env.game.prompts.formats import format_settings
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.judges import name_of
from ssp_env.players import ChatPlayer
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedGame, game_lines
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question
from ssp_env.worlds.files import read_questions, sample_questions


def run(
    chosen: Chosen,
    targets: Sequence[str],
    *,
    per_group: int | None = None,
    questions: str | None = None,
    attempts: int | None = None,
    prompts: str | None = None,
    closed_book: bool = False,
    retriever: str | None = None,
    player: str = "engine",
    json: bool = False,
    out: str | None = None,
) -> int:
    """Prints accuracies with intervals; see :func:`experiments.cli.evaluate`."""
    quiet_libraries()
    if closed_book and player == "api":
        raise ConfigError("--closed-book", True, "needs the model here, not behind an API")
    _check_targets(chosen.model, targets, out)

    evaluated = list[Evaluated]()
    policies: list[str | None] = [*targets] if targets else [chosen.model]
    for target in policies:
        if target is not None and Path(target).is_file():
            evaluated.append(_read(target))
            continue
        config = evaluation_config(
            replace(chosen, model=target), per_group=per_group, attempts=attempts, prompts=prompts
        )
        given = None if questions is None else list(read_questions(questions))
        drawn = any(text.startswith("evaluation.per_group") for text in chosen.set or ())
        if given and (per_group is not None or drawn):
            given = sample_questions(given, config.evaluation.seed, config.evaluation.per_group)
        one = _evaluate(config, given, closed_book, retriever, player, Path(out) if out else None)
        asked = "unseen questions" if given is None else f"the questions of {questions}"
        evaluated.append(replace(one, asked=asked))

    seed = chosen.seed or 0
    if json:
        print(dumps(as_data(evaluated, seed), indent=2))
        return 0
    for place, one in enumerate(evaluated):
        if place:
            print()
        show(one, seed)
    if len(evaluated) == 2:
        show_comparison(evaluated[0], evaluated[1], seed)
    return 0


def _check_targets(model: str | None, targets: Sequence[str], out: str | None) -> None:
    """
    Raises:
        ConfigError: options that exclude each other, or a file that is there already.
        ModelError: a policy that is not there.
    """
    if model is not None and targets:
        raise ConfigError("--model", model, "name the model once, without --model")
    if len(targets) > 2:
        raise ConfigError("the third policy", targets[2], "at most two are compared")
    if len(targets) == 2 and out:
        fix = "evaluate one policy at a time with --out, then compare the two files"
        raise ConfigError("--out", out, fix)
    if out and Path(out).exists():
        shown = f"ssp eval {shlex.quote(out)} shows it"
        fix = f"it is there already; {shown}, or remove it or name another file"
        raise ConfigError("--out", out, fix)

    # Before the first is evaluated: the second may be misspelt.
    for target in targets[1:]:
        if not Path(target).is_file():
            check_model(Path(target))


def evaluation_config(
    chosen: Chosen, *, per_group: int | None, attempts: int | None, prompts: str | None
) -> RunConfig:
    """Settings of a command line; its ``--seed`` draws the questions.

    Raises:
        ConfigError: an unknown preset or setting, or a value that cannot work.
    """
    values = load_preset(chosen.preset or DEFAULT_PRESET)
    if prompts is not None:
        values["game"] = {**values.get("game", {}), **format_settings(prompts)}
    config = replace(chosen, seed=None).config(values)
    given = {"per_group": per_group, "seed": chosen.seed}
    named = {name: value for name, value in given.items() if value is not None}
    evaluation = config.evaluation.replace(**named)

    count = 1 if attempts is None else attempts
    if count < 1:
        raise ConfigError("--attempts", count, "must be at least 1")
    if count > 1 and evaluation.temperature == 0:
        fix = "greedy attempts are all alike: give it more than 0, or --attempts 1"
        raise ConfigError("evaluation.temperature", 0, fix)
    game = config.game.replace(attempts=count, verifier="none")
    return config.replace(evaluation=evaluation, game=game)


def _evaluate(
    config: RunConfig,
    given: list[Question] | None,
    closed_book: bool,
    retriever: str | None,
    player: str,
    out: Path | None,
) -> Evaluated:
    """Lets one policy answer; see :func:`run` for the options."""
    rules, questions = check(config, given)
    if retriever is not None:
        rules = with_retriever(retriever, rules, questions, config.evaluation.seed)

    engine: Engine | None = None
    if player == "api":
        served = config.served_model()
        answers = by_player(ChatPlayer(ChatClient(served)))
        name = f"{served.model} behind {served.base_url}"
    else:
        torch.set_num_threads(config.compute.threads)
        name = str(config.model_dir)
        engine = open_engine(
            config.engine,
            config.model_dir,
            rules.tokenizer,
            StopRule.of(config.game, rules.tokenizer),
            device="cuda" if config.compute.gpus_per_env_runner else "cpu",
            longest=rules.longest_trajectory,
        )
        answers = by_engine(engine, config.evaluation.temperature)

    records = _answers(config, rules, questions, answers, name, out)
    known: Sequence[bool | None] = [None] * len(questions)
    if closed_book and engine is not None:
        known = from_memory(rules, questions, engine, config.evaluation.seed)

    own = name_of(rules.judge)
    results = [answered(record, own, knew) for record, knew in zip(records, known, strict=True)]
    return Evaluated(name, results, own, fingerprint(rules))


def _answers(
    config: RunConfig,
    rules: Rules,
    questions: Sequence[Question],
    answers: Answers,
    name: str,
    out: Path | None,
) -> list[GameRecord]:
    """Games about all questions, chunk by chunk.

    With ``out``, each chunk has a file in a folder next to it until all are there. An evaluation
    that was stopped takes its chunks from there, but for those that an outage has hit.

    Raises:
        ServiceError: an outage has taken every question of a chunk; nothing before it is lost.
        RunError: ``out`` cannot be written.
    """
    evaluation, records = config.evaluation, list[GameRecord]()
    header = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
    # Everything that decides the answers: another evaluation has another folder.
    files = sorted(config.model_dir.resolve().glob("*.safetensors"))
    weights = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    made_by = (header.fingerprint, name, weights, config.game, evaluation, questions)
    digest = hashlib.sha256(repr(made_by).encode()).hexdigest()[:8]
    folder = out.with_name(f"{out.name}.{digest}.part") if out else None
    try:
        if folder:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritten(out or Path(), error) from error

    begins, console = range(0, len(questions), CHUNK), Console(stderr=True)
    bar = track(begins, description="answering", console=console, transient=True)
    try:
        with heartbeat(lambda text: console.print(text, highlight=False)):
            for begin in bar:
                part = folder / f"{begin:06d}.jsonl" if folder else None
                held = read_games(part) if part and part.exists() else ()
                chunk = [saved.record for saved in held]
                if not chunk or any(map(outage_of, chunk)):
                    asked = questions[begin : begin + CHUNK]
                    chunk = answer(rules, asked, answers, [evaluation.seed, begin])
                    _check_outage(chunk)
                    if part:
                        games = (SavedGame(header, record) for record in chunk)
                        with replacing(part) as file:
                            file.writelines(game_lines(games, tokens=config.record_tokens))
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


def _check_outage(chunk: Sequence[GameRecord]) -> None:
    """
    Raises:
        ServiceError: the chunk has no answer at all; names the first outage.
    """
    outages = [outage for record in chunk if (outage := outage_of(record))]
    if len(outages) == len(chunk):
        what = f"{len(chunk)} questions in a row were void, the first by: {outages[0].what}"
        raise ServiceError(outages[0].service, what)


def _read(file: str) -> Evaluated:
    games = list(read_games(file))
    if not games:
        raise ConfigError("the file of games", file, "holds no game")

    rules = games[0].rules
    judge = f"recorded: {rules.parts.judge.rpartition('.')[2]}"
    results = [answered(game.record, judge) for game in games]
    return Evaluated(file, results, judge, rules.fingerprint or "unknown", "its questions")
