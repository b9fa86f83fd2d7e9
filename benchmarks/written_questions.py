"""Questions that a real model writes and verifies itself, kept with their whole games.

    python -m benchmarks.written_questions MODEL --name NAME --proposals 400 --out FILE --seed 0

Games of self-play in wiki-mini, without learning. It plays in portions, each a file of games in the
folder beside FILE, and after Ctrl-C the same command goes on. FILE has the figures, and beside it
stand:

- FILE-valid.jsonl.gz, the games whose questions passed every check, for ``ssp imitate --games``;
- FILE-questions.jsonl, their questions and answers, for ``ssp train --questions``;
- FILE-read.json, every question that was verified, with what had been found, for you to read: write
  true or false for ``sound`` beside it, and start the command again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.harness import parser, write
from benchmarks.real_gates import rounded, save
from ssp_agents.rollout import play
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import POLICY
from ssp_env.replay import SavedGame, read_games, save_games, write_games
from ssp_experiments.evaluation import engine_of
from ssp_experiments.options import Chosen
from ssp_experiments.run.checks import open_run

PORTION = 20
"""Games that are played side by side."""


def main() -> None:
    """Plays what is missing, and writes the figures."""
    options = parser(__doc__)
    options.add_argument("model", help="directory of a causal LM, or a GGUF file")
    options.add_argument("--name", required=True, help="the model's name, and how it came to be")
    options.add_argument("--proposals", type=int, default=400)
    options.add_argument("--set", action="append", default=[], help="settings, beside qwen-small's")
    chosen = options.parse_args()

    files = portions(chosen)
    saved = [*chain.from_iterable(map(read_games, files))]
    valid = [game for game in saved if game.record.outcome is Outcome.VALID]
    stem = chosen.out.with_suffix("")
    write_games(valid, f"{stem}-valid.jsonl.gz")
    asked = [json.dumps(given(game), ensure_ascii=False) + "\n" for game in valid]
    Path(f"{stem}-questions.jsonl").write_text("".join(asked), encoding="utf-8")
    read = to_read(saved, Path(f"{stem}-read.json"))
    seconds = [json.loads(file.with_suffix(".seconds").read_text()) for file in files]
    row = {"model": chosen.name, "settings": chosen.set, "cpu_seconds": round(sum(seconds))}
    write(chosen.out, {**row, **figures(saved, read)})


def portions(chosen: Any) -> list[Path]:
    """Files of games, each played where it is not there yet."""
    config = Chosen(preset="qwen-small", model=chosen.model, set=chosen.set).config()
    rules, _ = open_run(config)
    folder = chosen.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    engine, files = None, []
    for first in range(0, chosen.proposals, PORTION):
        file = folder / f"games_{first:04d}.jsonl"
        files.append(file)
        if file.is_file():
            kept = next(read_games(file))
            if (kept.rules.config, kept.record.initial_state.seed[0]) != (
                rules.config,
                chosen.seed,
            ):
                raise SystemExit(f"{file} is of other settings or another seed: give another --out")
            continue
        engine = engine or engine_of(config, rules)
        began = time.process_time()
        size = min(PORTION, chosen.proposals - first)
        batch = GameBatch(rules, answers_of(rules.world), size, [chosen.seed, first])
        games = play(batch, engine, temperature=1.0).games
        file.with_suffix(".seconds").write_text(json.dumps(time.process_time() - began))
        save_games(games, rules, file)
        reasons = Counter(game.reason or game.outcome.value for game in games)
        print(f"{first + size} of {chosen.proposals}: {dict(reasons)}", flush=True)
    return files


def given(game: SavedGame) -> dict[str, Any]:
    """A question with its answers, as ``ssp train --questions`` reads it."""
    record = game.record
    return {"question": record.question, "answers": [record.answer, *record.aliases]}


def to_read(saved: Sequence[SavedGame], file: Path) -> list[dict[str, Any]]:
    """A row for each question that was verified, with what was read by hand so far."""
    old = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    sound = {row["number"]: row["sound"] for row in old}
    rows = [
        {
            "number": number,
            "answer": game.record.answer,
            "question": game.record.question,
            "found": [s.text for s in game.record.trajectories[0].segments[1:] if s.by != POLICY],
            "accepted": game.record.outcome is Outcome.VALID,
            "reason": game.record.reason,
            "solve_rate": game.record.solve_rate,
            "sound": sound.get(number),
        }
        for number, game in enumerate(saved)
        if game.record.materials is not None
    ]
    save(file, rows)
    return rows


def figures(saved: Sequence[SavedGame], read: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How proposals ended; of those that were verified and read, how well the model judged."""
    ends = Counter(game.record.reason or game.record.outcome.value for game in saved)
    known = [row for row in read if row["sound"] is not None]
    return {
        "proposals": len(saved),
        "ends": dict(ends.most_common()),
        "valid": rounded([game.record.outcome is Outcome.VALID for game in saved]),
        "verified": len(read),
        "read": len(known),
        "sound_of_verified": rounded([row["sound"] for row in known]),
        "sound_of_accepted": rounded([row["sound"] for row in known if row["accepted"]]),
        "accepted_of_sound": rounded([row["accepted"] for row in known if row["sound"]]),
    }


if __name__ == "__main__":
    main()
