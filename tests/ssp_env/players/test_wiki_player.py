"""The player that plays on Wikipedia's sentences by the rules that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from test_players import TAGS, play
from tests.ssp_env.worlds.few import few_passages

from ssp_env.game.outcome import Outcome
from ssp_env.players import WikiPlayer
from ssp_env.worlds.wiki import WikiSentences

few_passages = few_passages


def test_the_wiki_player_asks_for_what_its_rules_read(few_passages: Path) -> None:
    """Nearly all of its games are valid and solved, and some have two hops."""
    world = WikiSentences()
    games = play(WikiPlayer(TAGS, world), 20, world=world, game={"verifier": "world"})
    asked = [world.analyse(game.question or "") for game in games if game.outcome is Outcome.VALID]
    assert len(asked) >= 10
    known = [analysis for analysis in asked if analysis is not None]
    assert max(analysis.hops for analysis in known) == 2
    assert np.mean([game.solve_rate or 0.0 for game in games]) >= 0.8
