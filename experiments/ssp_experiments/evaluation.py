"""Answers of a policy to fixed questions, and their scores: by judge, by group, against another."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import track

from ssp_agents.engines.base import Engine, StopRule
from ssp_agents.engines.opening import ByRole, open_engine
from ssp_agents.rollout import answer
from ssp_env.disk import replacing
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.batch import GameBatch
from ssp_env.game.outcome import Outage
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.judge.base import Judge, JudgeTask, Verdict
from ssp_env.judge.judges import ExactMatchJudge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedGame, SavedRules, game_lines
from ssp_env.types import Question, Role
from ssp_env.wording.normal import f1, normalise
from ssp_experiments.config import RunConfig, proposer_beside
from ssp_experiments.run.progress import heartbeat
from ssp_experiments.stats import compare, over_questions

CHUNK = 256
"""Questions that are answered side by side."""

JUDGES: Mapping[str, Judge] = {"lenient": LenientJudge(), "exact": ExactMatchJudge()}
"""Judges that need no service."""
FIGURES = ("avg", "pass", "majority", "f1", "searches")
COLUMNS = ("judge", "group", "question", *FIGURES, "lost", "why_void")

Play = Callable[[GameBatch], GameBatch]
"""Plays a batch of games to its end."""
Row = dict[str, Any]


def engine_of(config: RunConfig, rules: Rules, policy: Path | None = None) -> Engine:
    """An engine in this process with a policy, the settings' own unless another is named."""
    torch.set_num_threads(config.compute.threads)
    return open_engine(
        config.engine,
        policy or config.model_dir,
        rules.tokenizer,
        StopRule.of(config.game, rules.tokenizer),
        device="cpu" if config.compute.gpus == "none" else "cuda",
        longest=rules.longest_trajectory,
        tensor_parallel=config.compute.tensor_parallel,
    )


def players_of(config: RunConfig, rules: Rules, policy: Path | None = None) -> Engine:
    """As :func:`engine_of`. Where the proposer has a policy beside the solver's, it proposes."""
    if config.game.verifier == "frozen":
        fix = "nothing is trained here, so there is no frozen policy: choose policy, world or none"
        raise ConfigError("game.verifier", "frozen", fix)
    proposer = proposer_beside(policy or config.model_dir)
    solver = engine_of(config, rules, policy)
    if proposer is None:
        return solver
    if config.engine.kind == "vllm":
        fix = f"one process of vLLM plays one model, and {proposer} is another: take transformers"
        raise ConfigError("engine.kind", config.engine.kind, fix)
    engines = {"solver": solver, "proposer": engine_of(config, rules, proposer)}
    return ByRole(engines, lambda role: "proposer" if role == Role.PROPOSER else "solver")


def answer_all(
    config: RunConfig,
    rules: Rules,
    questions: Sequence[Question],
    play: Play,
    made_by: object,
    out: Path | None,
    count: Callable[[], str],
) -> list[GameRecord]:
    """Games about all questions, chunk by chunk; ``count`` says how much has been written.

    With ``out``, they are in a file next to it until all are there. An evaluation that was stopped
    takes its chunks from there, but for those that an outage has hit. It is continued by the same
    policy and sampling alone, ``made_by``.
    """
    header = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
    # Everything that decides the answers: another evaluation has another file.
    places = [config.model_dir.resolve()] if config.has_policy else []
    files = [file for place in places for file in sorted(place.glob("*.safetensors"))]
    weights = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    decides = (header.fingerprint, made_by, weights, config.game, config.seed, questions)
    digest = hashlib.sha256(repr(decides).encode()).hexdigest()[:8]
    part = out.with_name(f"{out.name}.{digest}.part") if out else None
    saved_records = [saved.record for saved in read_games(part)] if part and part.exists() else []

    records, console = list[GameRecord](), Console(stderr=True)
    begins = range(0, len(questions), CHUNK)
    try:
        with heartbeat(lambda text: console.print(text, highlight=False), count):
            for begin in track(begins, "answering", console=console, transient=True):
                portion = questions[begin : begin + CHUNK]
                chunk = saved_records[begin : begin + CHUNK]
                # A chunk with an outage is asked again as a whole: it has one seed.
                if len(chunk) < len(portion) or any(map(outage_of, chunk)):
                    # Questions are numbered anew in each chunk, so its seed says where it begins.
                    chunk = answer(rules, [*enumerate(portion)], play, [config.seed, begin])
                    outages = [outage for record in chunk if (outage := outage_of(record))]
                    if len(outages) == len(chunk):
                        what = f"{len(chunk)} questions in a row were void, the first by: "
                        raise ServiceError(outages[0].service, what + outages[0].what)
                    if part:
                        # Later chunks that were saved stay in the file.
                        known = [*records, *chunk, *saved_records[begin + CHUNK :]]
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


