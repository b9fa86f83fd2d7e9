"""What the speed benchmark plays: fixed documents, a stub retriever, scripted turns, and a loop for
each door."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from zlib import crc32

import numpy as np
from pettingzoo import AECEnv

from ssp_env.doors.aec import env, raw_env
from ssp_env.game.config import GameConfig
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document, GroundTruth, Question, Role, World
from ssp_env.worlds import open_world

ANSWER = GroundTruth("bridge", "Marlow Bridge")
QUESTION = "Which crossing did the engineer of the Severn canal finish in the spring of 1832?"

DOCUMENTS = [
    Document(
        f"d{i}",
        f"Crossing {i}",
        f"Crossing {i} spans the river at mile {3 * i}. It was built in {1800 + i} by the "
        f"engineer of canal {i % 7}, "
        "and it carries a road.",
    )
    for i in range(64)
]


class FixedRetriever:
    """Answers at once: a query's checksum says which of the fixed documents are its ranking."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """``k`` neighbouring documents for each query."""
        firsts = (crc32(query.encode()) % (len(DOCUMENTS) - k) for query in queries)
        return [DOCUMENTS[first : first + k] for first in firsts]


def search_turn(number: int) -> str:
    """A short thought and a search, no two alike."""
    return (
        f"<think> who built it, and when? </think> <search> engineer of crossing {number} </search>"
    )


QUESTION_TURN = f"<think> that is enough </think> <question> {QUESTION} </question>"
ANSWER_TURN = f"<think> found it </think> <answer> {ANSWER.answer} </answer>"

Script = dict[Role, list[list[int]]]
"""The turns of each role, as ids: as many searches as wished for, then the last turn."""


def script(searches: int) -> Script:
    """The turns of a game whose proposer and solvers search so often before they come to their
    point."""
    encode = ByteTokenizer().encode
    looking = [encode(search_turn(number)) for number in range(searches)]
    answer = encode(ANSWER_TURN)

    return {
        Role.PROPOSER: [*looking, encode(QUESTION_TURN)],
        Role.VERIFIER: [answer],
        Role.SOLVER: [*looking, answer],
    }


def game_tokens(turns: Script, config: GameConfig) -> list[int]:
    """All tokens that the policy writes in one game, in the order in which the AEC environment asks
    for them."""
    order = [*turns[Role.PROPOSER], *turns[Role.VERIFIER], *turns[Role.SOLVER] * config.attempts]
    return [token for turn in order for token in turn]


@cache
def world() -> World:
    """The mini-wiki: noise documents come from it, everything else is fixed."""
    return open_world("mini")


def make_env(config: GameConfig, wrapped: bool = False) -> AECEnv:
    """The AEC environment over bytes and the stub retriever; ``wrapped``: with PettingZoo's usual
    checks."""
    make = env if wrapped else raw_env
    return make(world=world(), tokenizer=ByteTokenizer(), game=config, retriever=FixedRetriever())


def make_rules(config: GameConfig) -> Rules:
    """The same game's rules, for :class:`~ssp_env.game.round.Round`."""
    return Rules.build(world(), ByteTokenizer(), config, retriever=FixedRetriever())


def reset(env: AECEnv, seed: int) -> None:
    """Starts a game about the answer that the script knows."""
    env.reset(seed=seed, options={"answer": ANSWER})


def play_tokens(env: AECEnv, tokens: Sequence[int]) -> None:
    """The ``last()``/``step()`` loop."""
    for token in tokens:
        env.last()
        env.step(token)


def play_game(env: AECEnv, tokens: Sequence[int], seed: int) -> None:
    """One game from its reset to its last dead step."""
    reset(env, seed)
    play_tokens(env, tokens)
    while env.agents:
        env.last()
        env.step(None)


def proposed(rules: Rules, games: int, seed: int) -> Round:
    """A round in which questions are proposed, verified and solved."""
    return Round(rules, _answers, games, [seed])


def asked(rules: Rules, games: int, seed: int) -> Round:
    """A round in which one question a game is solved: what Search-R1's loop does."""
    return Round.of_questions(
        rules, [Question("q", QUESTION, ANSWER.wordings, "speed")] * games, [seed]
    )


def play_round(round_: Round, turns: Script) -> int:
    """Plays a round to its end, one whole turn a call; returns how many turns that were."""
    count = 0
    while pending := round_.pending():
        for trajectory in pending:
            trajectory.feed(turns[trajectory.role][len(trajectory.searches)])
        count += len(pending)
        round_.advance()

    return count


def _answers(rng: np.random.Generator, count: int) -> list[GroundTruth]:
    return [ANSWER] * count
