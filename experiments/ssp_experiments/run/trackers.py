"""Where the figures of a run are shown besides its own files, each by its own library.

``metrics.jsonl`` is the truth: what a tracker lost when the run was killed is shown when the run is
resumed, and a step that is played again is not shown again."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from ssp_experiments.config import RunConfig, TrackerName
from ssp_experiments.run.rundir import RunDirectory

Line = Mapping[str, Any]
"""A line of ``metrics.jsonl``."""
Show = Callable[[Line], object]
Log = Callable[[int, Mapping[str, float]], object]
"""Takes the number and the figures of each step."""


def figures_of(line: Line) -> dict[str, float]:
    """What a tracker shows of a line; each accuracy under the name of its group."""
    figures = {name: value for name, value in line.items() if isinstance(value, float)}
    figures |= {f"seconds/{name}": value for name, value in line["seconds"].items()}
    accuracies = line.get("accuracy", {}).items()
    return figures | {f"accuracy/{plain(group)}": value for group, value in accuracies}


def plain(group: str) -> str:
    """A group's name as all trackers take it. One that is changed ends in a digest of what it was,
    so that no two become one.

    >>> plain("2wiki"), plain("2-hop (bridge)"), plain("2-hop [bridge]")
    ('2wiki', '2-hop__bridge_-139b', '2-hop__bridge_-45fd')
    """
    if len(group) <= 100 and re.fullmatch(r"\w[\w.-]*", group):
        return group
    digest = sha256(group.encode("utf-8", "replace")).hexdigest()[:4]
    readable = re.sub(r"[^\w.-]", "_", group[:100])
    return f"{readable}-{digest}"


@contextmanager
def tracking(config: RunConfig, directory: RunDirectory, steps_done: int) -> Iterator[Show]:
    """The run's tracker. It has shown, or shows now, the steps that are done; each later one is
    shown once, also where a learner's death has it played again."""
    before = directory.read_metrics() if steps_done else []
    # Before anything is shown, -1: step 0 is the base policy.
    shown = steps_done if before else -1
    with TRACKERS[config.tracker](config, directory, before) as log:

        def show(line: Line) -> None:
            nonlocal shown
            if line["step"] > shown:
                log(line["step"], figures_of(line))
                shown = line["step"]

        yield show


@contextmanager
def tensorboard(
    config: RunConfig, directory: RunDirectory, before: Sequence[Line]
) -> Iterator[Log]:
    """Files for TensorBoard, in the run directory."""
    from tensorboardX import SummaryWriter

    def log(step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            board.add_scalar(name, value, step)
        board.flush()

    # TensorBoard hides later steps, of a run that was interrupted.
    purge = before[-1]["step"] + 1 if before else None
    with SummaryWriter(str(directory.tensorboard), purge_step=purge) as board:
        yield log


@contextmanager
def wandb(config: RunConfig, directory: RunDirectory, before: Sequence[Line]) -> Iterator[Log]:
    """A run in the project ``ssp`` of Weights & Biases; ``WANDB_MODE=offline`` keeps it in the run
    directory, all of it in the files of its latest part."""
    import wandb

    name = directory.read_tracked("wandb")
    folders = {*directory.path.glob(f"wandb/offline-run-*-{name}")} if name else set[Path]()
    run = wandb.init(
        project="ssp", dir=directory.path, name=directory.path.name,
        id=name, resume="allow", config=config.model_dump(mode="json"),
        settings=wandb.Settings(silent=True),
    )  # fmt: skip
    directory.write_tracked("wandb", run.id)
    try:
        # wandb writes a file in blocks of 32 KiB: the end of what a killed run said is lost.
        known = run.step  # of its server; offline, it begins anew
        for line in before:
            if line["step"] >= known:
                run.log(figures_of(line), step=line["step"])
        if run.offline:
            for folder in folders - {Path(run.dir).parent}:
                shutil.rmtree(folder)
        yield lambda step, figures: run.log(dict(figures), step=step)
    finally:
        run.finish()


@contextmanager
def mlflow(config: RunConfig, directory: RunDirectory, before: Sequence[Line]) -> Iterator[Log]:
    """A run in the experiment ``ssp`` of MLflow, wherever ``MLFLOW_TRACKING_URI`` says; else in
    MLflow's own default, ``mlflow.db`` in the working directory."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client, name = MlflowClient(), directory.read_tracked("mlflow")
    logged: dict[str, set[int]] = {}
    """Steps that are there, by figure: a kill may have come in the middle of one."""
    if name is None:
        known = client.get_experiment_by_name("ssp")
        number = known.experiment_id if known else client.create_experiment("ssp")
        name = str(client.create_run(number, run_name=directory.path.name).info.run_id)
        for setting, value in config.model_dump(mode="json").items():
            client.log_param(name, setting, str(value)[:_LONGEST_PARAM])
        directory.write_tracked("mlflow", name)
    else:
        for figure in client.get_run(name).data.metrics:
            logged[figure] = {point.step for point in client.get_metric_history(name, figure)}

    def log(step: int, figures: Mapping[str, float]) -> None:
        new = {n: value for n, value in figures.items() if step not in logged.get(n, ())}
        now = int(time.time() * 1000)
        client.log_batch(name, [Metric(n, value, now, step) for n, value in new.items()])

    for line in before:
        log(line["step"], figures_of(line))
    try:
        yield log
    finally:
        client.set_terminated(name)


# Characters that MLflow takes of a setting's value.
_LONGEST_PARAM = 6000

TRACKERS: dict[
    TrackerName, Callable[[RunConfig, RunDirectory, Sequence[Line]], AbstractContextManager[Log]]
] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
