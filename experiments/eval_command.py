"""``ssp eval``."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model
from agents.rollout import play
from dataclasses import replace
from experiments.config import RunConfig
from experiments.evaluation import accuracies
from experiments.run_directory import write_atomically
from experiments.train_command import settings
from experiments.training import MakeRules
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds import open_world
from ssp_env.worlds.base import Question

CHUNK = 256
"""Questions that are answered side by side."""


def run(arguments: Namespace) -> int:
    """Answers the evaluation questions and prints accuracies with intervals."""
    evaluation_seed = arguments.seed
    arguments.seed = None
    config = settings(arguments)
    chosen = config.evaluation
    chosen = replace(
        chosen,
        per_group=chosen.per_group if arguments.per_group is None else arguments.per_group,
        seed=chosen.seed if evaluation_seed is None else evaluation_seed,
    )
    config = replace(config, evaluation=chosen, game=replace(config.game, attempts=1))
    questions, records = answer(config)
    if arguments.out:
        lines = [json.dumps({"id": q.id, **r.to_dict()}, ensure_ascii=False) for q, r in zip(questions, records, strict=True)]
        write_atomically(Path(arguments.out), "\n".join(lines) + "\n")
    table = Table(title=f"accuracy of {config.model_dir} on {config.world}", title_justify="left")
    for name in ("group", "accuracy", "95% interval", "questions", "void"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for group, a in accuracies(questions, records).items():
        low, high = a.interval()
        table.add_row(group, f"{a.value:.3f}", f"{low:.3f} to {high:.3f}", str(a.asked), str(a.void))
    Console().print(table)
    return 0


def answer(config: RunConfig) -> tuple[list[Question], list[GameRecord]]:
    """Lets the policy answer the evaluation questions, once each.

    Raises:
        SSPError: model, tokenizer or world cannot work.
    """
    torch.set_num_threads(config.compute.threads)
    world = open_world(config.world, **config.world_options)
    tokenizer = HuggingFaceTokenizer.load(config.model_dir)
    rules = MakeRules(config)(world, tokenizer, config.game)
    questions = world.questions(config.evaluation.seed, config.evaluation.per_group)
    device = "cuda" if config.compute.gpus_per_env_runner else "cpu"
    engine = TransformersEngine(load_model(config.model_dir, device), tokenizer, StopRule.of(config.game, tokenizer))
    records: list[GameRecord] = []
    for start in track(range(0, len(questions), CHUNK), description="answering", console=Console(stderr=True)):
        part = Round.of_questions(rules, questions[start : start + CHUNK], [config.evaluation.seed, start])
        rng = np.random.default_rng([config.evaluation.seed, start])
        play(part, engine, temperature=config.evaluation.temperature, rng=rng)
        records.extend(record_game(game, rules) for game in part.games)
    return questions, records
