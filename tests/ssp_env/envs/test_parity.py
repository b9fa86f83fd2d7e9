"""The same turns through every interface: tokens, masks, rewards, flags and infos are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import all_interfaces as interfaces
import numpy as np
import pytest
from all_interfaces import ROOMY
from scripted import OPENING, Script, by_role, propose, say, solve, word_tokenizer

import ssp_env
from ssp_env.errors import ServiceError
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Document, Role
from ssp_env.worlds.mini import MiniWorld

TIGHT = {
    "attempts": 1,
    "max_prompt_tokens": 600,
    "max_response_tokens": 160,
    "max_searches": 2,
    "verifier": "none",
    "filters": ("no_search",),
}


@pytest.mark.parametrize(("verifier", "hops"), [("world", 1), ("policy", 2)])
def test_scripted_games(mini: MiniWorld, tokenizer: Tokenizer, verifier: str, hops: int) -> None:
    script = by_role(propose(hops), solve)
    game = {"verifier": verifier, "verifications": (1, 1), "attempts": 1, **ROOMY}
    games = interfaces.through_all_interfaces(
        script, True, world=mini, tokenizer=tokenizer, game=game
    )
    assert {told.record.outcome for told in games} == {"valid"}


def test_several_verifiers_and_attempts(mini: MiniWorld, words: Tokenizer) -> None:
    """The interface of batches asks for those of a game together, and tells what came of them."""
    script = by_role(propose(1), solve)
    game = {"verifier": "policy", "verifications": (2, 3), "attempts": 2}
    setup: dict[str, Any] = {"world": mini, "tokenizer": words, "game": game}
    whole = interfaces.aec(5, script, **setup)
    assert len([t for t in whole.record.trajectories if t.role is Role.VERIFIER]) == 3
    assert interfaces.rllib(5, script, **setup) == whole
    assert interfaces.text(5, script, **setup) == whole.unseen
    (together,) = interfaces.batch(range(5, 6), script, **setup)
    assert together == replace(whole.unseen, infos=together.infos)
    assert together.infos[-1] == whole.infos[-1]


def test_games_with_a_second_tool(mini: MiniWorld) -> None:
    tokenizer, script = word_tokenizer(OPENING), MiniPlayer(OPENING, hops=2).write
    game = {"tools": ["search", "open"], "attempts": 1}
    games = interfaces.through_all_interfaces(
        script, True, world=mini, tokenizer=tokenizer, game=game
    )
    for told in games:
        asked = [search.tool for t in told.record.trajectories for search in t.searches]
        assert (told.record.outcome, {*asked}) == ("valid", {"search", "open"})


def test_masks_of_legal_moves_and_one_hot_windows(mini: MiniWorld, words: Tokenizer) -> None:
    view = ssp_env.ViewConfig(window=24, one_hot=True, legal_moves=True)
    script = by_role(propose(1), solve)
    setup = {"world": mini, "tokenizer": words, "game": {"attempts": 1}, "view": view}
    games = interfaces.through_all_interfaces(script, True, **setup)
    masks = {seen[2] for told in games for seen in told.seen}
    assert len(masks) > 10, "masks follow the turn"


def random_turns(seed: int, tokenizer: Tokenizer) -> Script:
    """Tokens at random, tags often among them; ends for sure. Follows from seed, role and turn
    alone."""
    tags = ["<search>", "</search>", "<question>", "</question>", "<answer>", "</answer>"]
    others = ["<think>", "</think>", "mentor ", "what ", "<", "</", "<information>"]
    common = [tokenizer.encode(text) for text in (*tags, *tags, *others)]
    roles = list(Role)

    def script(trajectory: Trajectory) -> list[int]:
        rng = np.random.default_rng([seed, roles.index(trajectory.role), len(trajectory.searches)])
        ids: list[int] = []
        if trajectory.role is Role.PROPOSER and rng.random() < 0.7:
            call = "question" if trajectory.searches else "search"
            ids += tokenizer.encode(f"<{call}> what </{call}>")
        for _ in range(int(rng.integers(12))):
            ids += common[int(rng.integers(len(common)))]
            ids += rng.integers(tokenizer.vocab_size, size=int(rng.integers(3))).tolist()
        return [*ids, tokenizer.eos_id or 0]

    return script


def test_random_tokens(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    setup = {"world": mini, "tokenizer": tokenizer, "game": TIGHT}
    endings = set()
    for seed in range(12):
        for told in interfaces.through_all_interfaces(
            random_turns(seed, tokenizer), texts=False, **setup
        ):
            endings.add((told.record.outcome, told.record.reason))
    assert len(endings) > 2, "the games are no test if they all end alike"


GAME = {"attempts": 1, "invalid_reward": -0.5}


class Down(BM25Retriever):
    """A retriever that fails on one query; also a judge and a verifier that fail on all."""

    service = ""

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        if "mentor" in queries:
            raise ServiceError("search", "down")
        return super().search(queries, k)

    def judge(self, tasks: Any) -> Any:
        raise ServiceError(self.service, "down")

    verify = judge


LOST = say("<search> mentor </search>", "<answer> what </answer>")


@pytest.mark.parametrize(
    ("proposer", "solver", "service"),
    [
        (LOST, solve, "search"),
        (propose(1), LOST, "search"),
        (propose(1), solve, "judge"),
        (propose(1), solve, "verifier"),
    ],
)
def test_void_games_behind_every_interface(
    mini: MiniWorld, proposer: Script, solver: Script, service: str
) -> None:
    down = Down(mini.corpus)
    down.service = service
    setup = {"world": mini, "game": GAME, "retriever": down}
    setup |= {} if service == "search" else {service: down}
    for told in interfaces.through_all_interfaces(by_role(proposer, solver), texts=True, **setup):
        assert told.flags == (False, True)
        assert told.rewards == {"proposer": 0.0, "solver": 0.0}
        assert (told.infos[-1]["outcome"], told.infos[-1]["reason"]) == ("void", service)
        assert (told.record.outcome, told.record.proposer_reward) == ("void", None)
