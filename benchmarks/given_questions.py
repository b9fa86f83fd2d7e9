"""Training on given questions alone, Search-R1's arm, in the mini world: accuracy on unseen
questions before and after.

The questions to learn from are about the first of the world's graphs, those that it is measured by
about the second; no fact connects the two. Runs ``ssp train --questions``.

``--wiki-mini PER_GROUP`` only writes questions, for a real model: those of NQ and HotpotQA, on
which Search-R1 trains, that a run with this ``per_group`` and seed is not measured by.

    python -m benchmarks.given_questions --wiki-mini 40 --out questions.jsonl
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import parser, write
from ssp_env.worlds.files import WikiMini
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini_language import Hop, write_question
from ssp_experiments.run.rundir import RunDirectory

FILE = "questions.jsonl"
HOPS = (1, 2, 3, 4)
SEARCH_R1 = ("nq", "hotpotqa")
"""Benchmarks of wiki-mini on whose training questions Search-R1 learns."""
SHOWN = ("given_accuracy", "given_uniform", "given_searches", "given_epoch", "solver_tokens")
"""Figures of steps that the result holds, as means over the first and the last of them."""
LATE = 5
"""Number of steps of such a mean."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--per-hop", type=int, default=150, help="questions to learn from")
    options.add_argument("--set", nargs="*", default=[], help="settings, as ssp train takes them")
    options.add_argument("--only-questions", action="store_true", help="write them to --out")
    options.add_argument("--wiki-mini", type=int, metavar="PER_GROUP", help="see above")
    settings = options.parse_args()

    if settings.wiki_mini is None:
        questions = [*training_questions(settings.seed, settings.per_hop)]
    else:
        questions = [*unmeasured_questions(settings.seed, settings.wiki_mini)]
    text = "".join(json.dumps(each) + "\n" for each in questions)
    if settings.only_questions or settings.wiki_mini is not None:
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        settings.out.write_text(text, encoding="utf-8")
        return
    words = ["train", "--preset", "tiny", "--questions", FILE, "--out", "run"]
    words += ["--seed", str(settings.seed), "--steps", str(settings.steps)]
    words += [word for each in settings.set for word in ("--set", each)]
    with TemporaryDirectory() as folder:
        Path(folder, FILE).write_text(text, encoding="utf-8")
        program = Path(sys.executable).with_name("ssp")
        subprocess.run([program, *words], check=True, cwd=folder)
        run = RunDirectory(Path(folder, "run"))
        lines, summary = run.read_metrics(), run.read_summary() or {}

    result: dict[str, Any] = {
        "plays": shlex.join(["ssp", *words]),
        "questions": len(questions),
        "first_steps": means(lines[1 : 1 + LATE]),
        "last_steps": means(lines[-LATE:]),
        **{name: summary[name] for name in ("accuracy", "interval", "wall_seconds")},
        "asked": summary["questions"]["final"],
        "mean_accuracy": {
            when: fmean(groups.values()) for when, groups in summary["accuracy"].items()
        },
    }
    write(settings.out, result)


def training_questions(seed: int, per_hop: int) -> Iterator[dict[str, Any]]:
    """Questions over the graph that is played in, each once, with their one right answer."""
    world = MiniWorld()
    for hops in HOPS:
        rng, found = np.random.default_rng([seed, hops]), set[str]()
        while len(found) < per_hop:
            chain = world.train_graph.walk(rng, hops)
            if chain is None:
                continue
            start, path, answer = chain
            text = write_question(start, [Hop(relation) for relation in path])
            if text not in found:
                found.add(text)
                yield {"question": text, "answers": [answer], "group": str(hops)}


def unmeasured_questions(seed: int, per_group: int) -> Iterator[dict[str, Any]]:
    """Questions of Search-R1's two benchmarks that evaluation leaves."""
    world = WikiMini()
    measured = {question.id for question in world.questions(seed, per_group)}
    for question in world.questions(seed):
        if question.group in SEARCH_R1 and question.id not in measured:
            answers = list(question.answers)
            yield {"question": question.text, "answers": answers, "group": question.group}


def means(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Means of some figures over steps."""
    return {name: fmean(line[name] for line in lines if name in line) for name in SHOWN}


if __name__ == "__main__":
    main()
