"""Players that do not learn: scripted ones, and a chat model."""

from __future__ import annotations

from ssp_env.game.rules import Rules
from ssp_env.players.base import ChatPlayer, Player, TextPlayer, play_by
from ssp_env.players.scripted import ClozePlayer, MiniPlayer
from ssp_env.worlds.mini import MiniWorld

__all__ = [
    "ChatPlayer",
    "ClozePlayer",
    "MiniPlayer",
    "Player",
    "TextPlayer",
    "play_by",
    "scripted_player",
]


def scripted_player(rules: Rules) -> TextPlayer:
    """The scripted player that suits the world of these rules."""
    if isinstance(rules.world, MiniWorld):
        return MiniPlayer(rules.tags)
    return ClozePlayer(rules.tags)
