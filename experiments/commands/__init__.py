"""The commands of the training stack. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from typing import cast

from experiments.commands import options
from ssp_env.commands.base import Command
from ssp_env.errors import MissingExtra

TRAINING = ("ray", "torch", "transformers", "tokenizers", "safetensors", "tensorboardX")
EXTRAS = {**dict.fromkeys(TRAINING, "train"), "matplotlib": "plot", "sklearn": "analysis"}
"""Package -> the extra that brings it; nothing else that is missing is a matter of installation."""


def _run(name: str, arguments: Namespace) -> int:
    """Runs ``experiments.commands.NAME``.

    Raises:
        MissingExtra: the training stack is not installed.
    """
    try:
        return cast(int, import_module(f"experiments.commands.{name}").run(arguments))
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise

        what = f"ssp {name} ({error.name} is missing)"
        raise MissingExtra(what, f"pip install -e '.[{extra}]'") from error


TRAIN = Command(
    "train",
    "self-play training: propose, verify, solve, learn",
    options.train,
    lambda given: _run("train", given),
)
EVAL = Command(
    "eval",
    "score a policy on questions that it never trains on",
    options.eval,
    lambda given: _run("eval", given),
)
BOOTSTRAP = Command(
    "bootstrap",
    "make the tiny policy and its tokenizer from nothing",
    options.bootstrap,
    lambda given: _run("bootstrap", given),
)
PLOT = Command(
    "plot",
    "draw rewards, hops, validity and accuracy of runs against steps",
    options.plot,
    lambda given: _run("plot", given),
)
PROBE = Command(
    "probe",
    "play scripted cheats against your rules, and print who is paid what",
    options.probe,
    lambda given: _run("probe", given),
)
PLAY = Command(
    "play",
    "play the game yourself, against the policy",
    options.play,
    lambda given: _run("play", given),
)
PLAN = Command(
    "plan",
    "say what each GPU of a run will hold, and whether that fits",
    options.plan,
    lambda given: _run("plan", given),
)
EXPORT = Command(
    "export",
    "write the policy of a checkpoint as a plain model directory",
    options.export,
    lambda given: _run("export", given),
)
QUESTIONS = Command(
    "questions",
    "what a run asked, as a data set and in figures",
    options.questions,
    lambda given: _run("questions", given),
)
SWEEP = Command(
    "sweep",
    "play many runs that differ in some settings, into one table",
    options.sweep,
    lambda given: _run("sweep", given),
)
LEAGUE = Command(
    "league",
    "let proposers and solvers of different steps play each other",
    options.league,
    lambda given: _run("league", given),
)
REPORT = Command(
    "report",
    "write a page with the curves, settings and games of runs",
    options.report,
    lambda given: _run("report", given),
)
VIEW = Command(
    "view",
    "serve that page, live, while runs go on",
    options.view,
    lambda given: _run("view", given),
)
