"""The directory of a finished run; figures of it and of its resumption, as Weights & Biases and
MLflow keep them offline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from runs import all_games, games, metrics

from ssp_env.cli import main
from ssp_env.replay import read_games
from ssp_experiments.config import RunConfig, make_config
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.run.trackers import TRACKERS, TrackerName


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
        assert [saved.record.slot for saved in of_step] == list(range(int(line["games"])))
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


# -- trackers ----------------------------------------------------------------------------------


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
