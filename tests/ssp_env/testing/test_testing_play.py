"""The test mixins of worlds, players and envs: what ships passes them, a broken part does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from broken import fails_as
from pettingzoo import AECEnv

import ssp_env
from ssp_env.errors import ServiceError
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import ClozePlayer, MiniPlayer, Player, RandomLegalPlayer, TextPlayer
from ssp_env.testing import EnvTests, PlayerTests, WorldTests
from ssp_env.types import Document, GroundTruth, Question, World
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld, SmallWorld

# -- worlds ------------------------------------------------------------------------------------


class TestMiniWorld(WorldTests):
    def make_world(self) -> World:
        return MiniWorld(seed=3, entities=60)


class TestMiniWorldWithAmbiguity(WorldTests):
    def make_world(self) -> World:
        return MiniWorld(seed=3, entities=60, one_to_many=True)


class TestSmallWorld(WorldTests):
    def make_world(self) -> World:
        return open_world("small")


class TestWikiMini(WorldTests):
    per_group = 300

    def make_world(self) -> World:
        return open_world("wiki-mini")


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class TestFileWorld(WorldTests):
    has_questions = False

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        text = "Vienna is the capital of Austria, on the Danube."
        self.corpus = write(tmp_path / "corpus.jsonl", {"id": "1", "title": "Vienna", "text": text})
        self.answers = write(
            tmp_path / "answers.jsonl",
            {"answer": "Vienna", "aliases": ["Wien"]},
            {"answer": "Danube"},
        )

    def make_world(self) -> World:
        return open_world("files", name="mine", corpus_path=self.corpus, answers_path=self.answers)


class Twisted(SmallWorld):
    """A small world with something wrong."""

    def __init__(self, twist: str) -> None:
        super().__init__()
        self.twist = twist
        if twist == "unfindable":
            self.answers = (*self.answers, GroundTruth("x", "Timbuktu"))
        if twist == "shared":
            self.answers = (*self.answers, GroundTruth("x", self.questions(0, 5)[0].answers[0]))

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        if self.twist == "not implemented":
            raise NotImplementedError
        return [] if self.twist == "no questions" else super().questions(seed, per_group)

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return super().read(
            question, list(self.corpus) if self.twist == "knows by heart" else documents
        )


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("unfindable", "every_answer_can_be_found", "answer 'x' .'Timbuktu'. has no word"),
        ("shared", "questions_and_answers_share_nothing", "also answers evaluation question"),
        ("not implemented", "questions", "set has_questions = False in your subclass"),
        ("no questions", "questions", "set has_questions = False in your subclass"),
        ("knows by heart", "reading_uses_the_documents_alone", "use them alone"),
    ],
)
def test_broken_worlds(twist: str, test: str, message: str) -> None:
    class Broken(WorldTests):
        def make_world(self) -> World:
            return Twisted(twist)

    fails_as(Broken(), test, message)


# -- players -----------------------------------------------------------------------------------


class TestMiniPlayer(PlayerTests):
    def make_player(self, rules: Rules) -> Player:
        return MiniPlayer(rules.config.tags, hops=2)


class TestMiniPlayerInAMiniWorld(TestMiniPlayer):
    setup: ClassVar = {
        "world": "mini",
        "world_options": {"entities": 60},
        "game": {"tags": {"search": "find"}},
    }


class TestClozePlayer(PlayerTests):
    setup = {"world": "small", "tokenizer": "bytes"}  # noqa: RUF012

    def make_player(self, rules: Rules) -> Player:
        return ClozePlayer(rules.config.tags)


class TestRandomLegalPlayer(PlayerTests):
    def make_player(self, rules: Rules) -> Player:
        return RandomLegalPlayer(rules, np.random.default_rng(0))


class Lazy(TextPlayer):
    """Writes half a turn, token by token."""

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.feed([trajectory.limits.tokenizer.vocab_size - 1])


def test_a_broken_player() -> None:
    class Broken(PlayerTests):
        def make_player(self, rules: Rules) -> Player:
            return Lazy()

    fails_as(Broken(), "every_turn_is_written", "the proposer's turn is not finished")


# -- envs --------------------------------------------------------------------------------------


class TestDefaultEnv(EnvTests):
    def make_env(self) -> AECEnv:
        return ssp_env.env(
            world="mini", world_options={"entities": 60}, game={"max_response_tokens": 60}
        )


class TestSmallEnv(EnvTests):
    def make_env(self) -> AECEnv:
        return ssp_env.env(world="small")


class TestSmallEnvWithBytesAndGates(EnvTests):
    def make_env(self) -> AECEnv:
        game = {
            "closed_book": True,
            "verifier": "policy",
            "max_prompt_tokens": 900,
            "max_response_tokens": 300,
        }
        return ssp_env.env(
            world="small", tokenizer="bytes", game=game, view={"legal_moves": False, "window": 32}
        )


class Dead:
    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        raise ServiceError("search", "down")


class TestEnvWithoutSearch(EnvTests):
    """Void games are truncated."""

    def make_env(self) -> AECEnv:
        return ssp_env.env(world="small", retriever=Dead())


class TwistedEnv(ssp_env.SearchSelfPlayEnv):
    """The two agents end one after the other."""

    def _finish(self) -> None:
        super()._finish()
        self.terminations["solver"] = False


def test_a_broken_env() -> None:
    class Broken(EnvTests):
        def make_env(self) -> AECEnv:
            return TwistedEnv(world="small")

    fails_as(Broken(), "random_games_end", "both agents end together")


# -- the package -------------------------------------------------------------------------------


def test_the_mixins_need_neither_pytest_nor_torch_nor_ray() -> None:
    code = (
        "import sys, ssp_env.testing; print({'pytest', 'torch', 'ray', 'transformers'} & "
        "set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )
