"""``ssp questions``: the questions of a run, as a data set (the ledger) and in figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from ssp_env.disk import new_folder
from ssp_env.errors import RunError
from ssp_env.game.game import shows
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.replay import read_games
from ssp_experiments.commands.cards import CARD, DATA, data_card
from ssp_experiments.options import plural
from ssp_experiments.run.rundir import RunDirectory, check_empty

KNOWN = {"question", "hops", "truly_correct", "right_answers"}
"""Fields of a record that are the same in all games about a question."""
PLAYED: dict[str, Any] = {
    "outcome": True,
    "reason": True,
    "solve_rate": True,
    "proposer_reward": True,
    "verification": True,
    "noise": {"__all__": {"document": {"id"}, "origin": True}},
    "weights_version": True,
}
"""Fields of a record that differ from game to game."""
RECORD = TypeAdapter(GameRecord)

Played = tuple[int, GameRecord]
"""A game and its step."""


def run(directory: str, *, out: Path | None, all: bool, window: int | None, json: bool) -> int:
    """Writes the ledger and its card, if asked to, and prints the figures."""
    if out:
        check_empty(out)
    games = list(games_of(directory))
    entries, questions = ledger(games, directory), written(games)
    if {game.origin for _, game in games} == {"given"}:
        raise RunError(f"nothing was proposed in this run: the questions of {directory} were given")
    kept = [entry for entry in entries if all or entry["accepted"]]
    accepted = sum(entry["accepted"] for entry in entries)

    windows = by_step(questions, window)
    lengths = {int(hops): figures(part) for hops, part in questions.groupby("hops")}
    if out:
        card = data_card(RunDirectory(directory), kept)
        with new_folder(out) as folder:
            lines = (dumps(entry, ensure_ascii=False) + "\n" for entry in kept)
            (folder / DATA).write_text("".join(lines), encoding="utf-8")
            (folder / CARD).write_text(card, encoding="utf-8")

    if json:
        counts = {"run": directory, "questions": len(entries), "accepted": accepted}
        print(dumps({**counts, "windows": [*windows.values()], "hops": lengths}, indent=2))
        return 0

    by_length = {plural(hops, "hop"): each for hops, each in lengths.items()}
    for title, columns in (("by step", windows), ("by length", by_length)):
        if columns:
            print(f"{title}\n{as_text(columns)}\n")
    print(f"{len(entries)} different questions, {accepted} of them accepted")
    if out:
        print(f"{len(kept)} questions are in {out / DATA}")
    return 0


# -- the ledger --------------------------------------------------------------------------------


def games_of(run: str | Path) -> Iterator[Played]:
    """Step and record of every game of a run, in the order of play; void games are left out."""
    files = RunDirectory(run).game_files
    if not files:
        raise RunError(f"{run} holds no games of a run (games/step_000001.jsonl is missing)")
    for step, file in files.items():
        for saved in read_games(file):
            if saved.record.outcome != "void":
                yield step, saved.record


def ledger(games: Iterable[Played], run: str | Path) -> list[dict[str, Any]]:
    """Every question that was written in some games, in the order in which they first were; given
    questions are not among them.

    A question that was written twice, or played again from the pool, is one entry: what is known of
    it; ``accepted`` if any of its games was valid; its mean ``solve_rate`` over these; ``searches``
    and ``evidence`` of its first game, and where that was played; ``games``, what became of it each
    time. All entries have the same fields, as ``datasets.load_dataset`` needs them.
    """
    name = Path(run).resolve().name
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for step, game in games:
        if not game.question or game.origin == "given":
            continue
        place = {"step": step, "slot": game.index}
        proposer = game.named().get("proposer")
        searches = proposer.searches if proposer is not None else ()
        documents = {document.id: document for search in searches for document in search.documents}
        first: dict[str, Any] = {
            **RECORD.dump_python(game, mode="json", include=KNOWN),
            "answer": game.answer,
            "aliases": list(game.aliases),
            "accepted": False,
            "solve_rate": None,
            "searches": [
                {"query": search.query, "found": [document.id for document in search.documents]}
                for search in searches
            ],
            "evidence": [
                {"id": each, "title": documents[each].title, "text": documents[each].text}
                for each in game.evidence
                if each in documents
            ],
            "games": [],
            "provenance": {"run": name, **place, "weights_version": game.weights_version},
        }
        attempts = [
            {
                "answer": attempt.result,
                "correct": attempt.verdict.correct if attempt.verdict else None,
                "searches": len(attempt.searches),
            }
            for attempt in game.attempts
        ]
        played = RECORD.dump_python(game, mode="json", include=PLAYED)
        # Later games about a question add to the entry that its first one has made.
        entry = entries.setdefault((game.question, game.initial_state.truth.id), first)
        entry["games"].append({**place, "origin": game.origin, **played, "attempts": attempts})

    for entry in entries.values():
        rates = [played["solve_rate"] for played in entry["games"] if played["outcome"] == "valid"]
        entry["accepted"] = bool(rates)
        entry["solve_rate"] = sum(rates) / len(rates) if rates else None
    return list(entries.values())


# -- figures -----------------------------------------------------------------------------------


def written(games: Iterable[Played]) -> pd.DataFrame:
    """One row per question that a proposer wrote, in the order of play.

    A question is ``sound`` if its ground truth is its only right answer, ``ambiguous`` if it has
    several, and ``wrong`` if the ground truth is none. In a world that reads questions, one that it
    cannot read counts as wrong; worlds that do not know the truth leave all three empty. A
    ``right`` attempt is ``unread`` if no passage that it found shows the answer.
    """
    rows = []
    for step, game in games:
        if game.origin != "proposed" or not game.question:
            continue
        true, answers = game.truly_correct, len(game.right_answers or ())
        # Whether it is sound, ambiguous or wrong; both of the latter may be true.
        truth = (true and answers == 1, answers > 1, not true) if true is not None else [None] * 3
        verified = None if game.verification is None else game.verification.correct
        right = [attempt for attempt in game.attempts if attempt.right]
        unread = sum(not _shows(attempt, game.initial_state.truth.wordings) for attempt in right)
        known = (step, game.question, game.outcome == "valid", game.hops, game.solve_rate, verified)
        rows.append((*known, *truth, game.proposer_reward, len(right), unread))

    shares = ["hops", "solve_rate", "verified", "sound", "ambiguous", "wrong"]
    counts = ["pay", "right", "unread"]
    frame = pd.DataFrame(rows, columns=["step", "question", "accepted", *shares, *counts])
    frame = frame.astype({**dict.fromkeys([*shares, *counts], float), "accepted": bool})
    if frame["sound"].notna().any():
        frame = frame.fillna({"sound": 0.0, "ambiguous": 0.0, "wrong": 1.0})
    frame["repeated"] = frame["question"].duplicated()
    return frame


def _shows(attempt: TrajectoryRecord, wordings: Sequence[str]) -> bool:
    """True if a passage that an attempt has found shows the answer."""
    return any(shows(d, wordings) for search in attempt.searches for d in search.documents)


def by_step(questions: pd.DataFrame, window: int | None = None) -> dict[str, dict[str, Any]]:
    """Figures of the questions of every so many steps (default: an eighth of all), by the steps."""
    size = window or -(-questions["step"].max() // 8)
    parts = (figures(part) for _, part in questions.groupby((questions["step"] - 1) // size))
    return {f"{part['first_step']}-{part['last_step']}": part for part in parts}


def figures(rows: pd.DataFrame) -> dict[str, Any]:
    """Figures of some questions, one at least; ``None`` stands for the share of nothing.

    Precision and recall are of verification alone, over the questions that it read. ``paid`` is the
    share of the pay of accepted questions that unsound ones earned.
    """
    # precision = P(sound | verified), recall = P(verified | sound), over what was read.
    accepted, read = rows[rows["accepted"]], rows.dropna(subset=["verified", "sound"])
    unsound = accepted.loc[accepted["sound"] == 0, "pay"]
    means = {
        "repeated": rows["repeated"],
        "precision": read.loc[read["verified"] == 1, "sound"],
        "recall": read.loc[read["sound"] == 1, "verified"],
        **{name: accepted[name] for name in ("ambiguous", "wrong", "hops", "solve_rate")},
        "unsolved": accepted["solve_rate"] == 0,
    }
    pay, right = accepted["pay"].sum(), accepted["right"].sum()
    knows = pay > 0 and accepted["sound"].notna().any()
    return {
        "first_step": int(rows["step"].min()),
        "last_step": int(rows["step"].max()),
        "written": len(rows),
        "accepted": len(accepted),
        **{name: float(v.mean()) if v.notna().any() else None for name, v in means.items()},
        "paid": float(unsound.sum() / pay) if knows else None,
        "unread": float(accepted["unread"].sum() / right) if right else None,
    }


def as_text(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of figures, a column for each mapping."""
    cells = pd.DataFrame(columns, dtype=object).drop(["first_step", "last_step"], errors="ignore")
    shown = cells.map(lambda v: "-" if pd.isna(v) else f"{v:.2f}" if v % 1 else f"{v:.0f}")
    return str(shown.to_string())
