"""What a real language model can do in the game before it has learnt anything, per prompt set.

    python -m benchmarks.real_gates MODEL --name NAME --sets few-shot plain --out FILE --seed 0

Questions are wiki-mini's, as many of each benchmark, answered greedily: the shares of attempts that
end in an answer and that are right, by benchmark as well, and the searches. Choose a set's wording
on other questions (``--beyond 15``) and with another seed's proposals than those that you report.
Proposals are sampled at temperature 1, and read by nobody but you: FILE's neighbour
FILE-SET-proposals.json has them all with what was found; write true or false for ``sound`` beside
each, and start the command again.

It plays in portions, each kept when it is over; after Ctrl-C, the same command goes on. FILE has a
row for each model and set, and keeps those that it does not measure.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness import origin, parser
from ssp_agents.engines.base import Engine
from ssp_agents.rollout import EVALUATION, answer, play
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.outcome import Ending
from ssp_env.game.record import RETRY, TrajectoryRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question, World
from ssp_env.wording.mention import mentions
from ssp_env.wording.normal import normalise
from ssp_env.worlds import open_world
from ssp_experiments.evaluation import engine_of
from ssp_experiments.options import Chosen
from ssp_experiments.stats import share

GAME = {
    "attempts": 1,
    "top_k": 2,
    "max_document_tokens": 100,
    "max_searches": 3,
    "max_response_tokens": 900,
    "verifier": "none",
    "filters": [],
    "closed_book": False,
}
PORTION = 14
"""Games that are played side by side."""


def main() -> None:
    """Measures each set, and writes the table."""
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--name", required=True, help="the model's name, and how it came to be")
    options.add_argument("--sets", nargs="+", default=["few-shot"])
    options.add_argument("--questions", type=int, default=100)
    options.add_argument("--beyond", type=int, default=0, help="skip so many of each")
    options.add_argument("--proposals", type=int, default=0)
    options.add_argument("--dtype", default="bfloat16")
    options.add_argument("--set", action="append", default=[], help="settings, beside wiki's")
    chosen = options.parse_args()

    for prompts in chosen.sets:
        engine = [f"engine.dtype={chosen.dtype}", "engine.attention=sdpa"]
        settings = [*engine, f"game.prompts={prompts}"]
        settings += [f"game.{name}={json.dumps(value)}" for name, value in GAME.items()]
        config = Chosen(preset="wiki", set=[*settings, *chosen.set]).config()
        tokenizer = HuggingFaceTokenizer.load(chosen.model)
        world = open_world("wiki-mini")
        # Nobody verifies a proposal, and nobody is asked: it is read by hand.
        rules = Rules.build(
            world, tokenizer, config.game, filters={"read_by_hand": lambda proposal: True}
        )
        opened: list[Engine] = []

        def engine_once(made: list[Engine] = opened, config: Any = config, rules: Any = rules):  # type: ignore[no-untyped-def]
            made += [] if made else [engine_of(config, rules, chosen.model)]
            return made[0]

        name = f"{chosen.out.stem}-{chosen.name.split(',')[0]}-{prompts.replace('/', '_')}"
        kept = chosen.out.parent / name
        asked = drawn(world, chosen.seed, chosen.questions, chosen.beyond)
        answers = answered(rules, engine_once, asked, chosen.seed, Path(f"{kept}-answers.json"))
        proposals = proposed(
            rules, engine_once, chosen.proposals, chosen.seed, Path(f"{kept}-proposals.json")
        )
        row = {"model": chosen.name, "prompts": prompts, "settings": chosen.set, "game": GAME}
        row |= {"dtype": chosen.dtype, "seed": chosen.seed, "beyond": chosen.beyond}
        keep(chosen.out, {**origin(), **row, **answered_row(answers), **proposed_row(proposals)})


def drawn(world: World, seed: int, count: int, beyond: int) -> list[Question]:
    """As many questions of each benchmark, none of which is among the first ``beyond`` of each."""
    skipped = {question.id for question in world.questions(seed, beyond)}
    sample = world.questions(seed, beyond - (-count // 7))
    return spread([question for question in sample if question.id not in skipped])[:count]


def spread(questions: Sequence[Question]) -> list[Question]:
    """The questions, one of each benchmark after the other."""
    groups = defaultdict(list)
    for question in questions:
        groups[question.group].append(question)
    return [q for q in chain.from_iterable(zip_longest(*groups.values())) if q is not None]


def answered(
    rules: Rules,
    engine: Callable[[], Engine],
    questions: Sequence[Question],
    seed: int,
    file: Path,
) -> list[dict[str, Any]]:
    """A row for each question, played greedily where the file has none yet."""
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []
    once = replace(rules, config=rules.config.replace(attempts=1))
    for first in range(len(rows), len(questions), PORTION):
        began = time.process_time()
        due = list(enumerate(questions))[first : first + PORTION]
        greedy = partial(play, engine=engine(), temperature=0.0)
        records = answer(once, due, greedy, (EVALUATION, seed))
        cost = (time.process_time() - began) / len(due)
        for (_, question), record in zip(due, records, strict=True):
            attempt = record.attempts[0]
            shown = " ".join(s.text for s in attempt.segments[1:] if s.by == "environment")
            rows.append(
                {
                    "group": question.group,
                    "question": question.text,
                    "answers": question.answers[:3],
                    "said": attempt.result,
                    "right": attempt.right,
                    "found": any(normalise(a) in normalise(shown) for a in question.answers),
                    "ending": attempt.ending,
                    "searches": len(attempt.searches),
                    "retries": sum(s.by == RETRY for s in attempt.segments),
                    "text": written(attempt),
                    "cpu_seconds": round(cost, 2),
                }
            )
        save(file, rows)
    return rows


def proposed(
    rules: Rules, engine: Callable[[], Engine], count: int, seed: int, file: Path
) -> list[dict[str, Any]]:
    """A row for each proposal, sampled where the file has none yet."""
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []
    while len(rows) < count:
        size = min(PORTION, count - len(rows))
        batch = GameBatch(rules, answers_of(rules.world), size, [seed, len(rows)])
        for game in play(batch, engine(), temperature=1.0).games:
            record = record_game(game, rules)
            proposal, question = record.trajectories[0], record.trajectories[0].result
            rows.append(
                {
                    "answer": record.answer,
                    "asked": question,
                    "sound": None if question and proposal.searches else False,
                    "spoiler": bool(question and mentions(question, game.truth.wordings)),
                    "ending": proposal.ending,
                    "searches": len(proposal.searches),
                    "text": written(proposal),
                }
            )
        save(file, rows)
    return rows


def written(trajectory: TrajectoryRecord) -> str:
    """All behind the prompt, by whomever."""
    return "\n".join(segment.text for segment in trajectory.segments[1:])


def answered_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row["right"])
    found = [row["right"] for row in rows if row["found"]]
    return {
        "questions": len(rows),
        "ended_in_an_answer": rounded([row["ending"] == Ending.ACTION for row in rows]),
        "searches": round(fmean(row["searches"] for row in rows), 2) if rows else None,
        "right": rounded([row["right"] for row in rows]),
        "right_where_found": rounded(found),
        "right_by_benchmark": {name: f"{sum(r)} of {len(r)}" for name, r in groups.items()},
        "cpu_seconds": round(sum(row["cpu_seconds"] for row in rows)),
    }


def proposed_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    read = [row for row in rows if row["sound"] is not None]
    return {
        "proposals": len(rows),
        "ended_in_a_question": rounded([row["ending"] == Ending.ACTION for row in rows]),
        "spoilers": rounded([row["spoiler"] for row in rows]),
        "read": len(read),
        "sound": rounded([row["sound"] for row in read]),
    }


def rounded(held: Sequence[bool]) -> dict[str, float] | None:
    """A share with its interval of 95%, if there is anything to share."""
    if not held:
        return None
    return {k: round(v, 3) for k, v in asdict(share(sum(held), len(held))).items()}


def save(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def keep(out: Path, row: dict[str, Any]) -> None:
    """Puts a row in its place of the table, and prints it."""
    rows = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
    same = ("model", "prompts", "settings")
    rows = [old for old in rows if any(old[name] != row[name] for name in same)]
    save(out, [*rows, row])
    print(json.dumps(row, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
