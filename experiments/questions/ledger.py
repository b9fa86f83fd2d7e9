"""The ledger of a run: every question that its proposer wrote, with what became of it.

A question that was written twice, or played again from the pool, is one entry: its games are listed
in the order of play. Entries are plain data with the same fields in every line, so that
``datasets.load_dataset("json", data_files=...)`` reads a file of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.run.rundir import RunDirectory
from ssp_env.errors import RunError
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord
from ssp_env.judge.base import Verdict
from ssp_env.replay import read_games
from ssp_env.types import Document, Role

Entry = dict[str, Any]

_STEP = re.compile(r"step_(\d{6})\.jsonl(?:\.gz)?")


def games_of(run: str | Path) -> Iterator[tuple[int, GameRecord]]:
    """Step and record of every game of a run, in the order of play; void games are left out.

    A run in progress is read as far as it is.

    Raises:
        RunError: the directory holds no games of a run.
        DataError: a file of games is damaged; names file, line and field.
    """
    folder = RunDirectory(run).games
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    numbered = [(int(found[1]), file) for file in files if (found := _STEP.fullmatch(file.name))]
    if not numbered:
        raise RunError(f"{run} holds no games of a run (games/step_000001.jsonl is missing)")

    for step, file in numbered:
        for saved in read_games(file):
            if saved.record.outcome is not Outcome.VOID:
                yield step, saved.record


def ledger(games: Iterable[tuple[int, GameRecord]], run: str | Path) -> list[Entry]:
    """Every question of some games, in the order in which they were first written.

    Each entry holds ``question``, ``answer`` and ``aliases``; what the world knows (``hops``,
    ``truly_correct``, ``right_answers``; null where it cannot tell); ``accepted``, whether any of
    its games was valid; ``solve_rate``, the mean over its valid games; its path when it was first
    written (``searches``, each a query and what it found, and ``evidence``, passages in full);
    ``games``, what became of it each time, with its ``verification``, the ``noise`` that was mixed
    in, and the ``attempts`` to solve it; and ``provenance``, where it was first written.

    Args:
        games: step and record, in the order of play; see :func:`games_of`.
        run: the directory of their run, for its name.
    """
    entries: dict[tuple[str, str], Entry] = {}
    for step, game in games:
        if not game.question:
            continue

        key = (game.question, game.start.truth.id)
        if key not in entries:
            entries[key] = _entry(game) | {"provenance": _provenance(Path(run), step, game)}
        entries[key]["games"].append(_played(step, game))

    for entry in entries.values():
        rates = [played["solve_rate"] for played in entry["games"] if played["outcome"] == "valid"]
        entry["accepted"] = bool(rates)
        entry["solve_rate"] = sum(rates) / len(rates) if rates else None

    return list(entries.values())


def _entry(game: GameRecord) -> Entry:
    """Facts about a question, and how it came about when it was first written."""
    proposer = game.play_of(Role.PROPOSER)
    searches = proposer.searches if proposer is not None else ()
    found = {document.id: document for search in searches for document in search.documents}

    return {
        "question": game.question,
        "answer": game.answer,
        "aliases": list(game.aliases),
        "hops": game.hops,
        "truly_correct": game.truly_correct,
        "right_answers": None if game.right_answers is None else list(game.right_answers),
        "accepted": False,
        "solve_rate": None,
        "searches": [
            {"query": search.query, "found": [document.id for document in search.documents]}
            for search in searches
        ],
        "evidence": [_passage(found[name]) for name in game.evidence if name in found],
        "games": [],
    }


def _passage(document: Document) -> dict[str, str]:
    return {"id": document.id, "title": document.title, "text": document.text}


def _played(step: int, game: GameRecord) -> dict[str, Any]:
    return {
        "step": step,
        "slot": game.slot,
        "origin": game.origin,
        "outcome": game.outcome.value,
        "reason": game.reason,
        "solve_rate": game.solve_rate,
        "proposer_reward": game.proposer_reward,
        "verification": _ruling(game.verification),
        "noise": [{"id": n.document.id, "origin": str(n.origin)} for n in game.noise],
        "attempts": [
            {
                "answer": attempt.result,
                "verdict": _ruling(attempt.verdict),
                "searches": len(attempt.searches),
            }
            for attempt in game.attempts
        ],
    }


def _ruling(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"correct": verdict.correct, "detail": verdict.detail}


def _provenance(run: Path, step: int, game: GameRecord) -> dict[str, Any]:
    return {
        "run": run.resolve().name,
        "step": step,
        "slot": game.slot,
        "weights_version": game.weights_version,
    }
