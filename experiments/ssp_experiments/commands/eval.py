"""``ssp eval``: scores of one policy on questions that it never trains on, or of two."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ssp_agents.rollout import play
from ssp_env.errors import ConfigError
from ssp_env.game.outcome import BUDGET_PROMPT, Ending
from ssp_env.game.prompts import format_settings
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import fingerprint
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.judges import name_of
from ssp_env.players import ChatPlayer, play_by
from ssp_env.replay import read_games
from ssp_env.types import Document
from ssp_env.worlds.questions import read_questions, sample_questions
from ssp_experiments import evaluation
from ssp_experiments.config import RunConfig, is_gguf
from ssp_experiments.options import Chosen, EvalOptions, plural
from ssp_experiments.run.checks import check_model, open_run
from ssp_experiments.run.process import quiet_libraries
from ssp_experiments.run.progress import sampled_here


class EmptyRetriever:
    """Finds nothing: who scores as well with it answers from memory."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [[] for _ in queries]


@dataclass(frozen=True)
class Evaluated:
    """A policy's answers, or those that a file holds."""

    name: str
    scores: pd.DataFrame
    judge: str
    """Name of the judge whose verdicts come first."""
    fingerprint: dict[str, Any]
    """In full, or its hash from a file."""
    asked: str
    """Name of the questions."""


def run(chosen: Chosen, options: EvalOptions, targets: Sequence[str]) -> int:
    quiet_libraries()
    _check_targets(chosen.model, options, targets)

    policies: list[str | None] = [*targets] or [chosen.model]
    values = chosen.start(*policies)
    if options.prompts is not None:
        values["game"] = {**values.get("game", {}), **format_settings(options.prompts)}
    # The seed is not the run's: policies of all seeds get the same questions.
    seed = chosen.seed or 0
    given = {
        "seed": seed,
        "per_group": options.per_group,
        "game.attempts": options.attempts,
        "game.verifier": "none",
    }

    evaluated = [
        _read(target)
        if target and _is_games(target)
        else _evaluate(replace(chosen, model=target).config(given, values), options)
        for target in policies
    ]
    data: evaluation.Row = {
        "evaluations": [
            {
                "policy": one.name,
                "fingerprint": one.fingerprint,
                "rows": evaluation.table(one.scores, seed),
                **evaluation.voids(one.scores),
            }
            for one in evaluated
        ]
    }
    if len(evaluated) == 2:
        first, second = evaluated
        # Two judges that differ cannot be compared; the judges by rules are always there.
        judge = first.judge if first.judge == second.judge else "lenient"
        data["comparison"] = evaluation.paired(first.scores, second.scores, judge, seed)
    if options.json:
        print(json.dumps(data, indent=2))
        return 0

    for one, data_of_one in zip(evaluated, data["evaluations"], strict=True):
        _show(one, data_of_one)
    if len(evaluated) == 2:
        print(f"the second against the first, question by question ({judge})")
        _print_table(pd.DataFrame(data["comparison"]))
        if first.fingerprint["hash"] != second.fingerprint["hash"]:
            print("the two were not played by the same rules: see the fingerprints")
    return 0


def _check_targets(model: str | None, options: EvalOptions, targets: Sequence[str]) -> None:
    """Refuses options that exclude each other, a policy that is not there, a file that is."""
    out = options.out
    if model is not None and targets:
        raise ConfigError("--model", model, "name the model once, without --model")
    if len(targets) > 2:
        raise ConfigError("the third policy", targets[2], "at most two are compared")
    if len(targets) == 2 and out:
        fix = "evaluate one policy at a time with --out, then compare the two files"
        raise ConfigError("--out", out, fix)
    if out and not Path(out).parent.is_dir():
        raise ConfigError("--out", out, "its directory is not there")
    if out and Path(out).exists():
        fix = f"it is there already (ssp eval {shlex.quote(out)} shows games); name another file"
        raise ConfigError("--out", out, fix)
    if options.attempts > 1 and options.temperature == 0:
        fix = "greedy attempts are all alike: give more than 0, or --attempts 1"
        raise ConfigError("--temperature", 0, fix)

    # Before the first is evaluated: the second may be misspelt.
    for target in targets[1:]:
        if not _is_games(target):
            check_model(RunConfig(model=target).model_dir)


def _is_games(target: str) -> bool:
    """True of a file that ``--out`` wrote, and not of a policy."""
    place = Path(target)
    return place.exists() and not place.is_dir() and not is_gguf(target)


