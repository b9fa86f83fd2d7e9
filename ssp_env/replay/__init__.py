"""Files of games: one format, replayed and rescored offline. See docs/replay.md."""

from ssp_env.replay.files import (
    SavedGame,
    SavedRules,
    read_games,
    save_game,
    save_games,
    write_games,
)
from ssp_env.replay.play import Replay, Rescored, replay, rescore

__all__ = [
    "Replay",
    "Rescored",
    "SavedGame",
    "SavedRules",
    "read_games",
    "replay",
    "rescore",
    "save_game",
    "save_games",
    "write_games",
]
