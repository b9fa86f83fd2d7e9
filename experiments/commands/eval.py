"""``ssp eval``: scores of one policy on questions that it never trains on, or of two."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from experiments.cli import DEFAULT_PRESET, Chosen, EvalOptions, plural
from experiments.config import RunConfig, load_preset
from experiments.evaluation.answers import answer_all, by_engine, by_player, from_memory
from experiments.evaluation.retrievers import with_retriever
from experiments.evaluation.scores import (
    Row,
    closed_book,
    paired,
    score,
    table,
    void_groups,
    void_reasons,
)
from experiments.run.checks import check, check_model
from experiments.run.process import quiet_libraries
from ssp_env.errors import ConfigError
from ssp_env.game.outcome import BUDGET_PROMPT
from ssp_env.game.parts import fingerprint
from ssp_env.game.prompts.sets import format_settings
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.judges import name_of
from ssp_env.players import ChatPlayer
from ssp_env.replay import read_games
from ssp_env.types import Question
from ssp_env.worlds.files import read_questions, sample_questions


@dataclass(frozen=True)
class Evaluated:
    """A policy's answers, or those that a file holds."""

    name: str
    scores: pd.DataFrame
    judge: str
    """Name of the judge whose verdicts come first."""
    fingerprint: dict[str, Any] | str
    """In full, or its hash from a file."""
    asked: str = "unseen questions"
    """Name of the questions."""

    @property
    def hash(self) -> str:
        """Hash of the fingerprint."""
        held = self.fingerprint
        return held if isinstance(held, str) else str(held["hash"])


def run(chosen: Chosen, options: EvalOptions, targets: Sequence[str]) -> int:
    """Prints accuracies with intervals."""
    quiet_libraries()
    _check_targets(chosen.model, options, targets)

    evaluated = list[Evaluated]()
    policies: list[str | None] = [*targets] if targets else [chosen.model]
    for target in policies:
        if target is not None and Path(target).is_file():
            evaluated.append(_read(target))
            continue
        config = _config(replace(chosen, model=target), options)
        given, asked = None, "unseen questions"
        if options.questions is not None:
            given = list(read_questions(options.questions))
            asked = f"the questions of {options.questions}"
            set_here = any(text.startswith("evaluation.per_group") for text in chosen.set or ())
            if options.per_group is not None or set_here:
                given = sample_questions(given, config.evaluation.seed, config.evaluation.per_group)
        evaluated.append(replace(_evaluate(config, given, options), asked=asked))

    seed = chosen.seed or 0
    two = (evaluated[0], evaluated[1]) if len(evaluated) == 2 else None
    if options.json:
        data: Row = {"evaluations": [_as_data(one, seed) for one in evaluated]}
        if two:
            data["comparison"] = paired(two[0].scores, two[1].scores, _shared_judge(*two), seed)
        print(dumps(data, indent=2))
        return 0
    console = Console(highlight=False)
    for one in evaluated:
        _show(console, one, seed)
    if two:
        _show_comparison(console, *two, seed)
    return 0


def _check_targets(model: str | None, options: EvalOptions, targets: Sequence[str]) -> None:
    """
    Raises:
        ConfigError: options that exclude each other, or a file that is there already.
        ModelError: a policy that is not there.
    """
    out = options.out
    if options.closed_book and options.player == "api":
        raise ConfigError("--closed-book", True, "needs the model here, not behind an API")
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


def _config(chosen: Chosen, options: EvalOptions) -> RunConfig:
    """Settings of a command line; its ``--seed`` draws the questions."""
    values = load_preset(chosen.preset or DEFAULT_PRESET)
    if options.prompts is not None:
        values["game"] = {**values.get("game", {}), **format_settings(options.prompts)}
    config = replace(chosen, seed=None).config(values)
    given = {"per_group": options.per_group, "seed": chosen.seed}
    named = {name: value for name, value in given.items() if value is not None}
    evaluation = config.evaluation.replace(**named)

    count = 1 if options.attempts is None else options.attempts
    if count < 1:
        raise ConfigError("--attempts", count, "must be at least 1")
    if count > 1 and evaluation.temperature == 0:
        fix = "greedy attempts are all alike: give it more than 0, or --attempts 1"
        raise ConfigError("evaluation.temperature", 0, fix)
    game = config.game.replace(attempts=count, verifier="none")
    return config.replace(evaluation=evaluation, game=game)


def _evaluate(config: RunConfig, given: list[Question] | None, options: EvalOptions) -> Evaluated:
    """Lets one policy answer."""
    rules, questions = check(config, given)
    seed = config.evaluation.seed
    if options.retriever is not None:
        rules = with_retriever(options.retriever, rules, questions, seed)

    engine: Engine | None = None
    if options.player == "api":
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

    out = Path(options.out) if options.out else None
    records = answer_all(config, rules, questions, answers, name, out)
    memory = engine is not None and options.closed_book
    known = from_memory(rules, questions, engine, seed) if memory and engine else None
    own = name_of(rules.judge)
    return Evaluated(name, score(records, own, known), own, fingerprint(rules))


