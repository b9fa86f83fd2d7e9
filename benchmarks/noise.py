"""What noise documents do: ambiguous questions that pass verification, by their number and kind.

One fixed set of proposals, about half of them about one-to-many facts ("the citizen of V", which
has many right answers), is verified with 0, 1, 4, 7 and 12 noise documents of each kind by the
world's reader, which demands that its documents hold exactly one answer. Nothing is learnt and no
model plays. Writes JSON and a page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from benchmarks.harness import parser, publish
from ssp_env.game.config import MINI_GAME, NoiseKind
from ssp_env.game.game import Game
from ssp_env.game.outcome import UNVERIFIED
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Waiting
from ssp_env.players import MiniPlayer
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds.mini import MiniWorld

COUNTS = (0, 1, 4, 7, 12)
BATCH = 32
"""Games per round: noise of the kind ``batch`` comes from among them."""
HOPS = 2
"""Questions have 1 to this many hops, half of them each."""


def main() -> int:
    """Verifies the proposals and writes the results."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=32, help=f"of {BATCH} proposals each")
    settings = options.parse_args()

    result = measure(settings.seed, settings.rounds)
    about = (
        f"{result['proposals']} proposals of the scripted player in the mini-wiki, "
        f"{result['ambiguous_proposals']} of them ambiguous, in batches of {BATCH}; the verifier "
        "is the world's reader. By kind and number of noise documents: the share of ambiguous "
        "questions among those accepted, and in brackets the share of ambiguous proposals that "
        "were accepted. Questions with one answer always pass."
    )
    title = "Noise documents and ambiguous questions"
    publish(settings.out, title, about, result, "{ambiguous:.2f} ({kept:.2f})".format_map)
    return 0


def measure(seed: int, rounds: int, counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """Shares by kind and number of noise documents.

    Of accepted questions, those that are ``ambiguous``; of ambiguous and of ``unique`` ones, those
    that were ``kept``.
    """
    world = MiniWorld(seed)
    retriever = BM25Retriever(world.corpus)

    def verified(kind: str, count: int) -> list[Game]:
        played = [play_round(world, retriever, kind, count, [seed, n]) for n in range(rounds)]
        return [g for one in played for g in one.games if g.verification is not None]

    kinds = get_args(NoiseKind)
    shares, proposals = grid(kinds, counts, verified, lambda games: _shares(world, games))
    ambiguous = [_ambiguous(world, question) for question in proposals]
    return {
        "seed": seed,
        "proposals": len(proposals),
        "ambiguous_proposals": sum(ambiguous),
        "batch": BATCH,
        "shares": shares,
    }


def grid(
    kinds: Sequence[str],
    counts: Sequence[int],
    verified: Callable[[str, int], list[Game]],
    shares: Callable[[list[Game]], dict[str, float]],
) -> tuple[dict[str, dict[str, dict[str, float]]], list[str]]:
    """Shares by kind and number of noise documents; and the proposals, the same in every cell."""
    found: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in kinds}
    asked: list[list[str]] = []
    for kind in kinds:
        for count in counts:
            games = verified(kind, count)
            asked.append([game.question or "" for game in games])
            assert asked[-1] == asked[0], "the proposals are fixed"
            found[kind][str(count)] = shares(games)
    return found, asked[0]


def play_round(
    world: MiniWorld, retriever: Retriever, kind: str, count: int, seed: Sequence[int]
) -> Round:
    """A round of the scripted player that asks for citizens wherever it can, played to its end."""
    config = MINI_GAME.replace(attempts=1, noise_kind=kind, noise_documents=count)
    tokenizer = WordTokenizer(world.vocabulary, Tags().all())
    rules = Rules.build(world, tokenizer, config, retriever=retriever)
    players = [MiniPlayer(Tags(), hops, citizens=True) for hops in range(1, HOPS + 1)]
    played = Round(rules, partial(answers, world), BATCH, seed)

    while played.pending():
        for game in played.games:
            live = [t for t in game.trajectories() if t.waiting is Waiting.POLICY]
            players[game.slot % HOPS].play(live)
        played.advance()
    return played


def answers(world: MiniWorld, rng: np.random.Generator, count: int) -> list[GroundTruth]:
    """Different answers of a world, drawn."""
    return [world.answers[i] for i in rng.choice(len(world.answers), count, replace=False)]


def _shares(world: MiniWorld, games: Sequence[Game]) -> dict[str, float]:
    kept: dict[bool, list[bool]] = {True: [], False: []}
    for game in games:
        kept[_ambiguous(world, game.question or "")].append(game.reason != UNVERIFIED)

    accepted = sum(kept[True]) + sum(kept[False])
    return {
        "ambiguous": round(sum(kept[True]) / accepted, 4),
        "kept": round(sum(kept[True]) / len(kept[True]), 4),
        "unique": round(sum(kept[False]) / len(kept[False]), 4),
    }


def _ambiguous(world: MiniWorld, question: str) -> bool:
    analysis = world.analyse(question)
    return analysis is not None and len(analysis.answers) > 1


if __name__ == "__main__":
    sys.exit(main())
