"""Players that do not learn: scripted ones, a random one that makes legal moves, a chat model."""

from __future__ import annotations

from ssp_env.errors import ConfigError
from ssp_env.game.rules import Rules
from ssp_env.players.base import ChatPlayer, Player, RandomLegalPlayer, TextPlayer
from ssp_env.players.scripted import ClozePlayer, MiniPlayer
from ssp_env.worlds.mini import MiniWorld

__all__ = [
    "ChatPlayer",
    "ClozePlayer",
    "MiniPlayer",
    "Player",
    "RandomLegalPlayer",
    "TextPlayer",
    "player_for",
    "scripted_player",
]


def player_for(rules: Rules, given: Player | None) -> Player:
    """The given player, or else the scripted one."""
    if given is None:
        return scripted_player(rules)
    if isinstance(given, type) or not callable(getattr(given, "play", None)):
        fix = "give an object with a method play(), not its class or its name"
        raise ConfigError("other", given, fix)
    return given


def scripted_player(rules: Rules) -> TextPlayer:
    """The scripted player that suits the world of these rules."""
    tags = rules.tags
    return MiniPlayer(tags) if isinstance(rules.world, MiniWorld) else ClozePlayer(tags)
