"""``ssp eval``: how many questions a policy answers, by whose judgment, and against whom."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from experiments.commands.train import DEFAULT_PRESET, settings
from experiments.config import RunConfig, load_preset, parse_assignment
from experiments.evaluation.answers import CHUNK, Answers, answer, by_engine, by_player, from_memory
from experiments.evaluation.interventions import intervene
from experiments.evaluation.results import answered, outage_of
from experiments.evaluation.sheet import Sheet
from experiments.evaluation.tables import Evaluated, as_data, show, show_comparison, show_gains
from experiments.run.checks import check, check_model
from experiments.run.process import quiet_libraries
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.fingerprint import fingerprint
from ssp_env.game.prompts.formats import format_settings
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.judges import name_of
from ssp_env.players.chat import ChatPlayer
from ssp_env.replay import read_games
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question
from ssp_env.worlds.files import read_questions, sample_questions

RECORDED = "recorded"
"""What the judge is called whose verdicts a file of games holds, with its name there."""


def run(arguments: Namespace) -> int:
    """Answers the evaluation questions, and prints accuracies with intervals."""
    quiet_libraries()
    targets = _targets(arguments)
    evaluated = [_evaluate(arguments, target) for target in targets]

    seed = arguments.seed or 0
    if arguments.json:
        print(json.dumps(as_data(evaluated, seed), indent=2))
        return 0

    for place, one in enumerate(evaluated):
        if place:
            print()
        show(one, seed)
    if len(evaluated) == 2:
        show_comparison(evaluated[0], evaluated[1], seed)
        show_gains(evaluated[0], evaluated[1], seed)
    return 0


def _targets(arguments: Namespace) -> list[str | None]:
    """What is evaluated: model directories and files of games; ``None`` is the preset's policy.

    Raises:
        ConfigError: options that exclude each other.
    """
    targets = [*arguments.targets]
    if arguments.model is not None and targets:
        raise ConfigError("--model", arguments.model, "name the model once, without --model")
    if len(targets) > 2:
        raise ConfigError("the third policy", targets[2], "at most two are compared")
    if len(targets) == 2 and arguments.out:
        fix = "evaluate one policy at a time with --out, then compare the two files"
        raise ConfigError("--out", arguments.out, fix)
    if arguments.closed_book and arguments.player == "api":
        raise ConfigError("--closed-book", True, "needs the model here, not behind an API")

    if arguments.out and Path(arguments.out).exists():
        fix = (
            f"it is there already. Where it is an evaluation, ssp eval {shlex.quote(arguments.out)}"
            " shows it; to write another, remove it or name another file"
        )
        raise ConfigError("--out", arguments.out, fix)

    # Before the first is evaluated: the second may be misspelt.
    for target in targets[1:]:
        if not Path(target).is_file():
            check_model(Path(target))
    return targets or [arguments.model]


def _evaluate(arguments: Namespace, target: str | None) -> Evaluated:
    if target is not None and Path(target).is_file():
        return _read(target)

    config = evaluation_config(Namespace(**{**vars(arguments), "model": target}))
    given = None if arguments.questions is None else list(read_questions(arguments.questions))
    if given is not None and _named_per_group(arguments):
        given = sample_questions(given, config.evaluation.seed, config.evaluation.per_group)
    rules, questions = check(config, given)
    if arguments.retriever is not None:
        rules = intervene(arguments.retriever, rules, questions, config.evaluation.seed)

    policy = _Policy(config, rules, arguments.player)
    records = _answers(arguments, config, rules, questions, policy)
    name = f"{config.openai.model} behind {config.openai.base_url}"
    own = name_of(rules.judge)
    known = policy.memory(questions) if arguments.closed_book else [None] * len(questions)

    return Evaluated(
        str(config.model_dir) if policy.engine else name,
        [answered(record, own, knew) for record, knew in zip(records, known, strict=True)],
        own,
        fingerprint(rules),
        "unseen questions" if given is None else f"the questions of {arguments.questions}",
    )


def _named_per_group(arguments: Namespace) -> bool:
    """Whether the command line says how many questions of each group are asked."""
    named = {parse_assignment(assignment)[0] for assignment in arguments.set}
    return arguments.per_group is not None or "evaluation.per_group" in named


def evaluation_config(arguments: Namespace) -> RunConfig:
    """The settings of a command line; its ``--seed`` draws the questions.

    Raises:
        ConfigError: an unknown preset or setting, or a value that cannot work.
    """
    chosen = {"per_group": arguments.per_group, "seed": arguments.seed}
    named = {name: value for name, value in vars(arguments).items() if name not in chosen}
    values = load_preset(arguments.preset or DEFAULT_PRESET)
    if arguments.prompts is not None:
        values["game"] = {**values.get("game", {}), **format_settings(arguments.prompts)}

    config = settings(Namespace(**named), values)
    given = {name: value for name, value in chosen.items() if value is not None}
    evaluation = config.evaluation.replace(**given)

    attempts = 1 if arguments.attempts is None else arguments.attempts
    if attempts < 1:
        raise ConfigError("--attempts", attempts, "must be at least 1")
    if attempts > 1 and evaluation.temperature == 0:
        fix = "greedy attempts are all alike: give it more than 0, or --attempts 1"
        raise ConfigError("evaluation.temperature", 0, fix)
    return config.replace(
        evaluation=evaluation,
        game=config.game.replace(attempts=attempts, verifier="none"),
    )


class _Policy:
    """Who answers: a model in an engine, or one behind an API."""

    def __init__(self, config: RunConfig, rules: Rules, player: str) -> None:
        """
        Raises:
            ModelError: the weights cannot be loaded.
        """
        self._config, self._rules = config, rules
        self.engine: Engine | None = None
        if player == "api":
            client = ChatClient(config.openai.chat())
            self.answers: Answers = by_player(ChatPlayer(client))
            return

        torch.set_num_threads(config.compute.threads)
        self.engine = open_engine(
            config.engine,
            config.model_dir,
            rules.tokenizer,
            StopRule.of(config.game, rules.tokenizer),
            device="cuda" if config.compute.gpus_per_env_runner else "cpu",
            longest=rules.longest_trajectory,
        )
        self.answers = by_engine(self.engine, config.evaluation.temperature)

    def memory(self, questions: Sequence[Question]) -> list[bool | None]:
        """Whether it answers each question without searching; ``None`` after an outage."""
        assert self.engine is not None, "--closed-book is refused for a model behind an API"
        seed = self._config.evaluation.seed
        verdicts = from_memory(self._rules, questions, self.engine, seed)
        return [None if isinstance(one, ServiceError) else one.correct for one in verdicts]


def _answers(
    arguments: Namespace,
    config: RunConfig,
    rules: Rules,
    questions: Sequence[Question],
    policy: _Policy,
) -> list[GameRecord]:
    """All games, those that an evaluation that was stopped has left included.

    Raises:
        ServiceError: an outage has taken every question of a chunk; nothing before it is lost.
    """
    evaluation = config.evaluation
    sheet = None
    if arguments.out:
        header = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
        who = config.openai.model if policy.engine is None else _weights_of(config.model_dir)
        made_by = (arguments.player, who, config.game, evaluation.temperature, evaluation.seed)
        sheet = Sheet(Path(arguments.out), header, config.record_tokens, made_by)

    with sheet.open() if sheet else nullcontext():
        records = sheet.begun(questions) if sheet else []
        chunks = answer(rules, questions, policy.answers, evaluation.seed, len(records))
        left = -(-(len(questions) - len(records)) // CHUNK)
        console = Console(stderr=True)
        try:
            for chunk in track(
                chunks, total=left, description="answering", console=console, transient=True
            ):
                _check_outage(chunk)
                records.extend(chunk)
                if sheet:
                    sheet.write(chunk)
        except KeyboardInterrupt:
            if sheet:
                done = f"{len(records)} of {len(questions)} questions"
                print(f"ssp: stopped; the same command goes on after {done}", file=sys.stderr)
            raise
    return records


def _weights_of(model: Path) -> list[tuple[str, int, int]]:
    """What tells the weights in a directory from others that were there before."""
    files = sorted(model.resolve().glob("*.safetensors"))
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _check_outage(chunk: Sequence[GameRecord]) -> None:
    """
    Raises:
        ServiceError: the chunk has no answer at all; what took the first one.
    """
    outages = [outage_of(record) for record in chunk]
    if all(outages):
        first = next(outage for outage in outages if outage)
        what = f"{len(chunk)} questions in a row were void, the first by: {first.what}"
        raise ServiceError(first.service, what)


def _read(file: str) -> Evaluated:
    games = list(read_games(file))
    if not games:
        raise ConfigError("the file of games", file, "holds no game")

    rules = games[0].rules
    judge = f"{RECORDED}: {rules.parts.judge.rpartition('.')[2]}"
    basis = rules.fingerprint or "unknown"
    results = [answered(game.record, judge) for game in games]
    return Evaluated(file, results, judge, basis, "its questions")
