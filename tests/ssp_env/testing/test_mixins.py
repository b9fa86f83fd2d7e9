"""The test mixins: the parts that ship pass them, and a broken part is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hf_tokenizers import KINDS

from ssp_env.errors import ServiceError
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import STRATEGIES, BatchStrategy, make_strategy
from ssp_env.game.verification import NoiseSource, draw_noise
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.judge.judges import ExactMatchJudge, F1Judge, NoVerifier, WorldVerifier
from ssp_env.players import ClozePlayer, MiniPlayer, Player
from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.testing import (
    BatchStrategyTests,
    JudgeTests,
    NoiseSourceTests,
    PlayerTests,
    RetrieverTests,
    TokenizerTests,
    VerifierTests,
    WorldTests,
)
from ssp_env.testing.material import PASSAGES
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Document, World
from ssp_env.worlds.mini import MiniWorld, SmallWorld


class TestMiniWorld(WorldTests):
    def make_world(self) -> World:
        return MiniWorld(seed=3, entities=60)


class KnowsByHeart(SmallWorld):
    """Reads what it was not shown."""

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return super().read(question, list(self.corpus))


class Breakable(BM25Retriever):
    """A retriever that can be switched off, and may hide the outage."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__(Corpus(PASSAGES))
        self.silent, self.down = silent, False

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if self.down and not self.silent:
            raise ServiceError("search", "switched off")
        return [[] for _ in queries] if self.down else super().search(queries, k)


class TestBM25(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    def make_retriever(self) -> Retriever:
        return Breakable()

    def break_it(self, retriever: Any) -> None:
        retriever.down = True


class TestExactMatch(JudgeTests):
    def make_judge(self) -> Judge:
        return ExactMatchJudge()


class TestF1(JudgeTests):
    def make_judge(self) -> Judge:
        return F1Judge()


SMALL = SmallWorld()
QUESTION = SMALL.questions(0, 1)[0]


class TestWorldVerifier(VerifierTests):
    supported = VerifyTask(QUESTION.text, QUESTION.truth, tuple(SMALL.corpus))
    unsupported = replace(supported, documents=PASSAGES)

    def make_verifier(self) -> Verifier:
        return WorldVerifier(SMALL)


class TestNoVerifier(VerifierTests):
    unsupported = None

    def make_verifier(self) -> Verifier:
        return NoVerifier()


@pytest.mark.parametrize("kind", KINDS)
class TestTokenizers(TokenizerTests):
    @pytest.fixture(autouse=True)
    def _kind(self, kind: str) -> None:
        self.tokenizer = KINDS[kind]()

    def make_tokenizer(self) -> Tokenizer:
        return self.tokenizer


class TestMiniPlayer(PlayerTests):
    setup: ClassVar = {"world": "mini", "world_options": {"entities": 60}}

    def make_player(self, rules: Rules) -> Player:
        return MiniPlayer(rules.tags, hops=2)


class TestClozePlayer(PlayerTests):
    setup: ClassVar = {"world": "small", "tokenizer": "bytes"}

    def make_player(self, rules: Rules) -> Player:
        return ClozePlayer(rules.tags)


class TestDrawNoise(NoiseSourceTests):
    def make_noise(self) -> NoiseSource:
        return draw_noise


@pytest.mark.parametrize("name", STRATEGIES)
class TestStrategies(BatchStrategyTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_strategy(self) -> BatchStrategy:
        return make_strategy(self.name)


def strict(tasks: Sequence[JudgeTask]) -> list[Verdict]:
    return [Verdict(task.prediction == task.truth.answer) for task in tasks]


BROKEN = [
    (WorldTests, KnowsByHeart(), "analysis_knows_the_right_answer", "use them alone"),
    (TestBM25, Breakable(silent=True), "a_failure_is_an_error", "would be trained on"),
    (
        JudgeTests,
        SimpleNamespace(judge=strict),
        "one_verdict_per_task_in_order",
        "'Wien'.* False, which should be True",
    ),
    (VerifierTests, NoVerifier(), "one_verdict_per_task_in_order", "Peru.* True"),
]


@pytest.mark.parametrize(("mixin", "part", "test", "message"), BROKEN)
def test_a_broken_part_is_noticed(mixin: Any, part: Any, test: str, message: str) -> None:
    makers = [name for name in dir(mixin) if name.startswith("make_")]
    broken = type("Broken", (mixin,), {name: lambda self, *_: part for name in makers})()
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        getattr(broken, f"test_{test}")()
