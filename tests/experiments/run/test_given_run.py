"""Runs on given questions alone: what they leave behind, resumed, replayed, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import all_games, arguments, games, metrics, timeless

from ssp_env.cli import main
from ssp_env.worlds.mini import MiniWorld
from ssp_experiments.commands.cards import command_of, model_card
from ssp_experiments.config import make_config
from ssp_experiments.report.curves import chart_data
from ssp_experiments.report.runs import arms_of, open_runs
from ssp_experiments.run.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("cluster")
COUNT = 12


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions that nobody is measured by, in FlashRAG's form."""
    asked = {question.text for question in MiniWorld().questions(0, 3)}
    others = [q for q in MiniWorld().questions(1, 5) if q.text not in asked][:COUNT]
    path = tmp_path_factory.mktemp("given") / "given.jsonl"
    rows = ({"question": q.text, "golden_answers": q.answers} for q in others)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def run(policy: Path, file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of eight."""
    out = tmp_path_factory.mktemp("given") / "whole"
    assert main(arguments(policy, out, "--questions", str(file), "--steps", "3")) == 0
    return out


def test_the_solver_learns_from_them_alone_and_nobody_complains(
    run: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = all_games(run)
    assert {(game.origin, game.outcome) for game in played} == {("given", "valid")}
    assert {t.role for game in played for t in game.trajectories} == {"solver"}
    asked = [game.question for game in played]
    assert len({*asked[:COUNT]}) == len({*asked[COUNT:]}) == COUNT, "two epochs in three steps"
    assert asked[:COUNT] != asked[COUNT:]

    summary, lines = json.loads((run / "summary.json").read_text()), metrics(run)[1:]
    assert summary["learning_roles"] == ["solver"]
    assert [line["given_epoch"] for line in lines] == pytest.approx([8 / 12, 16 / 12, 2])
    for line in lines:
        assert (line["games"], line["given_share"], line["filled_slots"]) == (8, 1, 1)
        assert line["given_reward"] == line["solver_reward"]
        assert not any(name.startswith(("proposer", "invalid", "valid")) for name in line)

    assert main(["replay", str(run), "--check"]) == 0
    assert f"{len(played)} of {len(played)} games are identical" in capsys.readouterr().out
    assert main(["questions", str(run)]) == 2
    assert "nothing was proposed in this run" in capsys.readouterr().err


def test_a_resumed_run_asks_what_a_whole_one_asks(
    run: Path, policy: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = tmp_path / "run", ("--questions", str(file), "--set", "evaluate_every=99")
    assert main(arguments(policy, out, *words, "--steps", "1", "--quiet")) == 0
    assert main(["train", "--resume", "--out", str(out), "--steps", "3"]) == 0
    said = capsys.readouterr().err
    assert f"8 of 8 questions a step are given ({file}); nothing is proposed" in said
    assert "all alike" in said
    assert "valid" not in said
    assert games(out) == games(run)
    ours, theirs = timeless(out)[2:], timeless(run)[2:]
    assert ours == theirs

    assert main(["train", "--resume", "--out", str(out), "--set", "learning.given_share=0.5"]) == 2
    assert "other settings (learning.given_share" in capsys.readouterr().err


def test_report_and_cards_say_what_it_was(run: Path, file: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    runs = open_runs([str(run)])
    shown = {each["title"]: each for each in chart_data(runs, arms_of(runs))}
    labels = [series["label"] for series in shown["Given questions"]["series"]]
    assert "all attempts paid alike" in labels
    assert shown["Passes through the given questions"]["x"] == [1, 2, 3]
    card = model_card(RunDirectory(run), 3, "float32")
    assert "trained on given questions" in card
    assert "questions: given.jsonl" in card, "the name of the file, and nobody's folders"
    line = command_of(make_config(RunDirectory(run).read_config()))
    assert f"learning.questions={file}" in line