# -- scores ------------------------------------------------------------------------------------


def score(records: Sequence[GameRecord], judge_of_run: str) -> pd.DataFrame:
    """A row per judge and question, with the columns

    - ``judge``, ``group``, ``question``
    - ``avg``: share of right attempts; not a number where no attempt counts, as the next three
    - ``pass``, ``majority``: see :func:`pass_at_k` and :func:`majority`; k is the number of
      attempts that every question has, ``k`` in ``attrs``
    - ``f1``, ``searches``: means per attempt
    - ``lost``: attempts that an outage has hit
    - ``why_void``: service or reason code that left no attempt

    Rows of the judge whose verdicts the records hold, ``judge_of_run``, come first.
    """
    counted = [
        [] if record.outcome == "void" else [a for a in record.attempts if a.outage is None]
        for record in records
    ]
    # Outages leave some questions fewer attempts; pass@k of all is at the k that all have.
    k = min((len(attempts) for attempts in counted if attempts), default=0)

    rows = []
    for judge in dict.fromkeys([judge_of_run, *JUDGES]):
        for record, attempts in zip(records, counted, strict=True):
            texts = [attempt.result for attempt in attempts]
            truth, question = record.initial_state.truth, record.question or ""
            # Records have the verdicts of one judge; those by rules are asked anew.
            verdicts: Sequence[object] = [attempt.verdict for attempt in attempts]
            if judge in JUDGES:
                tasks = [JudgeTask(question, text or "", truth) for text in texts]
                verdicts = JUDGES[judge].judge(tasks)
            right = [isinstance(one, Verdict) and bool(one.correct) for one in verdicts]

            row: Row = {
                "judge": judge,
                "group": record.question_group or "",
                "question": question,
                "lost": len(record.attempts) - len(attempts),
            }
            if attempts:
                row["avg"] = fmean(right)
                row["pass"] = pass_at_k(sum(right), len(right), k)
                row["majority"] = majority(texts, right)
                row["f1"] = fmean(f1(text or "", truth.wordings) for text in texts)
                row["searches"] = fmean(len(attempt.searches) for attempt in attempts)
            else:
                outage = outage_of(record)
                row["why_void"] = outage.service if outage else record.reason or "unknown"
            rows.append(row)

    scores = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(FIGURES, float))
    scores.attrs["k"] = k
    return scores


def outage_of(record: GameRecord) -> Outage | None:
    """The outage that has left no attempt at a question; ``None`` if an attempt counts."""
    if record.outcome == "void":
        return record.outage
    outages = [attempt.outage for attempt in record.attempts]
    return outages[0] if outages and all(outages) else None


def pass_at_k(right: int, attempts: int, k: int) -> float:
    """Probability that at least one of ``k`` attempts is right, drawn from those that were made.

    The unbiased estimate of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code": one minus the share of draws of k without a right one.

    >>> pass_at_k(right=1, attempts=4, k=2)
    0.5
    """
    # 1 - C(n - c, k) / C(n, k), with c of n attempts right.
    return 1.0 - comb(attempts - right, k) / comb(attempts, k)


