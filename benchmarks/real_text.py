"""What a policy can do in wiki-sentences by itself: accuracy, sound proposals, and its own gate.

    python -m benchmarks.real_text MODEL --out FILE [--set game.prompts=compact ...]

A proposal is sound where the rules know its answer to be right; what they cannot tell counts as
unsound. Precision is the sound share of the valid proposals, recall the valid share of the sound
ones. Questions are about test articles, answered greedily; an answer is found where its words are
in a document that a search has shown.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.harness import parser, write
from ssp_agents.rollout import play
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.wording.answers import normalise
from ssp_env.worlds.wiki import WikiSentences
from ssp_experiments.evaluation import engine_of
from ssp_experiments.options import Chosen
from ssp_experiments.stats import share


def main() -> int:
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
    rules = Rules.build(world, tokenizer, config.game)
    engine = engine_of(config, rules, settings.model)

    answers, gate = world.answers, dict[str, int]()
    proposed = Round(
        rules,
        lambda rng, n: [answers[i] for i in rng.integers(len(answers), size=n)],
        settings.proposals,
        [settings.seed],
    )
    play(proposed, engine, temperature=config.learning.temperature)
    for game in proposed.games:
        known = world.analyse(game.question) if game.question else None
        sound = known is not None and game.truth.answer in known.answers
        accepted = game.outcome is Outcome.VALID
        for name, true in (("sound", sound), ("accepted", accepted), ("both", sound and accepted)):
            gate[name] = gate.get(name, 0) + true

    questions = world.questions(settings.seed, settings.per_group)
    once = Rules.build(world, tokenizer, config.game.replace(attempts=1))
    solved = play(Round.of_questions(once, questions, [settings.seed]), engine, temperature=0.0)
    right, read = defaultdict(list), list[bool]()
    for game, question in zip(solved.games, questions, strict=True):
        attempt = game.attempts[0]
        right[question.group].append(attempt.right)
        shown = " ".join(d.text for s in attempt.trajectory.searches for d in s.documents)
        if any(normalise(answer) in normalise(shown) for answer in question.answers):
            read.append(bool(attempt.right))

    accuracy = {group: asdict(share(sum(each), len(each))) for group, each in right.items()}
    write(
        settings.out,
        {
            "seed": settings.seed,
            "settings": settings.set,
            "accuracy": accuracy,
            "right_where_found": asdict(share(sum(read), len(read))),
            "proposals": settings.proposals,
            "temperature": config.learning.temperature,
            "sound": round(gate["sound"] / settings.proposals, 4),
            "precision": round(gate["both"] / max(1, gate["accepted"]), 4),
            "recall": round(gate["both"] / max(1, gate["sound"]), 4),
            **gate,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
