"""Cards of models and data sets, in Markdown with the front matter that Hugging Face's hub reads;
command lines that play runs again."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ssp_experiments.config import RunConfig, flat, make_config, nearest_preset
from ssp_experiments.report.curves import group_in_words
from ssp_experiments.run.rundir import CHANGEABLE, RunDirectory

CARD = "README.md"
DATA = "questions.jsonl"
GENERATED = ("apache-2.0", "Apache-2.0. The world is generated; its names mean nobody.")
WIKIPEDIA = (
    "cc-by-sa-4.0",
    "CC BY-SA 4.0, as it quotes, or was taught by, sentences of Wikipedia "
    "(`ssp_env/worlds/data/NOTICE-wiki_mini.md` names the sources).",
)
LICENCES = {
    **dict.fromkeys(("mini", "small"), GENERATED),
    **dict.fromkeys(("wiki-sentences", "wiki-mini"), WIKIPEDIA),
}
"""Licence of what is taken from a world's text, as the hub names it and in words."""
UNKNOWN = "That of the {}, which this card does not know: fill it in."
OF_PROPOSER = "Not measured: evaluations of the run asked the solver's policy."
PATHS = re.compile(
    r"(^model|_path|\.source|\.partner|\.proposer_model|\.verifier_model|\.questions)$"
)
"""Settings of which it names the last part alone."""


def model_card(run: RunDirectory, step: int, dtype: str, role: str = "solver") -> str:
    """The card of a run's policy, or of a role's where each has its own: how it was made, how good
    it is, under what it may be used."""
    config, summary = make_config(run.read_config()), run.read_summary() or {}
    is_separate = config.learning.policies == "separate"
    model = config.model
    if is_separate and role == "proposer":
        model = config.learning.proposer_model or model
    base = f"`{Path(model).name}`" if model else "the policy that ships with ssp-env"
    given = config.learning.share_given
    source = "questions it learnt from" if given else "corpus"
    unknown = UNKNOWN.format("model it was trained from" if model else source)
    known = {} if model or given else LICENCES
    licence, said = known.get(config.world, ("other", unknown))
    taught = run.taught.exists()
    head = {
        "license": licence,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["search-self-play", "imitation" if taught else "reinforcement-learning"],
    }
    way = "taught by demonstrations (`ssp imitate`) for" if taught else "trained by"
    does = "asks search questions, and answers them,"
    if given == 1 and not taught:
        way, does = "trained on given questions by the solver's half of", "answers search questions"
    title, figures = f"{run.path.resolve().name}, step {step}", accuracy(run, summary, step)
    if is_separate and not taught:
        title += f", {role}"
        other = "solver" if role == "proposer" else "proposer"
        does = {"proposer": "asks search questions,", "solver": "answers search questions,"}[role]
        does += f" against a {other} with a policy of its own,"
        if role == "proposer":
            figures = f"## Accuracy\n\n{OF_PROPOSER}"
    return page(
        head,
        title,
        f"A causal language model, {way} [search self-play](https://arxiv.org/abs/2510.18821) "
        f"from {base}: it {does} in the world `{config.world}`. Weights are {dtype}. It knows the "
        "tags and prompts of that game, and was tried at nothing else.",
        figures,
        made(config, summary),
        f"## Licence\n\n{said}",
    )


