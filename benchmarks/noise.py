"""What noise documents do: ambiguous questions that pass verification, by their number and kind.

One fixed set of proposals, about half of them about one-to-many facts ("the citizen of V", which
has many right answers), is verified with 0, 1, 4, 7 and 12 noise documents of each kind by the
world's reader, which demands that its documents hold exactly one answer. Nothing is learnt and no
model plays. Writes ``noise.json`` and ``noise.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from benchmarks.harness import headline, origin, parser, write
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
    write(settings.out / "noise.json", result)
    (settings.out / "noise.md").write_text(_page({**origin(), **result}))
    return 0


def measure(seed: int, rounds: int, counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """Shares by kind and number of noise documents.

    Of accepted questions, those that are ``ambiguous``; of ambiguous and of ``unique`` ones, those
    that were ``kept``.
    """
    world = MiniWorld(seed)
    retriever = BM25Retriever(world.corpus)
    shares: dict[str, dict[str, dict[str, float]]] = {}
    proposals: list[str] = []
    for kind in get_args(NoiseKind):
        shares[kind] = {}
        for count in counts:
            played = [
                play_round(world, retriever, kind, count, [seed, number])
                for number in range(rounds)
            ]
            games = [g for one in played for g in one.games if g.verification is not None]

            # What verification is asked about is the same in every cell.
            asked = [game.question or "" for game in games]
            proposals = proposals or asked
            assert asked == proposals, "the proposals are fixed"
            shares[kind][str(count)] = _shares(world, games)

    ambiguous = [_ambiguous(world, question) for question in proposals]
    return {
        "seed": seed,
        "proposals": len(proposals),
        "ambiguous_proposals": sum(ambiguous),
        "batch": BATCH,
        "shares": shares,
    }


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


def _page(result: dict[str, Any]) -> str:
    counts = list(result["shares"][get_args(NoiseKind)[0]])
    lines = [
        f"# Noise documents and ambiguous questions\n\n{headline(result)}",
        f"{result['proposals']} proposals of the scripted player in the mini-wiki (seed "
        f"{result['seed']}), {result['ambiguous_proposals']} of them ambiguous, in batches of "
        f"{result['batch']};\nthe verifier is the world's reader. The table shows the share of "
        "ambiguous questions among those accepted,\nand in brackets the share of ambiguous "
        "proposals that were accepted. Questions with one answer always pass.\n",
        "| kind of noise | " + " | ".join(counts) + " |",
        "|---" * (len(counts) + 1) + "|",
    ]
    for kind, cells in result["shares"].items():
        row = [f"{cells[c]['ambiguous']:.2f} ({cells[c]['kept']:.2f})" for c in counts]
        lines.append(f"| `{kind}` | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