def _evaluate(config: RunConfig, options: EvalOptions) -> Evaluated:
    given, described = None, "unseen questions"
    if options.questions is not None:
        described = f"the questions of {options.questions}"
        given = [*read_questions(options.questions)]
        if options.per_group is not None:
            given = sample_questions(given, config.seed, config.per_group)
    is_served = options.player == "api"
    rules, questions = open_run(config, given, config.seed, is_served=is_served)
    if options.no_search:
        rules = replace(rules, retrievers=dict.fromkeys(rules.retrievers, EmptyRetriever()))

    if is_served:
        served = config.served_model()
        client = ChatClient(served, options.temperature)
        client.check("Answer with the word: ready", str, "player")
        player = ChatPlayer(client, rules.prompts)
        answering: evaluation.Play = partial(play_by, player=player)
        count: Callable[[], str] = partial(_replies, client)
        name = f"{served.model} behind {served.base_url}"
    else:
        name, engine = str(config.model_dir), evaluation.engine_of(config, rules)
        answering = partial(play, engine=engine, temperature=options.temperature)
        count = sampled_here

    made_by, out = (name, options.temperature), Path(options.out) if options.out else None
    records = evaluation.answer_all(config, rules, questions, answering, made_by, out, count)
    _tell_unanswered(records)
    judge = name_of(rules.judge)
    return Evaluated(name, evaluation.score(records, judge), judge, fingerprint(rules), described)


def _replies(client: ChatClient) -> str:
    """How much a model behind an API has written."""
    return f"{client.answered:,} replies"


def _tell_unanswered(records: Sequence[GameRecord]) -> None:
    """Says what helps where no attempt came to an answer."""
    endings = Counter(t.ending for record in records for t in record.attempts)
    counted = endings.total() - endings[Ending.OUTAGE]
    if not counted or endings[Ending.ACTION]:
        return
    if endings[Ending.BUDGET_TOKENS] > counted / 2:
        what = f"{endings[Ending.BUDGET_TOKENS]} ran out of tokens; a model that thinks long needs "
        what += "a larger game.max_response_tokens, one that never ends its turn a chat template, "
        what += "and the token that ends turns there as eos_token in tokenizer_config.json, one "
        what += "that is untrained `ssp imitate`"
    else:
        what = "the policy does not write the tags of its prompts; try other --prompts, an "
        what += "instruct model with its chat template, or teach it to play by ssp imitate"
    print(f"ssp: none of {plural(counted, 'attempt')} gave an answer: {what}", file=sys.stderr)


def _read(file: str) -> Evaluated:
    games = list(read_games(file))
    if not games:
        raise ConfigError("the file of games", file, "holds no game")

    rules = games[0].rules
    judge = rules.parts.judge.rpartition(".")[2]
    scores = evaluation.score([game.record for game in games], judge)
    return Evaluated(file, scores, judge, {"hash": rules.fingerprint or "unknown"}, "its questions")


# -- what is printed ---------------------------------------------------------------------------


def _show(one: Evaluated, data: evaluation.Row) -> None:
    """Prints an evaluation: a row per group, with all judges side by side."""
    print(f"accuracy on {one.asked}, judge {one.judge}: {one.name}")
    rows = pd.DataFrame(data["rows"])
    if len(rows):
        average = f"avg@{one.scores.attrs['k']}"
        by_judge_of_run, others = (part for _, part in rows.groupby(rows["judge"] != one.judge))
        by_judge = others.pivot(index="group", columns="judge", values=average)
        scores = [
            name for name in by_judge_of_run["intervals"].iloc[0] if name not in (average, "f1")
        ]
        names = ["group", "questions", average, "interval", *scores, *others["judge"].unique()]
        heads = {"questions": "n", "avg@1": "pass@1", "f1": "F1"}
        shown = by_judge_of_run.join(by_judge, on="group")[[*names, "f1", "searches"]]
        _print_table(shown.rename(columns=heads))

    for group, size in data["void_groups"].items():
        are = "its one question is" if size == 1 else f"all {size} questions are"
        print(f"group {group} is not in the table: {are} void")
    if reasons := data["void_reasons"]:
        in_words = {BUDGET_PROMPT: "a prompt longer than game.max_prompt_tokens"}
        why = ", ".join(f"{count} by {in_words.get(why, why)}" for why, count in reasons.items())
        print(f"{plural(sum(reasons.values()), 'void question')} ({why})")
    if len(rows) and (lost := by_judge_of_run["lost_attempts"].iloc[-1]):
        print(f"{plural(lost, 'attempt')} at other questions void")

    text, rules = f"fingerprint: {one.fingerprint['hash']}", one.fingerprint
    if "retriever" in rules:
        retriever = rules["retriever"]
        where = retriever.get("server") or f"{rules['corpus']['passages']:,} passages"
        text += (
            f" ({retriever['class']} over {where}, top_k {rules['top_k']}, max_searches "
            f"{rules['max_searches']}, judge {rules['judge']}, prompts {rules['prompts']['name']})"
        )
    print(text + "\n")


def _print_table(rows: pd.DataFrame) -> None:
    ends = [f"{low:.2f} to {high:.2f}" for low, high in rows["interval"]]
    rows = rows.assign(interval=ends).rename(columns={"interval": "95% interval"})
    print(rows.to_string(index=False, na_rep="-", float_format="{:.3f}".format))
