"""A role of search self-play as a text environment of SkyRL: ``ssp-solver``, ``ssp-proposer``.

Call ``register_all()`` in the process of SkyRL's Ray entry point, with the keywords of every
interface. A row of the data set names its game by ``extra_info = {"seed": 3}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

import ssp_env
from ssp_env.envs.setup import Setup, set_up
from ssp_env.errors import ConfigError, UsageError, require_version

require_version("skyrl-gym", "0.4.0")


class SspTextEnv(BaseTextEnv):  # type: ignore[misc]
    """One role; a script plays the other one."""

    def __init__(
        self,
        role: str,
        rules: ssp_env.Rules,
        env_config: object = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        row = dict(extras or {})
        self._seed = row.get("extra_info", row).get("seed")
        self._role = ssp_env.TextRole(role, rules=rules)
        # A game ends by itself, after all searches, all turns that may be tried again, and a last.
        most = rules.config.max_searches + rules.config.retries + 1
        self.max_turns = row.get("max_turns", most)
        if self.max_turns < most:
            fix = f"give at least {most}: a game has as many turns (game.max_searches="
            fix += f"{rules.config.max_searches}), and one that is cut off has no reward"
            raise ConfigError("generator.max_turns", self.max_turns, fix)

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """The game's prompt; that of the row is not needed."""
        text, info = self._role.reset(self._seed)
        return [{"role": "user", "content": text}], info

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Takes a turn. A void game raises ``ServiceError``: SkyRL knows no reward that does not
        count, so an outage stops its step."""
        if not isinstance(action, str):
            raise UsageError(f"a turn is a string, not {action!r:.200}")
        self.turns += 1
        text, reward, terminated, void, info = self._role.step(action)
        if void:
            raise ssp_env.ServiceError(info["reason"], "the game is void: leave it out")
        over = terminated or self.turns >= self.max_turns
        said = [] if over else [{"role": "user", "content": text}]
        return BaseTextEnvStepOutput(observations=said, reward=reward, done=over, metadata=info)

    def get_metrics(self) -> dict[str, Any]:
        """Searches, and whether the game is valid."""
        game, searches = self._role.game, len(self._role._driver.trajectory.searches)
        return {"searches": searches, "valid": float(game.outcome == "valid")}


def register_all(**setup: Unpack[Setup]) -> None:
    """Registers both roles with ``skyrl_gym``."""
    rules = set_up(setup).rules
    for role in ("solver", "proposer"):
        skyrl_gym.register(id=f"ssp-{role}", entry_point=partial(SspTextEnv, role, rules))
