"""``ssp eval``."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agents.engines.base import StopRule
from agents.engines.opening import open_engine
from agents.rollout import play
from experiments.commands.train import DEFAULT_PRESET, settings
from experiments.config import RunConfig, load_preset
from experiments.run.checks import check
from experiments.run.evaluation import accuracies
from experiments.run.quiet import quiet_libraries
from ssp_env.disk import finished_in_full
from ssp_env.game.fingerprint import fingerprint
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.replay.header import SavedRules
from ssp_env.replay.saved import SavedGame, game_lines
from ssp_env.types import Question

CHUNK = 256
"""Questions that are answered side by side."""


def run(arguments: Namespace) -> int:
    """Answers the evaluation questions and prints accuracies with intervals."""
    quiet_libraries()
    config = evaluation_config(arguments)
    rules, questions = check(config)
    basis = fingerprint(rules)
    if arguments.out:
        with finished_in_full(Path(arguments.out)) as file:
            records = answer(config, rules, questions)
            header = replace(SavedRules.of(rules), fingerprint=basis["hash"])
            games = (SavedGame(header, record) for record in records)
            file.writelines(game_lines(games, tokens=config.record_tokens))
    else:
        records = answer(config, rules, questions)

    _show(config, questions, records)
    _show_basis(basis)
    return 0


def evaluation_config(arguments: Namespace) -> RunConfig:
    """The settings of a command line; its ``--seed`` draws the questions.

    Raises:
        ConfigError: an unknown preset or setting, or a value that cannot work.
    """
    chosen = {"per_group": arguments.per_group, "seed": arguments.seed}
    named = {name: value for name, value in vars(arguments).items() if name not in chosen}
    config = settings(Namespace(**named), load_preset(arguments.preset or DEFAULT_PRESET))
    given = {name: value for name, value in chosen.items() if value is not None}
    return replace(
        config,
        evaluation=replace(config.evaluation, **given),
        game=replace(config.game, attempts=1, verifier="none"),
    )


def answer(config: RunConfig, rules: Rules, questions: list[Question]) -> list[GameRecord]:
    """Lets the policy answer questions, once each.

    Raises:
        ModelError: the weights cannot be loaded.
    """
    torch.set_num_threads(config.compute.threads)
    engine = open_engine(
        config.compute.engine_config(),
        config.model_dir,
        rules.tokenizer,
        StopRule.of(config.game, rules.tokenizer),
        device="cuda" if config.compute.gpus_per_env_runner else "cpu",
        longest=rules.longest_trajectory,
    )
    records: list[GameRecord] = []
    seed = config.evaluation.seed
    chunks = range(0, len(questions), CHUNK)
    for start in track(
        chunks, description="answering", console=Console(stderr=True), transient=True
    ):
        asked = questions[start : start + CHUNK]
        part = Round.of_questions(rules, asked, [seed, start])
        play(part, engine, temperature=config.evaluation.temperature)
        records.extend(
            record_game(game, rules, question_group=question.group)
            for game, question in zip(part.games, asked, strict=True)
        )
    return records


def _show(config: RunConfig, questions: list[Question], records: list[GameRecord]) -> None:
    console = Console()
    table = Table(title=f"accuracy on unseen questions ({config.world})", title_justify="left")
    for name in (
        "hops" if config.world == "mini" else "group",
        "accuracy",
        "95% interval",
        "questions",
        "void",
        "void as wrong / as right",
    ):
        table.add_column(name, justify="right" if table.columns else "left")
    for group, a in accuracies(questions, records).items():
        low, high = a.interval()
        cells = (f"{a.value:.3f}", f"{low:.3f} to {high:.3f}") if a.asked else ("-", "-")
        bounds = " / ".join(f"{bound:.3f}" for bound in a.bounds)
        table.add_row(group, *cells, str(a.asked), str(a.void), bounds if a.void else "")
    console.print(table)
    console.print(f"model: {config.model_dir}", highlight=False, soft_wrap=True)


def _show_basis(basis: dict[str, Any]) -> None:
    """What the accuracies rest on besides the policy; two of them compare if this is the same."""
    retriever = basis["retriever"]
    where = retriever.get("server") or f"{basis['corpus']['passages']:,} passages"
    parts = [
        f"{retriever['class']} over {where}",
        f"top_k {basis['top_k']}",
        f"max_searches {basis['max_searches']}",
        f"judge {basis['judge']}",
        f"prompts {basis['prompts']['name']}",
    ]
    text = f"fingerprint: {basis['hash']} ({', '.join(parts)})"
    Console().print(text, highlight=False, soft_wrap=True)
