"""Where the figures of a run are shown besides its own files, each by its own library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ssp_experiments.config import RunConfig, TrackerName
from ssp_experiments.run.rundir import RunDirectory


class Tracker(Protocol):
    """Takes the figures of each step."""

    def log(self, step: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Files for TensorBoard, in the run directory."""

    def __init__(self, config: RunConfig, directory: RunDirectory, steps_done: int) -> None:
        from tensorboardX import SummaryWriter

        # TensorBoard hides later steps, of a run that was interrupted.
        purge = steps_done + 1 if steps_done else None
        self._board = SummaryWriter(str(directory.tensorboard), purge_step=purge)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()

    def close(self) -> None:
        self._board.close()


class WeightsAndBiases:
    """A run in the project ``ssp`` of Weights & Biases; ``WANDB_MODE=offline`` keeps it in the run
    directory. Steps that a resumed run plays again are not shown twice."""

    def __init__(self, config: RunConfig, directory: RunDirectory, steps_done: int) -> None:
        import wandb

        self._run = wandb.init(
            project="ssp", dir=directory.path, name=directory.path.name,
            id=directory.read_tracked(), resume="allow", config=config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True),
        )  # fmt: skip
        directory.write_tracked(self._run.id)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run in the experiment ``ssp`` of MLflow, wherever ``MLFLOW_TRACKING_URI`` says."""

    def __init__(self, config: RunConfig, directory: RunDirectory, steps_done: int) -> None:
        from mlflow import MlflowClient

        self._client, self._id = MlflowClient(), directory.read_tracked()
        if self._id is None:
            known = self._client.get_experiment_by_name("ssp")
            number = known.experiment_id if known else self._client.create_experiment("ssp")
            run = self._client.create_run(number, run_name=directory.path.name)
            self._id = str(run.info.run_id)
            for name, value in config.model_dump(mode="json").items():
                self._client.log_param(self._id, name, value)
            directory.write_tracked(self._id)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._client.log_metric(self._id, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._id)


TRACKERS: dict[TrackerName, Callable[[RunConfig, RunDirectory, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
