"""Where the figures of a run are shown besides its own files, each by its own library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from ssp_env.disk import write_atomically
from ssp_experiments.config import RunConfig, TrackerName
from ssp_experiments.run.rundir import RunDirectory

Log = Callable[[int, Mapping[str, float]], object]
"""Takes the number and the figures of each step."""


@contextmanager
def tensorboard(config: RunConfig, directory: RunDirectory, steps_done: int) -> Iterator[Log]:
    """Files for TensorBoard, in the run directory."""
    from tensorboardX import SummaryWriter

    def log(step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            board.add_scalar(name, value, step)
        board.flush()

    # TensorBoard hides later steps, of a run that was interrupted.
    purge = steps_done + 1 if steps_done else None
    with SummaryWriter(str(directory.tensorboard), purge_step=purge) as board:
        yield log


@contextmanager
def wandb(config: RunConfig, directory: RunDirectory, steps_done: int) -> Iterator[Log]:
    """A run in the project ``ssp`` of Weights & Biases; ``WANDB_MODE=offline`` keeps it in the run
    directory. Steps that a resumed run plays again are not shown twice."""
    import wandb

    run = wandb.init(
        project="ssp", dir=directory.path, name=directory.path.name,
        id=directory.read_tracked(), resume="allow", config=config.model_dump(mode="json"),
        settings=wandb.Settings(silent=True),
    )  # fmt: skip
    write_atomically(directory.tracked, run.id)
    try:
        yield lambda step, figures: run.log(dict(figures), step=step)
    finally:
        run.finish()


@contextmanager
def mlflow(config: RunConfig, directory: RunDirectory, steps_done: int) -> Iterator[Log]:
    """A run in the experiment ``ssp`` of MLflow, wherever ``MLFLOW_TRACKING_URI`` says."""
    from mlflow import MlflowClient

    client, name = MlflowClient(), directory.read_tracked()
    if name is None:
        known = client.get_experiment_by_name("ssp")
        number = known.experiment_id if known else client.create_experiment("ssp")
        name = str(client.create_run(number, run_name=directory.path.name).info.run_id)
        for setting, value in config.model_dump(mode="json").items():
            client.log_param(name, setting, value)
        write_atomically(directory.tracked, name)

    def log(step: int, figures: Mapping[str, float]) -> None:
        for figure, value in figures.items():
            client.log_metric(name, figure, value, step=step)

    try:
        yield log
    finally:
        client.set_terminated(name)


TRACKERS: dict[
    TrackerName, Callable[[RunConfig, RunDirectory, int], AbstractContextManager[Log]]
] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
