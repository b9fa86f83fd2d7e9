"""Players that are no policies: what they propose is valid, and they solve it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssp_env.doors.episode import Episode
from ssp_env.doors.setup import set_up
from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.round import advance_all
from ssp_env.players import ClozePlayer, MiniPlayer, Player
from ssp_env.players.scripted import GAP
from ssp_env.worlds import open_world
from ssp_env.worlds.files import WikiMini

TAGS = Tags()


def play(player: Player, count: int, seed: int = 0, **setup: Any) -> list[Game]:
    rules = set_up(setup).rules  # type: ignore[arg-type]
    rounds = []
    for i in range(count):
        episode = Episode(rules)
        episode.reset(seed + i)
        rounds.append(episode.round)
    while turns := [trajectory for played in rounds for trajectory in played.pending()]:
        player.play(turns)
        advance_all(rounds)
    return [played.games[0] for played in rounds]


def test_the_mini_player_asks_for_as_many_hops_as_it_is_told() -> None:
    world, hops = open_world("mini"), 3
    games = play(MiniPlayer(TAGS, hops), 30, world=world)
    found = [analysis.hops for game in games if (analysis := world.analyse(game.question or ""))]
    assert max(found) == hops
    assert found.count(hops) > 15
    assert {game.solve_rate for game in games} == {1.0}


def test_the_cloze_player_on_real_text(wiki: WikiMini) -> None:
    """Most of its games are valid, and all of those are solved."""
    games = play(ClozePlayer(TAGS), 10, world=wiki)
    valid = [game for game in games if game.outcome is Outcome.VALID]
    assert len(valid) >= 6
    assert np.mean([game.solve_rate for game in valid]) >= 0.9
    assert {t.ending for game in games for t in game.trajectories()} == {Ending.ACTION}
    for game in valid:
        assert GAP in str(game.question)
        assert game.truth.answer not in str(game.question)
