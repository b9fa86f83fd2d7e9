"""Measures one peer, in the environment that has the peers: ``python peer_worker.py NAME SECONDS <
workload.json``.

Stands alone: imports nothing of this project. The workload holds ``search``, ``answer`` (turns as
text), ``question``, ``truth`` and ``documents`` (``[title, text]`` pairs). Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import process_time
from typing import Any

Play = Callable[[int], int]
"""Plays one game, given its number; returns how many steps that took."""

SEARCHES = 9
"""Searches before the answer."""

# X X O / O O X / X O X: a draw, so that all nine squares are played.
MOVES = (0, 2, 1, 3, 5, 4, 6, 7, 8)


def pettingzoo(wrapped: bool) -> Play:
    """Tic-tac-toe through ``last()``/``step()``; dead steps are played but not counted, as with
    ours."""
    from pettingzoo.classic import tictactoe_v3

    env = tictactoe_v3.env() if wrapped else tictactoe_v3.raw_env()

    def play(number: int) -> int:
        env.reset(seed=number)
        for move in MOVES:
            env.last()
            env.step(move)

        while env.agents:
            env.last()
            env.step(None)

        return len(MOVES)

    return play


def textarena(name: str) -> Play:
    """Tic-tac-toe as strings; a new environment per game, since the wrappers of 0.7.4 keep earlier
    games' history."""
    import textarena as ta

    def play(number: int) -> int:
        env = ta.make(name)
        env.reset(num_players=2, seed=number)
        for move in MOVES:
            env.get_observation()
            done, _ = env.step(f"[{move}]")

        assert done, "the scripted game did not end"
        return len(MOVES)

    return play


def gem(work: dict[str, Any]) -> Play:
    """A question under GEM's tool wrapper and search tool; the HTTP call alone is replaced."""
    from gem.core import Env
    from gem.tools.search_tool import SearchTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    found = _found(work)

    class Stub(SearchTool):
        def _search(self, query: str) -> str:
            return self._passages2string(found)

    class Asked(Env):
        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            return work["question"], {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", float(work["truth"] in action), True, False, {}

    env = ToolEnvWrapper(Asked(), [Stub(search_url="stub")])

    def play(number: int) -> int:
        env.reset()
        for _ in range(SEARCHES):
            observation = env.step(work["search"])[0]
        assert work["documents"][0][1] in observation, "nothing was found"
        assert env.step(work["answer"])[2], "the scripted game did not end"

        return SEARCHES + 1

    return play


def skyrl(work: dict[str, Any]) -> Play:
    """SkyRL's search environment; the HTTP call alone is replaced."""
    from skyrl_gym.envs.search.env import SearchEnv, SearchEnvConfig
    from skyrl_gym.tools import search

    found = _found(work)
    search.call_search_api = lambda **request: ({"result": [found]}, None)
    extras = {
        "reward_spec": {"ground_truth": {"target": [work["truth"]]}},
        "max_turns": SEARCHES + 1,
    }

    def play(number: int) -> int:
        env = SearchEnv(SearchEnvConfig(), extras)
        env.init([{"role": "user", "content": work["question"]}])
        for _ in range(SEARCHES):
            observation = env.step(work["search"])["observations"][0]["content"]
        assert work["documents"][0][1] in observation, "nothing was found"
        assert env.step(work["answer"])["done"], "the scripted game did not end"

        return SEARCHES + 1

    return play


def _found(work: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents as a Search-R1 server sends them."""
    return [
        {"document": {"contents": f"{title}\n{text}"}, "score": 1.0}
        for title, text in work["documents"]
    ]


PEERS: dict[str, tuple[str, Callable[[dict[str, Any]], Play]]] = {
    "pettingzoo_tictactoe_raw": ("pettingzoo", lambda work: pettingzoo(wrapped=False)),
    "pettingzoo_tictactoe": ("pettingzoo", lambda work: pettingzoo(wrapped=True)),
    "textarena_tictactoe_raw": ("textarena", lambda work: textarena("TicTacToe-v0-raw")),
    "textarena_tictactoe": ("textarena", lambda work: textarena("TicTacToe-v0")),
    "gem_tool_wrapper": ("gem-llm", gem),
    "skyrl_search": ("skyrl-gym", skyrl),
}
"""The distribution that each comes with, and how it is played."""


def main() -> int:
    """Plays whole games for that many CPU-seconds."""
    package, make = PEERS[sys.argv[1]]
    seconds = float(sys.argv[2])
    play = make(json.load(sys.stdin))
    play(0)
    steps, number, begin = 0, 0, process_time()

    while (spent := process_time() - begin) < seconds:
        number += 1
        steps += play(number)

    print(json.dumps({"rate": steps / spent, "version": version(package)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
