"""The test mixins: the parts that ship pass them, and a broken part is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hf_tokenizers import KINDS

from ssp_env import TextRole
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import STRATEGIES, BatchStrategy, make_strategy
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.judge.judges import ExactMatchJudge, F1Judge, NoVerifier, WorldVerifier
from ssp_env.players import ClozePlayer, MiniPlayer, Player
from ssp_env.testing import (
    BatchStrategyTests,
    JudgeTests,
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


def test_a_short_sentence_is_asked_about_where_there_is_no_longer_one(cities: World) -> None:
    role = TextRole("proposer", world=cities)
    role.reset(seed=0)
    while not role.game.proposer.done:
        role.step(ClozePlayer(role.rules.tags).write(role.game.proposer))
    assert '"_____ lies on the river Seine."' in role.game.proposer.result


@pytest.mark.parametrize("name", STRATEGIES)
class TestStrategies(BatchStrategyTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_strategy(self) -> BatchStrategy:
        return make_strategy(self.name)


def strict(tasks: Sequence[JudgeTask]) -> list[Verdict]:
    return [Verdict(task.prediction == task.truth.answer) for task in tasks]


def silent(queries: Sequence[str], k: int) -> list[list[Document]]:
    """Hides that it is down."""
    return [[] for _ in queries]


BROKEN = [
    (WorldTests, KnowsByHeart(), "analysis_knows_the_right_answer", "use them alone"),
    (RetrieverTests, SimpleNamespace(search=silent), "a_failure_is_an_error", "would be trained"),
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
    makers = [name for name in dir(mixin) if name.startswith(("make_", "break_"))]
    own = {name: lambda self, *_: part for name in makers}
    broken = type("Broken", (mixin,), {**own, "queries": ("one", "two")})()
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        getattr(broken, f"test_{test}")()
