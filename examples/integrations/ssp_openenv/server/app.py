"""The game as an environment server: ``python -m ssp_openenv.server.app --port 8000``.

``SSP_SETUP`` holds the keywords of every interface as JSON, such as ``{"world": "mini"}``. A split
is a role, and the index of a task is the seed of its game.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment

import ssp_env
from ssp_env.envs.setup import set_up
from ssp_env.errors import require_version

try:
    from ..models import SspAction, SspObservation, SspState
except ImportError:  # a Space starts the server inside this folder
    from models import SspAction, SspObservation, SspState

require_version("openenv", "0.10.0")

ROLES = ["solver", "proposer"]
SEEDS = 1_000_000
"""Games of each split."""
RULES = set_up(json.loads(os.environ.get("SSP_SETUP", '{"world": "wiki-mini"}'))).rules
"""Shared by all sessions, which run in threads."""


class SspEnvironment(Environment[SspAction, SspObservation, SspState]):
    """One role of one session; a script plays the other one."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state, self._role = SspState(), ssp_env.TextRole("solver", rules=RULES)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "solver",
        index: int | None = None,
        **_: Any,
    ) -> SspObservation:
        """Begins a game: that of a seed, or of a task."""
        if index is not None:
            seed = self.get_task(split, index)["seed"]
        self._role = ssp_env.TextRole(split, rules=RULES)
        self._state = SspState(episode_id=episode_id or str(uuid4()), step_count=0, role=split)
        text, info = self._role.reset(seed)
        return SspObservation(text=text, done=False, reward=None, metadata=info)

    def step(self, action: SspAction, timeout_s: float | None = None, **_: Any) -> SspObservation:
        """Takes a turn."""
        text, reward, terminated, void, info = self._role.step(action.text)
        self._state.step_count += 1
        self._state.outcome = info["outcome"]
        done = terminated or void
        return SspObservation(text=text, done=done, reward=None if void else reward, metadata=info)

    @property
    def state(self) -> SspState:
        """The role, how many turns it has taken, and the outcome."""
        return self._state

    def list_splits(self) -> list[str]:
        """The roles."""
        return ROLES

    def num_tasks(self, split: str) -> int:
        """How many games a role has."""
        ssp_env.errors.one_of("split", split, ROLES)
        return SEEDS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """A game by its seed."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"index {index} is outside 0 .. {SEEDS - 1}")
        return {"id": f"{split}-{index}", "index": index, "seed": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """The first games, as a preview."""
        return [self.get_task(split, index) for index in range(min(self.num_tasks(split), 10))]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Games by a slice of indices."""
        places = range(*slice(start, stop).indices(self.num_tasks(split)))
        return [self.get_task(split, index) for index in places]


app = create_app(
    SspEnvironment,
    SspAction,
    SspObservation,
    env_name="ssp_openenv",
    max_concurrent_envs=int(os.environ.get("SSP_SESSIONS", "256")),
    state_cls=SspState,
)


def main() -> None:
    """Serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(app, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
