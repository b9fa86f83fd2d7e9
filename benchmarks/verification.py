"""What each form of verification lets pass, with the shipped policy as the verifier.

One fixed set of proposals in the mini-wiki, of one and two hops and about half of them ambiguous,
is verified with 0, 4 and 8 noise documents by the policy itself: given all documents after a
search that it did not write (``solver``), or in an attempt of its own whose searches find these
documents alone (``attempt``). Nothing is learnt. Writes JSON and a page.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from benchmarks.harness import parser, publish
from benchmarks.noise import BATCH, HOPS, answers, grid
from ssp_agents.engines.base import Engine, StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model, tiny_directory
from ssp_agents.rollout import play
from ssp_env.game.config import MINI_GAME
from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.players import MiniPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.testing.hacks import tally
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

FORMS = ("solver", "attempt")
COUNTS = (0, 4, 8)


def main() -> int:
    """Verifies the proposals and writes the results."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=8, help=f"of {BATCH} proposals each")
    settings = options.parse_args()

    result = measure(settings.seed, settings.rounds)
    sound = result["shares"][FORMS[0]]["0"]["sound"]
    about = (
        f"{result['proposals']} proposals of the scripted player in the mini-wiki, in batches of "
        f"{BATCH}; {sound:.2f} of them are sound: the ground truth is their only right answer, and "
        "their own evidence shows it. The shipped policy verifies. By form and number of noise "
        "documents: the share that is accepted; of what is accepted, the share that is sound "
        "(precision); of what is sound, the share that is accepted (recall)."
    )
    cell = "{accepted:.2f} ({precision:.2f}, {recall:.2f})".format_map
    publish(settings.out, "Forms of verification", about, result, cell)
    return 0


def measure(seed: int, rounds: int) -> dict[str, Any]:
    """Shares by form and number of noise documents."""
    world = MiniWorld(seed)
    retriever = BM25Retriever(world.corpus)
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    engine = TransformersEngine(
        load_model(tiny_directory()), tokenizer, StopRule.of(MINI_GAME, tokenizer)
    )

    def verified(form: str, count: int) -> list[Game]:
        config = MINI_GAME.replace(
            attempts=1, verifier="policy", verification_prompt=form, noise_documents=count
        )
        rules = Rules.build(world, tokenizer, config, retriever=retriever)
        played = [play_round(rules, world, engine, [seed, n]) for n in range(rounds)]
        games = [game for one in played for game in one.games]
        return [g for g in games if g.question is not None and g.verification is not None]

    shares, proposals = grid(FORMS, COUNTS, verified, lambda games: _shares(world, games))
    return {"seed": seed, "proposals": len(proposals), "batch": BATCH, "shares": shares}


def play_round(rules: Rules, world: MiniWorld, engine: Engine, seed: list[int]) -> Round:
    """A round of scripted proposals, verified and solved by the engine's policy."""
    players = [MiniPlayer(rules.tags, hops, citizens=True) for hops in range(1, HOPS + 1)]
    played = Round(rules, partial(answers, world), BATCH, seed)
    # The policy plays all that follows the proposals.
    while proposing := [t for t in played.pending() if t.role is Role.PROPOSER]:
        for trajectory in proposing:
            slot = next(g.slot for g in played.games if g.proposer is trajectory)
            players[slot % HOPS].play([trajectory])
        played.advance()

    return play(played, engine, temperature=1.0)


def _shares(world: MiniWorld, games: list[Game]) -> dict[str, float]:
    gate = tally(games, world)
    accepted = gate.accepted_sound + gate.accepted_unsound
    searches = [len(a.trajectory.searches) for game in games for a in game.readings]
    return {
        "accepted": round(accepted / len(games), 4),
        "sound": round((gate.accepted_sound + gate.rejected_sound) / len(games), 4),
        "precision": round(gate.precision or 0.0, 4),
        "recall": round(gate.recall or 0.0, 4),
        "searches": round(sum(searches) / len(games), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
