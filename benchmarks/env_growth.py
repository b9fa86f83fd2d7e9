"""What a token costs early and late in a long transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle
from statistics import median
from time import process_time
from typing import Any

from pettingzoo import AECEnv

from benchmarks.workload import make_env, make_rules, play_tokens, proposed, reset, search_turn
from ssp_env.game.config import GameConfig
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import ByteTokenizer

ENDLESS = {
    "plain": "the crossing was finished in spring and it carries a road over the river to the "
    "old town ",
    "brackets": "a < b << c <<< <searching> </ <s <sea <question <information </answe > <<search "
    "<<<< ",
    "tags": "<think> who built it </think> <search> the engineer <question> of it <search> the "
    "crossing </question ",
}
"""Text without an end of turn, repeated; the third is full of tags, none of which completes an
action."""

KINDS = (*ENDLESS, "turns")
"""``turns``: short searches, each with its observation; tokens of observations count as
transcript."""

PIECE = 64
"""Tokens of endless text between two looks at the transcript's length."""


def growth(longest: int, repetitions: int) -> dict[str, Any]:
    """Cost per token in each stretch of the transcript, relative to the first, by door and text.

    Args:
        longest: tokens of the transcript after the prompt, a power of two times 1,024.
        repetitions: walks of which the median is taken.
    """
    edges = _edges(longest)
    config = GameConfig(
        max_response_tokens=longest + 1024,
        max_searches=longest,
        max_document_tokens=16,
        asked_searches=(1, 1),
    )
    env, rules = make_env(config), make_rules(config)
    walks = {
        "aec": lambda kind: _walk_aec(env, kind, edges),
        "feed": lambda kind: _walk_feed(rules, kind, edges),
    }
    found: dict[str, Any] = {"edges": edges, "repetitions": repetitions}

    for door, walk in walks.items():
        found[door] = {}
        for kind in KINDS:
            walk(kind)  # the passages' ids are remembered from here on
            costs = [walk(kind) for _ in range(repetitions)]
            middle = [median(stretch) for stretch in zip(*costs, strict=True)]
            ratios = [cost / middle[0] for cost in middle]
            found[door][kind] = {
                "microseconds_per_token": [round(1e6 * cost, 3) for cost in middle],
                "ratio_to_first": [round(ratio, 3) for ratio in ratios],
                "largest_ratio": round(max(ratios), 3),
                "smallest_ratio": round(min(ratios), 3),
            }

    return found


def _edges(longest: int) -> list[int]:
    edges = [1024]
    while edges[-1] < longest:
        edges.append(2 * edges[-1])
    return edges


def _pieces(kind: str) -> Iterator[list[int]]:
    encode = ByteTokenizer().encode
    if kind == "turns":
        return (encode(search_turn(number)) for number in count())
    letters = cycle(encode(ENDLESS[kind]))
    return ([next(letters) for _ in range(PIECE)] for _ in count())


def _walk_aec(env: AECEnv, kind: str, edges: list[int]) -> list[float]:
    reset(env, 0)
    proposer = env.unwrapped.game.proposer
    return _walk(
        lambda piece: play_tokens(env, piece),
        lambda: len(proposer.ids) - proposer.prompt_length,
        kind,
        edges,
    )


def _walk_feed(rules: Rules, kind: str, edges: list[int]) -> list[float]:
    round_ = proposed(rules, 1, 0)
    trajectory = round_.pending()[0]

    def play(piece: list[int]) -> None:
        for token in piece:
            if trajectory.feed((token,)):
                round_.advance()

    return _walk(play, lambda: len(trajectory.ids) - trajectory.prompt_length, kind, edges)


def _walk(
    play: Callable[[list[int]], None], length: Callable[[], int], kind: str, edges: list[int]
) -> list[float]:
    """CPU-seconds per token in each stretch.

    A stretch ends with a whole piece, so that none pays for another's turn.
    """
    pieces, costs = _pieces(kind), []
    for edge in edges:
        # Made beforehand: the script's own cost is not the environment's.
        ready = [next(pieces) for _ in range(edge // PIECE)]
        before, begin = length(), process_time()
        for piece in ready:
            if length() >= edge:
                break
            play(piece)

        costs.append((process_time() - begin) / (length() - before))

    return costs
