"""Files of games: one format, replayed and rescored offline. See docs/replay.md."""

from ssp_env.replay.compare import Difference
from ssp_env.replay.header import SavedRules
from ssp_env.replay.play import Replay, replay
from ssp_env.replay.recorded import OwnCode
from ssp_env.replay.rescore import Rescored, rescore
from ssp_env.replay.saved import SavedGame, read_games, save_game, save_games, write_games

__all__ = [
    "Difference",
    "OwnCode",
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
