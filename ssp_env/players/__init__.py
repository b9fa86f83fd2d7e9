"""Players that do not learn: scripted ones, a random one that makes legal moves, a chat model."""

from __future__ import annotations

from ssp_env.game.rules import Rules
from ssp_env.players.base import ChatPlayer, Player, RandomLegalPlayer, TextPlayer
from ssp_env.players.scripted import ClozePlayer, MiniPlayer, WikiPlayer
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.wiki import WikiSentences

__all__ = [
    "ChatPlayer",
    "ClozePlayer",
    "MiniPlayer",
    "Player",
    "RandomLegalPlayer",
    "TextPlayer",
    "WikiPlayer",
    "scripted_player",
]


def scripted_player(rules: Rules) -> TextPlayer:
    """The scripted player that suits the world of these rules."""
    world = rules.world
    if isinstance(world, MiniWorld):
        return MiniPlayer(rules.tags)
    if isinstance(world, WikiSentences):
        return WikiPlayer(rules.tags, world)
    return ClozePlayer(rules.tags)
