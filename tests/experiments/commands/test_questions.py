"""`ssp questions`: what a run asked, as a data set and in figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from experiments.commands.questions import (
    by_hops,
    by_step,
    games_of,
    near_duplicates,
    topics,
    written,
)
from experiments.run.rundir import RunDirectory
from ssp_env.cli import main
from ssp_env.doors.setup import set_up
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.strategies import make_strategy
from ssp_env.players import scripted_player
from ssp_env.replay.header import SavedRules
from ssp_env.types import GroundTruth

STEPS, SLOTS = 3, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The games of a run that a script played."""
    directory = RunDirectory(tmp_path_factory.mktemp("runs") / "scripted")
    directory.games.mkdir(parents=True)
    rules = set_up({"world": "mini"}).rules
    strategy = make_strategy("reuse")

    def answers(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        # Few, so that questions come again.
        return [rules.world.answers[i] for i in rng.choice(6, count)]

    for step in range(1, STEPS + 1):
        played = Round(rules, answers, SLOTS, [step], strategy)
        while pending := played.pending():
            scripted_player(rules).play(pending)
            played.advance()
        records = [record_game(game, rules, step - 1) for game in played.games]
        directory.write_games(step, SavedRules.of(rules), records)
    return directory.path


@pytest.fixture(scope="module")
def games(run: Path) -> list[tuple[int, GameRecord]]:
    return list(games_of(run))


def entries(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_every_question_has_one_line(
    run: Path, games: list[tuple[int, GameRecord]], tmp_path: Path
) -> None:
    out = tmp_path / "ledger.jsonl"
    assert main(["questions", str(run), "--out", str(out), "--all"]) == 0
    written = entries(out)
    asked = {(g.question, g.answer) for _, g in games if g.question}
    assert {(line["question"], line["answer"]) for line in written} == asked
    assert len(written) == len(asked)

    played = sum(len(line["games"]) for line in written)  # type: ignore[arg-type]
    assert played == sum(bool(g.question) for _, g in games)
    assert any(len(line["games"]) > 1 for line in written)  # type: ignore[arg-type]


def test_a_line_holds_the_games_of_its_question(
    run: Path, games: list[tuple[int, GameRecord]], tmp_path: Path
) -> None:
    out = tmp_path / "ledger.jsonl"
    assert main(["questions", str(run), "--out", str(out)]) == 0
    first = entries(out)[0]
    step, game = next((s, g) for s, g in games if g.question == first["question"])
    assert first["provenance"] == {
        "run": "scripted",
        "step": step,
        "slot": game.slot,
        "weights_version": step - 1,
    }
    assert [e["id"] for e in first["evidence"]] == list(game.evidence)  # type: ignore[attr-defined, index]

    plays = [(n, g) for n, g in games if g.question == first["question"]]
    assert [(each["step"], each["slot"]) for each in first["games"]] == [  # type: ignore[attr-defined]
        (n, g.slot) for n, g in plays
    ]
    for each, (_, played) in zip(first["games"], plays, strict=True):  # type: ignore[call-overload]
        assert each["verification"]["correct"] is (played.outcome == "valid")
        assert [n["document"]["id"] for n in each["noise"]] == [n.document.id for n in played.noise]
        assert [(a["answer"], a["correct"]) for a in each["attempts"]] == [
            (t.result, t.verdict is not None and t.verdict.correct) for t in played.attempts
        ]

    rates = [g.solve_rate for _, g in games if g.question == game.question and g.outcome == "valid"]
    assert first["solve_rate"] == pytest.approx(np.mean(rates))  # type: ignore[arg-type]


def test_the_file_is_a_table(run: Path, tmp_path: Path) -> None:
    """Read by what `datasets` reads JSON lines with: every line has the same types."""
    from pyarrow import json as arrow

    out = tmp_path / "ledger.jsonl"
    assert main(["questions", str(run), "--out", str(out), "--all"]) == 0
    table = arrow.read_json(out)
    assert table.column("question").to_pylist() == [line["question"] for line in entries(out)]
    assert table.column_names == list(entries(out)[0])


def test_figures_agree_with_a_count_by_hand(games: list[tuple[int, GameRecord]]) -> None:
    asked = written(games)
    (whole,) = by_step(asked, STEPS)
    proposed = [g for _, g in games if g.origin == "proposed" and g.question]
    assert whole["written"] == len(proposed)
    assert whole["accepted"] == sum(g.outcome is Outcome.VALID for g in proposed)
    texts = [g.question for g in proposed]
    assert whole["repeated"] == pytest.approx(1 - len(set(texts)) / len(texts))
    assert [window["first_step"] for window in by_step(asked, 1)] == [1, 2, 3]

    known = [g for g in proposed if g.hops is not None]
    assert list(by_hops(asked)) == sorted({g.hops for g in known})
    for hops, window in by_hops(asked).items():
        alike = [g for g in known if g.hops == hops]
        rates = [g.solve_rate for g in alike if g.solve_rate is not None]
        assert window["written"] == len(alike)
        assert window["accepted"] == sum(g.outcome is Outcome.VALID for g in alike)
        assert window["solve_rate"] == (pytest.approx(fmean(rates)) if rates else None)


def test_precision_and_recall_of_the_gate(games: list[tuple[int, GameRecord]]) -> None:
    _, sound = next((s, g) for s, g in games if g.outcome == "valid" and g.origin == "proposed")
    assert sound.right_answers is not None
    assert sound.verification is not None
    ambiguous = replace(sound, right_answers=(*sound.right_answers, "another"))
    wrong = replace(sound, truly_correct=False)
    no = replace(sound.verification, correct=False)
    missed = replace(sound, verification=no, outcome=Outcome.INVALID)

    played = (sound, sound, ambiguous, wrong, missed)
    (window,) = by_step(written([(1, game) for game in played]), 1)
    assert window["precision"] == pytest.approx(2 / 4)
    assert window["recall"] == pytest.approx(2 / 3)
    assert window["ambiguous"] == pytest.approx(1 / 4)
    assert window["wrong"] == pytest.approx(1 / 4)


def test_near_duplicates_are_found_and_others_are_not() -> None:
    asked = [
        "Which river flows through the capital of Austria?",
        "Who wrote the opera Fidelio?",
        "which river flows through the capital of Austria ?",
        "Who composed the opera Aida?",
    ]
    assert near_duplicates(asked) == [False, False, True, False]


def test_topics_tell_subjects_apart() -> None:
    rivers = [f"which river flows through town {i}" for i in range(10)]
    operas = [f"which composer wrote opera {i}" for i in range(5)]
    (first, share), (second, _) = topics([*rivers, *operas])[:2]
    assert "river" in first or "river" in second
    assert 0 < share < 1


@pytest.mark.parametrize(
    ("words", "says"),
    [(["nowhere"], "holds no games of a run"), (["RUN", "--window", "0"], "--window = 0: must")],
)
def test_bad_input(
    words: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(run) if word == "RUN" else word for word in words]
    assert main(["questions", *words, "--out", str(run / "out.jsonl")]) == 2
    assert says in capsys.readouterr().err
    assert not (run / "out.jsonl").exists()


def test_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["questions", str(run), "--json", "--window", "1"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures["windows"]) == STEPS
    assert sum(window["accepted"] for window in figures["hops"].values()) > 0
    assert figures["accepted"] <= figures["questions"]