def data_card(run: RunDirectory, entries: Sequence[Mapping[str, Any]]) -> str:
    """The card of a run's questions; ``entries`` are those of the file."""
    config, summary = make_config(run.read_config()), run.read_summary() or {}
    licence, said = LICENCES.get(config.world, ("other", UNKNOWN.format("corpus")))
    accepted = sum(entry["accepted"] for entry in entries)
    known = [entry for entry in entries if entry["truly_correct"] is not None]
    sound = [e for e in known if e["truly_correct"] and len(e["right_answers"] or ()) == 1]
    rates = [entry["solve_rate"] for entry in entries if entry["solve_rate"] is not None]
    rows = [
        ("questions", f"{len(entries):,}"),
        ("accepted by filters, verification and attempts", f"{accepted:,}"),
        ("their mean solve rate", f"{sum(rates) / len(rates):.3f}" if rates else "–"),
        (
            "right, with one right answer, as the world knows",
            f"{len(sound):,} of {len(known):,}" if known else "not known in this world",
        ),
    ]
    head = {
        "license": licence,
        "language": ["en"],
        "task_categories": ["question-answering"],
        "tags": ["search-self-play", "synthetic"],
        "configs": [{"config_name": "default", "data_files": DATA}],
    }
    return page(
        head,
        f"Questions of {run.path.resolve().name}",
        "Search questions that a language model wrote in self-play "
        f"([ssp-env](https://arxiv.org/abs/2510.18821)) about the world `{config.world}`, one per "
        "line, with answers, evidence and what became of each. No person has read them.",
        table(("", ""), rows),
        made(config, summary),
        f"## Licence\n\n{said}",
    )


def accuracy(run: RunDirectory, summary: Mapping[str, Any], step: int) -> str:
    """Accuracy before training and at this step, with 95% intervals where they are known."""
    evaluated = {line["step"]: line for line in run.read_metrics() if line.get("accuracy")}
    columns = [each for each in (0, step) if each in evaluated]
    if not columns:
        return "## Accuracy\n\nNot measured at this step."

    def entry(line: Mapping[str, Any], group: str) -> str:
        mean = f"{line['accuracy'][group]:.3f}" if group in line["accuracy"] else "–"
        ends = line.get("interval", {}).get(group)
        return mean if ends is None else f"{mean} [{ends[0]:.2f}, {ends[1]:.2f}]"

    names = ["before training" if each == 0 else f"step {each}" for each in columns]
    rows = [
        (group_in_words(group), *(entry(evaluated[each], group) for each in columns))
        for group in evaluated[columns[-1]]["accuracy"]
    ]
    judge = summary.get("fingerprint", {}).get("judge")
    said = f", judged by `{judge}`" if isinstance(judge, str) else ""
    return f"## Accuracy\n\nGreedy, on questions never trained on{said}:\n\n" + table(
        ("questions", *names), rows
    )


def made(config: RunConfig, summary: Mapping[str, Any]) -> str:
    """Command, commit, machine, fingerprint, and settings that differ from the nearest preset."""
    names = ("command", "date", "git_commit", "machine", "package", "steps", "seed")
    rows = [(name, f"`{summary[name]}`") for name in names if name in summary]
    rows += [
        (f"fingerprint: {name}", f"`{value}`")
        for name, value in flat(summary.get("fingerprint", {})).items()
    ]
    preset, changes = nearest_preset(config)
    changed = {
        name: Path(value).name if PATHS.search(name) and isinstance(value, str) else value
        for name, value in changes.items()
        if "://" not in str(value)  # addresses are nobody else's business
    }
    shown = yaml.safe_dump(changed, sort_keys=True) if changed else "# none\n"
    return (
        f"## How it was made\n\n{table(('', ''), rows)}\n\n"
        f"Settings that differ from those of the preset `{preset}`:\n\n```yaml\n{shown}```"
    )


def command_of(config: RunConfig) -> str:
    """The command line that plays a run with these settings: a preset, and what differs."""
    preset, changes = nearest_preset(config)
    words = ["ssp", "train", "--preset", preset]
    for name, value in changes.items():
        if name == "steps" or not (CHANGEABLE.fullmatch(name) or "://" in str(value)):
            # As --set reads it, on one line.
            text = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
            words += ["--set", name + "=" + text.removesuffix("...\n").strip()]
    return shlex.join(words)


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def page(head: Mapping[str, Any], title: str, *parts: str) -> str:
    """A card: front matter, title and parts."""
    front = yaml.safe_dump(dict(head), sort_keys=False)
    return "\n\n".join([f"---\n{front}---", f"# {title}", *parts]) + "\n"
