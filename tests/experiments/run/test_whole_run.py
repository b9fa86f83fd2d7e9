"""The directory of a finished run; figures of it and of its resumption, as Weights & Biases and
MLflow keep them offline."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from runs import all_games, games, metrics
from shown import wandb_history

from ssp_env.cli import main
from ssp_env.replay import read_games
from ssp_experiments.config import RunConfig, TrackerName, make_config
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.run.trackers import TRACKERS, Line, Log, plain, tracking


def test_the_directory_holds_the_settings_and_what_was_reached(
    whole_run: Path, policy: Path
) -> None:
    names = {"config.yaml", "metrics.jsonl", "games", "checkpoints", "tensorboard", "summary.json"}
    assert {child.name for child in whole_run.iterdir()} == names
    config = make_config(yaml.safe_load((whole_run / "config.yaml").read_text()))
    assert (config.model, config.steps, config.learning.batch_size) == (str(policy), 4, 8)

    summary, lines = json.loads((whole_run / "summary.json").read_text()), metrics(whole_run)
    expected = {"seed": 0, "steps": 4, "world": "mini", "verifier": "none"}
    assert {name: summary[name] for name in expected} == expected
    assert summary["accuracy"] == {"base": lines[0]["accuracy"], "final": lines[-1]["accuracy"]}
    wall = sum(line["seconds"]["wall"] for line in lines)
    assert summary["wall_seconds"] == pytest.approx(wall, abs=0.06)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", summary["git_commit"])


def test_metrics_have_a_line_a_step_from_the_base(whole_run: Path) -> None:
    lines = metrics(whole_run)
    assert [line["step"] for line in lines] == list(range(5))
    assert all(("accuracy" in line) == (line["step"] in (0, 4)) for line in lines)
    assert set(lines[0]["accuracy"]) == set(lines[0]["interval"]) == {"1", "2", "3", "4"}
    assert lines[0]["questions"] == dict.fromkeys("1234", 3)
    for line in lines[1:]:
        assert {"games", "void_games", "proposer_reward", "valid_rate"} <= set(line)
        assert {"engine", "game", "sample", "learn", "step", "wall"} <= set(line["seconds"])
    # Otherwise the tests that compare runs would compare little.
    assert any(line.get("learner_kl", 0.0) > 0 for line in lines[1:])
    assert any(0 < line["valid_rate"] < 1 for line in lines[1:])
    assert any(line["reused_games"] for line in lines[1:])


def test_every_game_is_recorded_and_replays_offline(
    whole_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(games(whole_run)) == [f"step_{step:06d}.jsonl" for step in range(1, 5)]
    played = all_games(whole_run)
    for line in metrics(whole_run)[1:]:
        of_step = list(read_games(whole_run / "games" / f"step_{line['step']:06d}.jsonl"))
        assert [saved.record.index for saved in of_step] == list(range(int(line["games"])))
    assert {game.outcome for game in played} == {"valid", "invalid"}
    assert {game.origin for game in played} == {"proposed", "reused"}
    for game in played:
        assert (game.proposer_reward is not None) == (game.origin == "proposed")
        assert len(game.attempts) == (2 if game.outcome == "valid" else 0)
        assert all(t.reward in (0.0, 1.0) and t.verdict for t in game.attempts)

    assert main(["replay", str(whole_run), "--check"]) == 0
    count = len(played)
    assert f"{count} of {count} games are identical" in capsys.readouterr().out


def test_tensorboard_has_the_figures(whole_run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole_run / "tensorboard"))
    events.Reload()
    for name, at in (("valid_rate", [1, 2, 3, 4]), ("accuracy/2", [0, 4])):
        assert [event.step for event in events.Scalars(name)] == at
    shown = {event.step: event.value for event in events.Scalars("valid_rate")}
    assert shown[3] == pytest.approx(metrics(whole_run)[3]["valid_rate"])


def test_a_finished_run_is_summed_up_again_without_playing(whole_run: Path) -> None:
    before, played = json.loads((whole_run / "summary.json").read_text()), games(whole_run)
    assert main(["train", "--resume", "--out", str(whole_run)]) == 0
    assert json.loads((whole_run / "summary.json").read_text()) == before
    assert games(whole_run) == played


def test_a_run_killed_behind_its_last_checkpoint_shows_what_its_tracker_lacks(
    whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb loses the end of what a killed run said."""
    held: list[list[int]] = []

    @contextmanager
    def tracker(config: RunConfig, run: RunDirectory, before: Sequence[Line]) -> Iterator[Log]:
        held.append([line["step"] for line in before])
        yield lambda step, figures: None

    monkeypatch.setitem(TRACKERS, "tensorboard", tracker)
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    (run / "summary.json").unlink()
    for _ in range(2):  # a run that has ended shows nothing again
        assert main(["train", "--resume", "--out", str(run)]) == 0
    assert held == [[0, 1, 2, 3, 4]]
    assert (run / "summary.json").read_bytes() == (whole_run / "summary.json").read_bytes()


# -- trackers ----------------------------------------------------------------------------------


GROUP = "2-hop (bridge)"


def track(tracker: TrackerName, directory: RunDirectory, done: int, last: int) -> str:
    """What a run writes and shows that goes on after so many steps, the base policy's line
    included, until a kill takes all steps after ``last``; returns its name with the tracker."""
    config = RunConfig(tracker=tracker)
    with tracking(config, directory, done) as show:
        for step in range(done + 1 if done else 0, last + 2):
            figures = {"valid_rate": step / 10, "seconds": {"step": 0.5}}
            line = {"step": step, **figures, "accuracy": {GROUP: 0.5}}
            show(directory.append_metrics(line))
            show(line)  # as if a learner had died
    kept = directory.read_metrics()[: last + 1]
    directory.metrics.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return directory.read_tracked(tracker) or ""


@pytest.mark.slow
def test_wandb_shows_each_step_of_a_killed_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    directory = RunDirectory(tmp_path)
    name = track("wandb", directory, 0, 2)
    (first,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    first.write_bytes(first.read_bytes()[:100])  # killed before a block was full
    assert track("wandb", directory, 2, 3) == name
    (file,) = tmp_path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")
    assert [step for step, _ in wandb_history(file)] == [0, 1, 2, 3, 4]
    assert {figures["valid_rate"] for _, figures in wandb_history(file)} == {0, 0.1, 0.2, 0.3, 0.4}


def test_mlflow_shows_each_step_of_a_killed_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    directory, client = RunDirectory(tmp_path), MlflowClient()
    name = track("mlflow", directory, 0, 2)
    (rate,) = tmp_path.glob("mlruns/*/*/metrics/valid_rate")
    rate.write_text("".join(rate.read_text().splitlines(keepends=True)[:2]))  # two were lost
    assert track("mlflow", directory, 2, 3) == name
    for figure in ("valid_rate", "seconds/step", f"accuracy/{plain(GROUP)}"):
        history = client.get_metric_history(name, figure)
        assert sorted(point.step for point in history) == [0, 1, 2, 3, 4], figure
    assert client.get_run(name).data.params["world"] == "mini"
    assert client.get_run(name).info.status == "FINISHED"


def test_a_run_that_changes_its_tracker_shows_all_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    directory = RunDirectory(tmp_path)
    track("tensorboard", directory, 0, 2)
    directory.write_tracked("wandb", "abc")
    name = track("mlflow", directory, 2, 3)
    history = MlflowClient().get_metric_history(name, "valid_rate")
    assert [point.step for point in history] == [0, 1, 2, 3, 4]
