"""What a policy can do in wiki-sentences by itself: accuracy, sound proposals, and its own gate.

    python -m benchmarks.real_text MODEL --out FILE [--set game.prompts=compact ...]

A proposal is sound where the rules know its answer to be right; what they cannot tell counts as
unsound. Precision is the sound share of the valid proposals, recall the valid share of the sound
ones. Questions are about test articles, answered greedily; an answer is found where its words are
in a document that a search has shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import parser, write
from ssp_agents.rollout import play
from ssp_env.game.batch import GameBatch
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth
from ssp_env.wording.normal import normalise
from ssp_env.worlds.wiki import WikiSentences
from ssp_experiments.evaluation import engine_of
from ssp_experiments.options import Chosen
from ssp_experiments.stats import share


def main() -> None:
    """Plays, and writes the shares."""
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("--proposals", type=int, default=400)
    options.add_argument("--per-group", type=int, default=200)
    options.add_argument("--set", action="append", default=[], help="settings, beside wiki-small's")
    settings = options.parse_args()
    torch.set_num_threads(1)

    config = Chosen(preset="wiki-small", set=settings.set).config()
    world, tokenizer = WikiSentences(), HuggingFaceTokenizer.load(settings.model)
    rules = Rules.build(world, tokenizer, config.game.replace(closed_book=False))  # as published
    engine = engine_of(config, rules, settings.model)

    def drawn(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        return [world.answers[i] for i in rng.integers(len(world.answers), size=count)]

    proposed = GameBatch(rules, drawn, settings.proposals, [settings.seed])
    play(proposed, engine, temperature=config.learning.temperature)
    gate = Counter(sound=0, accepted=0, both=0)
    for game in proposed.games:
        known = world.analyse(game.question) if game.question else None
        sound = known is not None and game.truth.answer in known.answers
        accepted = game.outcome is Outcome.VALID
        gate.update(sound=sound, accepted=accepted, both=sound and accepted)

    questions = world.questions(settings.seed, settings.per_group)
    once = Rules.build(world, tokenizer, config.game.replace(attempts=1))
    solved = play(GameBatch.of_questions(once, questions, [settings.seed]), engine, temperature=0.0)
    right, read = defaultdict(list), list[bool]()
    for game, question in zip(solved.games, questions, strict=True):
        attempt = game.attempts[0]
        right[question.group].append(attempt.right)
        shown = " ".join(d.text for s in attempt.trajectory.searches for d in s.documents)
        if any(normalise(answer) in normalise(shown) for answer in question.answers):
            read.append(bool(attempt.right))

    result = {
        "seed": settings.seed,
        "settings": settings.set,
        "accuracy": {group: asdict(share(sum(all_), len(all_))) for group, all_ in right.items()},
        "right_where_found": asdict(share(sum(read), len(read))),
        "proposals": settings.proposals,
        "temperature": config.learning.temperature,
        "precision": round(gate["both"] / max(1, gate["accepted"]), 4),
        "recall": round(gate["both"] / max(1, gate["sound"]), 4),
        **gate,
    }
    write(settings.out, result)


if __name__ == "__main__":
    main()
