"""What noise documents do: ambiguous questions that pass verification, by their number and kind.

One fixed set of proposals, about half of them about one-to-many facts ("the citizen of V", which
has many right answers), is verified with 0, 1, 4, 7 and 12 noise documents of each kind by the
world's reader, which demands that its documents hold exactly one answer. Nothing is learnt and no
model plays. Writes JSON and a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd

from benchmarks.harness import headline, origin, parser, write
from ssp_env.game.config import MINI_GAME, NoiseKind
from ssp_env.game.game import Game
from ssp_env.game.outcome import UNVERIFIED
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Waiting
from ssp_env.players import MiniPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds.mini import MiniWorld

COUNTS = (0, 1, 4, 7, 12)
BATCH = 32
"""Games per round: noise of the kind ``batch`` comes from among them."""
HOPS = 2
"""Questions have 1 to this many hops, half of them each."""


def main() -> None:
    """Verifies the proposals and writes the results."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=32, help=f"of {BATCH} proposals each")
    settings = options.parse_args()
    world = MiniWorld(settings.seed)
    retriever = BM25Retriever(world.corpus)
    tokenizer = WordTokenizer(world.vocabulary, Tags().all())
    seeds = [[settings.seed, number] for number in range(settings.rounds)]

    shares: dict[str, dict[str, dict[str, float]]] = {}
    proposals: list[str] = []
    for kind in get_args(NoiseKind):
        shares[kind] = {}
        for count in COUNTS:
            config = MINI_GAME.replace(attempts=1, noise_kind=kind, noise_documents=count)
            rules = Rules.build(world, tokenizer, config, retriever=retriever)
            played = [game for seed in seeds for game in play_round(rules, world, seed).games]
            games = [game for game in played if game.verification is not None]
            asked = [game.question or "" for game in games]
            proposals = proposals or asked
            assert asked == proposals, "the proposals are fixed"
            shares[kind][str(count)] = shares_of(world, games)

    result = {
        "seed": settings.seed,
        "proposals": len(proposals),
        "ambiguous_proposals": sum(is_ambiguous(world, question) for question in proposals),
        "batch": BATCH,
        "shares": shares,
    }
    write(settings.out / "noise.json", result)
    about = (
        f"{result['proposals']} proposals of the scripted player in the mini-wiki, "
        f"{result['ambiguous_proposals']} of them ambiguous, in batches of {BATCH}; the verifier "
        "is the world's reader. By kind and number of noise documents: the share of ambiguous "
        "questions among those accepted, and in brackets the share of ambiguous proposals that "
        "were accepted. Questions with one answer always pass."
    )
    cells = pd.DataFrame(shares).map("{0[ambiguous]:.2f} ({0[kept]:.2f})".format).T
    page = f"# Noise documents and ambiguous questions\n\n{headline(origin())}\n\n{about}\n\n"
    (settings.out / "noise.md").write_text(f"{page}{cells.to_markdown()}\n", encoding="utf-8")


def play_round(rules: Rules, world: MiniWorld, seed: Sequence[int]) -> Round:
    """A round of the scripted player that asks for citizens wherever it can, played to its end."""

    def answers(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        return [world.answers[i] for i in rng.choice(len(world.answers), count, replace=False)]

    players = [MiniPlayer(Tags(), hops, citizens=True) for hops in range(1, HOPS + 1)]
    played = Round(rules, answers, BATCH, seed)
    while played.pending():
        for game in played.games:
            live = [t for t in game.trajectories() if t.waiting is Waiting.POLICY]
            players[game.slot % HOPS].play(live)
        played.advance()
    return played


def shares_of(world: MiniWorld, games: Sequence[Game]) -> dict[str, float]:
    """Of accepted questions, those that are ``ambiguous``; of ambiguous and of ``unique`` ones,
    those that were ``kept``."""
    kept: dict[bool, list[bool]] = {True: [], False: []}
    for game in games:
        kept[is_ambiguous(world, game.question or "")].append(game.reason != UNVERIFIED)

    accepted = sum(kept[True]) + sum(kept[False])
    return {
        "ambiguous": round(sum(kept[True]) / accepted, 4),
        "kept": round(sum(kept[True]) / len(kept[True]), 4),
        "unique": round(sum(kept[False]) / len(kept[False]), 4),
    }


def is_ambiguous(world: MiniWorld, question: str) -> bool:
    """True if a question has several right answers."""
    analysis = world.analyse(question)
    return analysis is not None and len(analysis.answers) > 1


if __name__ == "__main__":
    main()