def majority(answers: Sequence[str | None], right: Sequence[bool]) -> bool:
    """Verdict on the most frequent answer (self-consistency).

    Wordings with one normal form are one answer. Of equally frequent answers the one that was
    given first counts. Attempts without an answer have no vote; if none has an answer, it is wrong.

    >>> majority(["the Nile", "Amazon", "Nile"], [True, False, True])
    True
    """
    votes = [normalise(answer) if answer else "" for answer in answers]
    counted = Counter(vote for vote in votes if vote)
    # Counter keeps the order of first appearance, and most_common() is stable.
    return bool(counted) and right[votes.index(counted.most_common(1)[0][0])]


def table(scores: pd.DataFrame, seed: int) -> list[Row]:
    """A row per judge and group that has answers, and one over all if there are several groups.

    A row holds ``judge``, ``group`` and number of ``questions``; ``avg@K`` with its ``interval``,
    ``f1`` and, with several attempts, ``pass@K`` and ``majority@K``; the ``intervals`` of all of
    them; ``searches``; and what outages took: ``void`` questions, ``lost_attempts`` at others.
    """
    k, rows = scores.attrs["k"], list[Row]()
    names = {f"avg@{k}": "avg", "f1": "f1"}
    if k > 1:
        names |= {f"pass@{k}": "pass", f"majority@{k}": "majority"}
    for judge, ours in scores.groupby("judge", sort=False):
        for group, part in _groups(ours).items():
            counted = part.dropna(subset=["avg"])
            if counted.empty:
                continue
            estimates = {
                name: over_questions(list(counted[column]), _rng(seed, group))
                for name, column in names.items()
            }
            # What has no answer counts in no mean: an outage says nothing of a policy.
            intervals = {name: estimate.interval for name, estimate in estimates.items()}
            row = {
                "judge": judge,
                "group": group,
                "questions": len(counted),
                **{name: estimate.mean for name, estimate in estimates.items()},
                "interval": intervals[f"avg@{k}"],
                "intervals": intervals,
                "searches": float(counted["searches"].mean()),
                "void": len(part) - len(counted),
                "lost_attempts": int(counted["lost"].sum()),
            }
            rows.append(row)
    return rows


def voids(scores: pd.DataFrame) -> Row:
    """Groups without any answer, with their numbers of questions (``void_groups``), and numbers of
    questions without an answer by the service or reason code that took it (``void_reasons``)."""
    # Which questions have no answer is the same for all judges.
    once = scores[scores["judge"] == scores["judge"].iloc[0]]
    answered = once.groupby("group")["avg"].agg(["size", "count"])
    lost = answered["size"][answered["count"] == 0]
    reasons = once["why_void"].value_counts()
    return {"void_groups": lost.to_dict(), "void_reasons": reasons.to_dict()}


def paired(first: pd.DataFrame, second: pd.DataFrame, judge: str, seed: int) -> list[Row]:
    """Two policies, question by question: a comparison per group, and one over all.

    Questions that an outage has taken from either are left out of both.
    """
    ours, theirs = (s[s["judge"] == judge].dropna(subset=["avg"]) for s in (first, second))
    keys = ["group", "question"]
    both = ours.merge(theirs.drop_duplicates(keys), on=keys, suffixes=("", "_of_second"))
    if both.empty:
        raise UsageError("the two evaluations have no question in common")

    return [
        {
            "group": group,
            "questions": len(part),
            **compare(list(part["avg"]), list(part["avg_of_second"]), _rng(seed, group)),
        }
        for group, part in _groups(both).items()
    ]


def _groups(scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by group, and all of them if there are several groups."""
    groups = {str(group): part for group, part in scores.groupby("group")}
    if len(groups) > 1:
        # Where only some questions name a group, the others are in one that is called all.
        if "all" in groups:
            groups["group all"] = groups.pop("all")
        groups["all"] = scores
    return groups


def _rng(seed: int, group: str) -> np.random.Generator:
    # A stream of its own: a group's interval does not depend on what other groups there are.
    return np.random.default_rng([seed, *group.encode()])