def _read(file: str) -> Evaluated:
    games = list(read_games(file))
    if not games:
        raise ConfigError("the file of games", file, "holds no game")

    rules = games[0].rules
    judge = f"recorded: {rules.parts.judge.rpartition('.')[2]}"
    scores = score([game.record for game in games], judge)
    return Evaluated(file, scores, judge, rules.fingerprint or "unknown", "its questions")


def _shared_judge(first: Evaluated, second: Evaluated) -> str:
    """The judge that two are compared by: their own where it is the same, else the rules'."""
    return first.judge if first.judge == second.judge else "lenient"


# -- what is printed ---------------------------------------------------------------------------


def _as_data(one: Evaluated, seed: int) -> Row:
    data: Row = {
        "policy": one.name,
        "fingerprint": one.fingerprint,
        "rows": table(one.scores, seed),
        "void_groups": void_groups(one.scores),
        "void_reasons": void_reasons(one.scores),
    }
    memory = closed_book(one.scores)
    return {**data, "closed_book": memory} if memory else data


def _show(console: Console, one: Evaluated, seed: int) -> None:
    """Prints an evaluation: a row per group, with all judges side by side."""
    title = f"accuracy on {one.asked}, judge {one.judge}: {one.name}"
    # Not the table's own title, which would be cut into lines where a path is long.
    console.print(title, style="italic", markup=False, soft_wrap=True)
    k, rows, memory = one.scores.attrs["k"], table(one.scores, seed), closed_book(one.scores)
    own = [row for row in rows if row["judge"] == one.judge]
    others: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["judge"] != one.judge:
            others.setdefault(row["judge"], {})[row["group"]] = row

    many = {f"pass@{k}": f"pass@{k}", f"maj@{k}": f"majority@{k}"} if k > 1 else {}
    average = f"avg@{k}"
    heads = ["group", "count", average if k > 1 else "pass@1", "95% interval", *many, *others, "F1"]
    made = _empty_table([*heads, *(["closed book"] if memory else []), "searches"])
    for row in own:
        group, (low, high) = row["group"], row["interval"]
        figures = [
            *(row[name] for name in many.values()),
            *(theirs[group][average] for theirs in others.values()),
            row["f1"],
            *([memory.get(group)] if memory else []),
        ]
        made.add_row(
            group,
            str(row["questions"]),
            f"{row[average]:.3f}",
            f"{low:.2f} to {high:.2f}",
            *("-" if figure is None else f"{figure:.3f}" for figure in figures),
            f"{row['searches']:.2f}",
        )
    if own:
        console.print(made)
    _show_outages(console, one, own)

    text = f"fingerprint: {one.hash}"
    if not isinstance(one.fingerprint, str):
        held, retriever = one.fingerprint, one.fingerprint["retriever"]
        where = retriever.get("server") or f"{held['corpus']['passages']:,} passages"
        text += (
            f" ({retriever['class']} over {where}, top_k {held['top_k']}, max_searches "
            f"{held['max_searches']}, judge {held['judge']}, prompts {held['prompts']['name']})"
        )
    console.print(text + "\n", soft_wrap=True)


def _show_outages(console: Console, one: Evaluated, rows: Sequence[Row]) -> None:
    for group, size in void_groups(one.scores).items():
        are = "its one question is" if size == 1 else f"all {size} questions are"
        console.print(f"[yellow]group {group} is not in the table: {are} void")
    if reasons := void_reasons(one.scores):
        spoken = {BUDGET_PROMPT: "a prompt longer than game.max_prompt_tokens"}
        why = ", ".join(f"{count} by {spoken.get(why, why)}" for why, count in reasons.items())
        console.print(f"{plural(sum(reasons.values()), 'void question')} ({why})", soft_wrap=True)
    if rows and (lost := rows[-1]["lost_attempts"]):
        are = "is" if lost == 1 else "are"
        console.print(f"{plural(lost, 'attempt')} at other questions {are} void")


def _show_comparison(console: Console, first: Evaluated, second: Evaluated, seed: int) -> None:
    """Prints two evaluations against each other."""
    judge = _shared_judge(first, second)
    heads = ("group", "questions", "difference", "95% interval", "better", "worse", "p")
    made = _empty_table(heads)
    made.title = f"the second against the first, question by question ({judge})"
    for row in paired(first.scores, second.scores, judge, seed):
        low, high = row["interval"]
        made.add_row(
            row["group"],
            str(row["questions"]),
            f"{row['difference']:+.3f}",
            f"{low:+.2f} to {high:+.2f}",
            str(row["better"]),
            str(row["worse"]),
            "<.001" if row["p_value"] < 0.001 else f"{row['p_value']:.3f}",
        )
    console.print(made)
    if first.hash != second.hash:
        console.print("[yellow]the two were not played by the same rules: see the fingerprints")


def _empty_table(heads: Sequence[str]) -> Table:
    """A table that leaves room for its cells where a terminal has 80 columns."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 0), show_edge=False, title_justify="left")
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left")
    return made
