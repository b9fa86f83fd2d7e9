"""A saved game as an AEC env, offline: the same observations, masks, rewards and infos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssp_env.doors.aec import SearchSelfPlayEnv
from ssp_env.errors import ConfigError
from ssp_env.game.config import ViewConfig
from ssp_env.replay.recorded import OwnCode, Recorded, check_replayable, recorded_rules
from ssp_env.replay.saved import SavedGame
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import World


class ReplayEnv(SearchSelfPlayEnv):
    """Each reset begins the saved game. Make one with :func:`replay_env`."""

    def __init__(
        self, saved: SavedGame, recorded: Recorded, render_mode: str | None, **setup: Any
    ) -> None:
        super().__init__(render_mode, **setup)
        self._saved, self._recorded = saved, recorded

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins the saved game, whatever seed and options say."""
        super().reset(seed, {"start": self._saved.record.start})
        self._recorded.watch(self._round)


def replay_env(
    saved: SavedGame,
    tokenizer: Tokenizer | str | Path | None = None,
    own: OwnCode | None = None,
    *,
    view: ViewConfig | None = None,
    world: World | None = None,
    render_mode: str | None = None,
) -> ReplayEnv:
    """An AEC env over a saved game, without search or judge.

    You may write other tokens than the saved ones. The first search or verdict that was not
    recorded in the same words is then an outage, which makes the game void.

    Args:
        saved: the game.
        tokenizer: as for :func:`~ssp_env.replay.play.replay`.
        own: your own functions.
        view: what the agents saw; all of their trajectories when not given.
        world: needed for masks of legal moves in a world with a grammar.
        render_mode: as for :class:`~ssp_env.doors.aec.SearchSelfPlayEnv`.

    Raises:
        ConfigError: as ``replay`` does, or legal moves without the world that they follow from.
        UsageError: as ``replay`` does.
    """
    check_replayable(saved)
    view = view or ViewConfig()
    if view.legal_moves and saved.rules.parts.grammar and world is None:
        fix = (
            f"legal moves follow the grammar of the world {saved.rules.parts.world!r}: pass "
            f"world=... as well"
        )
        raise ConfigError("view.legal_moves", True, fix)

    recorded = Recorded(saved, strict=True)
    rules = recorded_rules(
        saved, recorded, saved.rules.tokenizer.open(tokenizer), own or OwnCode(), world
    )

    return ReplayEnv(saved, recorded, render_mode, rules=rules, view=view)
