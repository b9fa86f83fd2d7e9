"""The commands of the training stack: their options and help. Nothing heavy is imported before one
runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ssp_env.errors import UsageError
from ssp_experiments.options import (
    Chosen,
    EvalOptions,
    NonNegative,
    PositiveInt,
    ProbeOptions,
    Several,
    SweepOptions,
    TrainOptions,
    Verified,
)


def train(*, chosen: Verified = Verified(), options: TrainOptions = TrainOptions()) -> int:
    """Trains a policy by self-play: propose, verify, solve, learn.

    Ctrl-C or SIGTERM stops after the step in progress; --resume continues, to the same result.

    Your own corpus and answers: --world files, with --set world_options.name=..., corpus_path=...,
    answers_path=... and questions_path=...
    """
    from ssp_experiments.commands.train import run

    return run(chosen, options)


def evaluate(
    targets: Annotated[tuple[str, ...], Parameter(name="POLICY", allow_leading_hyphen=False)] = (),
    /,
    *,
    chosen: Chosen = Chosen(),
    options: EvalOptions = EvalOptions(),
) -> int:
    """Scores a policy on questions that it never trains on; two are compared.

    Args:
        targets: Model directories, or files that --out wrote.
    """
    from ssp_experiments.run.checks import check_places

    if len(targets) <= 2:  # more are refused for their number
        check_places(chosen, targets, questions=options.questions)
    from ssp_experiments.commands.eval import run

    return run(chosen, options, targets)


def sweep(
    name: str | None = None,
    /,
    *,
    chosen: Verified = Verified(),
    options: SweepOptions = SweepOptions(),
) -> int:
    """Plays many runs that differ in some settings, into one table.

    Each trial is a run as of ssp train, in DIR/trials. RAY_ADDRESS names a cluster.

    Args:
        name: A sweep that ships, or a YAML file; without it, those that ship are listed.
    """
    from ssp_experiments.commands.sweep import run

    if name is None and (chosen, options) != (Verified(), SweepOptions()):
        raise UsageError("name a sweep, or give its YAML file; `ssp sweep` lists those that ship")
    return run(chosen, options, name)


def league(
    players: list[str],
    /,
    *,
    chosen: Verified = Verified(),
    answers: Annotated[int, Parameter(validator=Number(gte=2))] = 128,
    attempts: PositiveInt | None = None,
    out: str = "runs/league",
) -> int:
    """Lets proposers and solvers of different steps play each other.

    A run keeps its last two checkpoints, unless it is trained with --set checkpoints_kept=null.

    Args:
        players: Run directories, for the policy they began with and all checkpoints that are there;
            model directories, as DIR or NAME=DIR.
        answers: Answers that each proposer asks about.
        attempts: Attempts of each solver at a question (default: as in training).
        out: Directory of tables, data and figure.
    """
    from ssp_experiments.run.checks import check_places

    check_places(chosen, files=[player.rpartition("=")[2] for player in players])
    from ssp_experiments.commands.league import run

    return run(chosen, players, answers=answers, attempts=attempts, out=Path(out))


def play(
    *,
    chosen: Verified = Verified(),
    role: Literal["solver", "proposer"] = "solver",
    games: PositiveInt | None = None,
) -> int:
    """Lets you play the game, against the policy.

    As solver you get questions that the policy wrote; as proposer you get an answer and write the
    question. `s WORDS` searches, `a WORDS` ends your turn.

    Args:
        role: Role that you play.
        games: Stop after so many (default: never).
    """
    from ssp_experiments.run.checks import check_places

    check_places(chosen)
    from ssp_experiments.commands.play import run

    return run(chosen, role=role, games=games)


def probe(*, chosen: Verified = Verified(), options: ProbeOptions = ProbeOptions()) -> int:
    """Plays scripted cheats against your rules, and prints who is paid what.

    Exit status: 0, 1 if a cheat pays more than an honest player by more than the margin, 2 for a
    mistake, 3 if a service was down. ssp questions tells what the games of a run exploited.
    """
    from ssp_experiments.run.checks import check_places

    check_places(chosen)
    from ssp_experiments.commands.probe import run

    return run(chosen, options)


def plan(
    *,
    chosen: Verified = Verified(),
    gpus: PositiveInt | None = None,
    memory: Annotated[float, Parameter(validator=Number(gt=0))] | None = None,
    json: bool = False,
) -> int:
    """Says what each GPU of a run will hold, and whether that fits. Loads nothing.

    Exit status: 0, or 2 if it does not fit (the message names the setting to change).

    Args:
        gpus: GPUs there are (default: as many as the settings ask for).
        memory: Memory of each of them in GiB (default: 80).
        json: Print one JSON object, in bytes.
    """
    config = chosen.config()
    from ssp_experiments.commands.plan import run

    return run(config, gpus=gpus, memory=memory, as_json=json)


def bootstrap(
    *,
    out: str,
    seed: Annotated[int, NonNegative] = 0,
    width: int = 128,
    steps: PositiveInt | None = None,
) -> int:
    """Makes the tiny policy, and its tokenizer, from nothing, on scripted demonstrations.

    The one that ships takes twenty minutes of one core.

    Args:
        out: Model directory; must not exist.
        seed: Seed of all randomness.
        width: Width of its layers, a multiple of 64 (default: 128, 0.9 million parameters).
        steps: Optimizer steps (default: as many as the policy that ships has taken).
    """
    from ssp_experiments.commands.models import make_policy

    return make_policy(Path(out), seed, width, steps)


def imitate(
    *,
    chosen: Chosen = Chosen(),
    out: Path,
    games: Annotated[tuple[str, ...], Several] = (),
    steps: PositiveInt = 50,
    lr: Annotated[float, Parameter(validator=Number(gt=0))] = 1e-4,
    measured: PositiveInt = 12,
    resume: bool = False,
) -> int:
    """Teaches a model to play by supervised steps, on a script's games or recorded ones.

    Each step learns from learning.batch_size trajectories; --set learning.lora_rank=16 trains
    adapters. Shows how many turns are well-formed before and after. Ctrl-C or SIGTERM stops after
    the step in progress, with a checkpoint.

    Args:
        out: Run directory.
        games: Files of games, such as those of a run, in place of the script's; their valid
            proposals and right attempts are learnt from.
        steps: Optimizer steps (default: 50).
        lr: Learning rate (default: 1e-4; adapters want ten times as much).
        measured: Questions, and proposals, that the policy is measured by.
        resume: Continue what the same command has begun in --out, to the same result.
    """
    from ssp_experiments.run.checks import check_places

    check_places(chosen, files=games)
    from ssp_experiments.commands.imitate import run

    return run(chosen, games, steps=steps, lr=lr, measured=measured, out=out, resume=resume)


def export(
    source: str,
    /,
    *,
    out: Annotated[str, Parameter(name=("--out", "-o"))],
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    model: str | None = None,
    role: Literal["solver", "proposer"] = "solver",
) -> int:
    """Writes the policy of a checkpoint as a plain model directory, with a model card.

    The card says how the policy was made and how good it is. Read it before you publish it.

    Args:
        source: A run directory (its newest checkpoint), or a checkpoint.
        out: Model directory to write.
        dtype: Type that weights are rounded to.
        model: Model that was trained; for checkpoints of RLlib's or Tune's, which do not hold it.
        role: Role whose policy is meant, where each has its own.
    """
    from ssp_experiments.run.checks import check_places

    check_places(Chosen(model=model), files=[source])
    from ssp_experiments.commands.models import export

    return export(Path(source), Path(out), dtype, model, role)


def questions(
    run: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=("--out", "-o"))] = None,
    all: bool = False,
    window: PositiveInt | None = None,
    json: bool = False,
) -> int:
    """Shows what a run asked, in figures, and writes it as a data set, with a card.

    Read the card before you publish it.

    Args:
        run: A run directory, finished or in progress.
        out: Directory for the data set: questions.jsonl, and its card README.md.
        all: Include those that were rejected.
        window: Steps per column of the table (default: an eighth of the run).
        json: Print one JSON object.
    """
    from ssp_experiments.commands.questions import run as show_questions

    return show_questions(run, out=out, all=all, window=window, json=json)


def report(
    runs: list[str],
    /,
    *,
    out: Annotated[str | None, Parameter(name=("--out", "-o"))] = None,
    tokens: bool = False,
) -> int:
    """Writes a page with the curves, settings and games of runs.

    Args:
        runs: Directories of runs or sweeps; runs that differ in nothing but their seed become one
            line.
        out: The page (default: report-RUN.html).
        tokens: Include token ids and log-probabilities.
    """
    from ssp_experiments.run.checks import check_places

    check_places(Chosen(), files=runs)
    from ssp_experiments.commands.report import report

    return report(runs, out, tokens)


def view(runs: list[str], /, *, host: str = "127.0.0.1", port: int = 8321) -> int:
    """Serves that page, live, while runs go on.

    Args:
        runs: Directories of runs or sweeps, which may be in progress.
        host: Address to bind; anyone who reaches it can read the runs.
        port: Port to bind, 0 for a free one.
    """
    from ssp_experiments.commands.report import view

    return view(runs, host, port)
