"""Games that a script has played through our own interface, and a server that plays the same ones:
what a partner records of them has to equal them."""

from __future__ import annotations

import zlib
from typing import Any

from scripted_model import ChatServer, Reply

import ssp_env
from ssp_env import Game, Rules, TextPlayer, Trajectory
from ssp_env.envs.setup import set_up
from ssp_env.types import Role

SETUP: dict[str, Any] = {"world": "mini", "tokenizer": "bpe"}
"""A game of five attempts that takes no time."""
SURPLUS = " and so on"
"""What follows a complete action, and is dropped."""


class Careless(TextPlayer):
    """Plays well, but at some questions gives no right answer, and some proposals are blank."""

    def __init__(self, rules: Rules) -> None:
        self._player = ssp_env.scripted_player(rules)

    def write(self, trajectory: Trajectory) -> str:
        luck = zlib.crc32(trajectory.about.encode()) % 4
        if trajectory.role is Role.PROPOSER and luck == 0 and trajectory.searches:
            return "I have no question."
        text = self._player.write(trajectory)
        wrong = trajectory.role is Role.SOLVER and luck == 1 and "<answer>" in text
        return f"<think>well</think>{'<answer>nobody</answer>' if wrong else text}{SURPLUS}"


class Recorded:
    """Games of consecutive seeds, and what was written after which messages."""

    def __init__(self, count: int, seed: int = 0, **setup: Any) -> None:
        self.rules = set_up({**SETUP, **setup}).rules  # type: ignore[typeddict-item]
        self.turns: dict[str, str] = {}
        self.writing: dict[tuple[int, ...], str] = {}
        player = Careless(self.rules)
        env = ssp_env.TurnVectorEnv(count, rules=self.rules)
        open_turns = env.reset(seed=seed)
        while open_turns:
            written = [player.write(turn.trajectory) for turn in open_turns]
            for turn, text in zip(open_turns, written, strict=True):
                runs = [(0, turn.trajectory.prompt_length, False), *turn.trajectory.runs()]
                said = [self.rules.tokenizer.decode(turn.ids[a:b]) for a, b, _ in runs]
                self.turns["\n".join(said)] = self.writing[tuple(turn.ids)] = text
            open_turns = env.step([self.rules.tokenizer.encode(text) for text in written])
        self.games: list[Game] = env.games

    def next_turn(self, contents: str) -> Reply:
        """The turn that was written after these messages, whatever was dropped from them."""
        known = self.turns.get(contents.replace(SURPLUS, ""))
        return known or (404, f"nothing was recorded after {contents!r}".encode())

    def server(self) -> ChatServer:
        """An OpenAI-compatible server that writes the same turns."""
        return ChatServer(self.next_turn)


def by_trajectory(games: list[Game]) -> list[tuple[str, int, float | None]]:
    """Role, attempt and reward of each trajectory, in order."""
    from ssp_env.envs.chat import reward_of

    return [
        (t.role.value, game.number_of(t), reward_of(game, t))
        for game in games
        for t in game.trajectories()
    ]
