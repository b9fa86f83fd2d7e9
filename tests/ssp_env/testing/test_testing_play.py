"""The test mixins of worlds, players and env variants: what ships passes, what breaks a promise is
told so."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import unittest
from collections.abc import Iterator, Sequence
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
from ssp_env.search.corpus import Corpus
from ssp_env.testing import EnvTests, PlayerTests, WorldTests
from ssp_env.types import Analysis, Document, GroundTruth, Question, World
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

    made = 0

    def __init__(self, twist: str) -> None:
        Twisted.made += 1
        super().__init__(seed=Twisted.made if twist == "random" else 0)
        self.twist = twist
        match twist:
            case "no answers":
                self.answers = ()
            case "one id":
                self.answers = tuple(GroundTruth("x", truth.answer) for truth in self.answers)
            case "blank alias":
                self.answers = (GroundTruth("x", self.answers[0].answer, (" ",)),)
            case "unfindable":
                self.answers = (*self.answers, GroundTruth("x", "Timbuktu", ("Tombouctou",)))
            case "shared":
                self.answers = (
                    *self.answers,
                    GroundTruth("x", super().questions(0, 5)[0].answers[0]),
                )
            case "no name":
                self.name = ""
            case "numbers":
                self.can_read = 1  # type: ignore[assignment]

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        match self.twist:
            case "too many questions":
                return super().questions(seed, 5)
            case "random questions":
                return super().questions(int(np.random.default_rng().integers(1000)), per_group)
            case "no questions":
                return []
            case "questions are None":
                return None  # type: ignore[return-value]
        return super().questions(seed, per_group)

    def analyse(self, question: str) -> Analysis | None:
        if self.twist == "wrong analysis":
            return Analysis(1, frozenset({"nobody"}))
        return {} if self.twist == "no analysis" and not question else super().analyse(question)  # type: ignore[return-value]

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return super().read(
            question, list(self.corpus) if self.twist == "knows by heart" else documents
        )


class Empty:
    """A corpus whose length is not that of what it gives."""

    name = "empty"

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def __len__(self) -> int:
        return len(self._corpus) + 1

    def __iter__(self) -> Iterator[Document]:
        return iter(self._corpus)


def world_tests(twist: str) -> WorldTests:
    class Broken(WorldTests):
        def make_world(self) -> World:
            world = Twisted(twist)
            if twist == "wrong length":
                world.corpus = Empty(world.corpus)  # type: ignore[assignment]
            return world

    return Broken()


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("no name", "name_and_reader", "non-empty string"),
        ("numbers", "name_and_reader", "True or False, not 1"),
        ("wrong length", "the_corpus_can_be_walked_through", "len.corpus. is"),
        ("no answers", "answers_can_be_played_from", "the answer set is empty"),
        ("one id", "answers_can_be_played_from", "answer id 'x' occurs twice"),
        ("blank alias", "answers_can_be_played_from", "answer 'x' has a blank wording"),
        ("unfindable", "every_answer_can_be_found", "answer 'x' .'Timbuktu'. has no word"),
        ("too many questions", "questions", "gave 5 of group '1'"),
        ("no questions", "questions", "set has_questions = False in your subclass"),
        (
            "questions are None",
            "questions",
            "NoneType|None.*set has_questions = False in your subclass",
        ),
        ("random questions", "questions_follow_from_the_seed", "the same seed"),
        (
            "shared",
            "questions_and_answers_share_nothing",
            "is played from and also answers evaluation question",
        ),
        ("random", "nothing_is_random", "another corpus: seed what is drawn"),
        ("wrong analysis", "analysis_knows_the_right_answer", "does not count"),
        ("no analysis", "any_text_can_be_analysed", "an Analysis, or None"),
        (
            "knows by heart",
            "reading_uses_the_documents_alone",
            "in no documents at all: use them alone",
        ),
    ],
)
def test_broken_worlds(twist: str, test: str, message: str) -> None:
    fails_as(world_tests(twist), test, message)


class Plain:
    """A world with what a game needs, and no questions."""

    name, can_read = "plain", False

    def __init__(self) -> None:
        self.corpus, self.answers = SmallWorld().corpus, SmallWorld().answers

    def analyse(self, question: str) -> None: ...

    def read(self, question: str, documents: Sequence[Document]) -> None: ...


class Unfinished(Plain):
    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [Plain, Unfinished])
def test_a_world_without_questions_is_told_what_to_set(kind: type[Plain]) -> None:
    class Asked(WorldTests):
        def make_world(self) -> World:
            return kind()  # type: ignore[return-value]

    class NotAsked(Asked):
        has_questions = False

    needing = ["questions", "questions_follow_from_the_seed", "questions_and_answers_share_nothing"]
    needing += ["analysis_knows_the_right_answer", "reading_uses_the_documents_alone"]
    for test in needing:
        fails_as(Asked(), test, "set has_questions = False in your subclass")
    NotAsked().test_reading_uses_the_documents_alone()
    for test in needing[:-1]:
        with pytest.raises(unittest.SkipTest):
            getattr(NotAsked(), f"test_{test}")()


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


class Roaming(MiniPlayer):
    """Remembers every trajectory that it sees, and plays the others too."""

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        import gc

        super().play(
            [
                t
                for t in gc.get_objects()
                if isinstance(t, Trajectory) and t.waiting.value == "policy"
            ]
        )


class Rewriting(MiniPlayer):
    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.ids[0] = 0
        super().play(trajectories)


def player_tests(make: Any) -> PlayerTests:
    class Broken(PlayerTests):
        def make_player(self, rules: Rules) -> Player:
            return make(rules)  # type: ignore[no-any-return]

    return Broken()


@pytest.mark.parametrize(
    ("make", "test", "message"),
    [
        (lambda rules: Lazy(), "every_turn_is_written", "the proposer's turn is not finished"),
        (lambda rules: Lazy(), "verifier_and_closed_book", "the verifier's turn is not finished"),
        (
            lambda rules: Roaming(rules.config.tags),
            "others_are_left_alone",
            "a trajectory that it was not handed",
        ),
        (
            lambda rules: Rewriting(rules.config.tags),
            "what_was_written_stays",
            "changed the prompt",
        ),
    ],
)
def test_broken_players(make: Any, test: str, message: str) -> None:
    fails_as(player_tests(make), test, message)


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
    twist = ""

    def observe(self, agent: str) -> Any:
        observation = super().observe(agent)
        if self.twist == "floats":
            observation["observation"] = observation["observation"].astype(np.float64)
        if self.twist == "no choice":
            observation["action_mask"][:] = 0
        return observation

    def _finish(self) -> None:
        super()._finish()
        match self.twist:
            case "one ends":
                self.terminations["solver"] = False
            case "nan":
                self.rewards["proposer"] = float("nan")
            case "no outcome":
                self.infos["proposer"] = {}


def env_tests(twist: str) -> EnvTests:
    class Broken(EnvTests):
        def make_env(self) -> AECEnv:
            env = TwistedEnv(world="small")
            env.twist = twist
            return env

    return Broken()


@pytest.mark.parametrize(
    ("twist", "message"),
    [
        ("floats", "outside its observation space"),
        ("no choice", "its action_mask allows nothing"),
        ("one ends", "both agents end together"),
        ("nan", "rewards are finite"),
        ("no outcome", "names no outcome: None"),
    ],
)
def test_broken_envs(twist: str, message: str) -> None:
    fails_as(env_tests(twist), "random_games_end", message)


def test_an_env_that_does_not_follow_its_seed() -> None:
    seeds = itertools.count()

    class Restless(TwistedEnv):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
            super().reset(next(seeds), options)

    class Broken(EnvTests):
        def make_env(self) -> AECEnv:
            return Restless(world="small")

    with pytest.raises(AssertionError):
        Broken().test_seeds()


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
