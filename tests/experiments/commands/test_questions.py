"""`ssp questions`: what a run asked, as a data set and in figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import json as arrow
from small_runs import make_run

from ssp_env.cli import main
from ssp_env.game.game import Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord
from ssp_experiments.commands.questions import figures, games_of, written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "scripted", steps=3).path


@pytest.fixture(scope="module")
def games(run: Path) -> list[tuple[int, GameRecord]]:
    return list(games_of(run))


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]


def test_every_question_has_one_line_with_its_games(
    run: Path, games: list[tuple[int, GameRecord]], tmp_path: Path
) -> None:
    every, kept = tmp_path / "every", tmp_path / "kept"
    assert main(["questions", str(run), "--out", str(every), "--all"]) == 0
    lines = entries(every)
    assert f"| {len(lines)} |" in (every / "README.md").read_text(encoding="utf-8")
    asked = dict.fromkeys((g.question, g.answer) for _, g in games if g.question)
    assert [(line["question"], line["answer"]) for line in lines] == [*asked]
    assert max(len(line["games"]) for line in lines) > 1

    for line in lines:
        known = (line["question"], line["answer"])
        plays = [(n, g) for n, g in games if (g.question, g.answer) == known]
        step, game = plays[0]
        place = {"step": step, "slot": game.index, "weights_version": step - 1}
        assert line["provenance"] == {"run": "scripted", **place}
        assert [each["id"] for each in line["evidence"]] == list(game.evidence)
        assert [(p["step"], p["slot"]) for p in line["games"]] == [(n, g.index) for n, g in plays]
        for each, (_, played) in zip(line["games"], plays, strict=True):
            noise = [n["document"]["id"] for n in each["noise"]]
            assert noise == [n.document.id for n in played.noise]
            attempts = [(a["answer"], bool(a["correct"])) for a in each["attempts"]]
            assert attempts == [(t.result, t.right) for t in played.attempts]
        rates = [g.solve_rate for _, g in plays if g.outcome == "valid"]
        assert line["accepted"] == bool(rates)
        assert line["solve_rate"] == (pytest.approx(np.mean(rates)) if rates else None)

    # Read by what `datasets` reads JSON lines with: every line has the same types.
    table = arrow.read_json(every / "questions.jsonl")
    assert table.column("question").to_pylist() == [line["question"] for line in lines]
    assert main(["questions", str(run), "--out", str(kept)]) == 0
    assert main(["questions", str(run), "--out", str(kept)]) == 2, "nothing is replaced"
    assert entries(kept) == [line for line in lines if line["accepted"]]


def test_figures_of_the_gate_and_of_what_pays_though_it_is_not_sound(
    games: list[tuple[int, GameRecord]],
) -> None:
    def found(*played: GameRecord) -> dict[str, Any]:
        return figures(written([(1, game) for game in played]))

    _, solved = next((s, g) for s, g in games if g.origin == "proposed" and g.solve_rate == 1)
    sound = replace(solved, proposer_reward=0.25)
    assert sound.right_answers is not None
    assert sound.verification is not None
    ambiguous = replace(sound, right_answers=(*sound.right_answers, "another"))
    wrong = replace(sound, truly_correct=False)
    no = replace(sound.verification, correct=False)
    missed = replace(sound, verification=no, outcome=Outcome.INVALID)
    again = replace(sound, initial_state=replace(sound.initial_state, origin=Origin.REUSED))
    gate = found(sound, sound, ambiguous, wrong, missed, again)
    shares = [gate[name] for name in ("precision", "recall", "ambiguous", "wrong")]
    assert shares == pytest.approx([2 / 4, 2 / 3, 1 / 4, 1 / 4])
    counts = [gate[name] for name in ("written", "accepted", "solve_rate", "repeated")]
    assert counts == pytest.approx([5, 4, 1, 4 / 5])

    unread = tuple(replace(t, searches=()) for t in solved.trajectories)
    guessed = replace(wrong, proposer_reward=0.75, trajectories=unread)
    unsolved = replace(sound, solve_rate=0.0, proposer_reward=1.0, trajectories=())
    # A world that reads the others' questions knows that this is none.
    unknown = {"truly_correct": None, "right_answers": None, "hops": None}
    nonsense = replace(sound, proposer_reward=0.5, trajectories=(), **unknown)
    pay = found(sound, guessed, unsolved, nonsense)
    shares = [pay[name] for name in ("wrong", "paid", "unread", "unsolved")]
    assert shares == pytest.approx([2 / 4, (0.75 + 0.5) / 2.5, 1 / 2, 1 / 4])
    assert found(nonsense)["wrong"] is None
