"""Figures of a run, and of its resumption, as Weights & Biases and MLflow keep them offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssp_experiments.config import RunConfig
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.run.trackers import TRACKERS, TrackerName


def track(tracker: TrackerName, directory: RunDirectory, first: int, last: int) -> str:
    """Logs these steps as a run does that begins or goes on there; returns the run's name."""
    with TRACKERS[tracker](RunConfig(tracker=tracker), directory, first - 1) as log:
        for step in range(first, last + 1):
            log(step, {"valid_rate": step / 10, "accuracy/2": 0.5})
    return directory.read_tracked() or ""


@pytest.mark.slow
def test_wandb_keeps_a_resumed_run_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    directory = RunDirectory(tmp_path)
    name = track("wandb", directory, 1, 2)
    assert track("wandb", directory, 3, 3) == name
    files = [*tmp_path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")]
    assert files
    assert any(b"valid_rate" in file.read_bytes() for file in files)


def test_mlflow_goes_on_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    directory, client = RunDirectory(tmp_path), MlflowClient()
    name = track("mlflow", directory, 1, 2)
    assert track("mlflow", directory, 3, 3) == name
    history = client.get_metric_history(name, "valid_rate")
    assert [(figure.step, figure.value) for figure in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert client.get_run(name).data.params["world"] == "mini"
    assert client.get_run(name).info.status == "FINISHED"
