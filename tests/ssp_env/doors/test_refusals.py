"""Bad input behind every door: an error that names field, value and fix, before any play.

One test of wording per kind of error. Fields of the configs are in game/test_parts.py, files
of a world in worlds/test_files.py, servers in judge/test_openai.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hf_tokenizers import word_level

import ssp_env
from ssp_env.errors import (
    ConfigError,
    RenderModeError,
    ServiceError,
    TokenizerError,
    UsageError,
)
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer
from ssp_env.worlds.mini import SmallWorld

SMALL = SmallWorld()
QUESTION = SMALL.questions(0, 1)[0]

DOORS: dict[str, Callable[..., Any]] = {
    "env": ssp_env.env,
    "raw_env": ssp_env.raw_env,
    "SolverEnv": ssp_env.SolverEnv,
    "ProposerEnv": ssp_env.ProposerEnv,
    "SolverVectorEnv": lambda **setup: ssp_env.SolverVectorEnv(2, **setup),
    "ProposerVectorEnv": lambda **setup: ssp_env.ProposerVectorEnv(2, **setup),
    "GameBatch": lambda **setup: ssp_env.GameBatch(2, **setup),
    "TextGame": ssp_env.TextGame,
    "TextRole": ssp_env.TextRole,
}
"""Every door, from a setup."""


def raw(**setup: Any) -> ssp_env.SearchSelfPlayEnv:
    return ssp_env.raw_env(**{"world": SMALL, **setup})


BYTES = raw(tokenizer="bytes", view={"legal_moves": False}).rules


def refused(make: Callable[[], object], field: str, *said: str) -> None:
    """A ``ConfigError`` about this field that says all of this."""
    with pytest.raises(ConfigError) as error:
        make()
    assert error.value.field == field
    for words in said:
        assert words in str(error.value)


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_keyword(door: str) -> None:
    refused(
        lambda: DOORS[door](world=SMALL, retreiver=None), "retreiver", "did you mean 'retriever'"
    )


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"world": "minni"}, "world", "did you mean 'mini'"),
        ({"tokenizer": "byts"}, "tokenizer", "'bytes'"),
        ({"game": {"atempts": 1}}, "game.atempts", "did you mean 'attempts'"),
        ({"game": {"filters": ["spoilr"]}}, "game.filters.0", "spoiler"),
        ({"game": {"tags": {"serch": "x"}}}, "game.tags.serch", "did you mean 'search'"),
        (
            {"world": "small", "world_options": {"entitis": 20}},
            "world_options.entitis",
            "did you mean 'entities'",
        ),
        ({"world": "files"}, "world_options", "needs name, corpus_path, answers_path"),
        ({"search": {"servr": "x"}}, "search.servr", "did you mean 'server'"),
    ],
)
def test_unknown_names(setup: dict[str, Any], field: str, said: str) -> None:
    refused(lambda: raw(**setup), field, said)


def test_an_unknown_render_mode() -> None:
    for door in ("env", "raw_env", "SolverEnv", "ProposerEnv"):
        refused(
            lambda door=door: DOORS[door](world=SMALL, render_mode="rgb"), "render_mode", "'ansi'"
        )
    with pytest.raises(RenderModeError, match="a world is named as world='small'"):
        ssp_env.env("small")


# -- wrong types and ranges --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"world": 5}, "world", "give a World"),
        ({"world_options": {"entities": 20}}, "world_options", "to the world itself"),
        ({"tokenizer": 5}, "tokenizer", "give a Tokenizer"),
        ({"game": 5}, "game", "a GameConfig, or a mapping"),
        ({"game": {"attempts": "x"}}, "game.attempts", "integer"),
        ({"game": {"attempts": 0}}, "game.attempts", "greater than 0"),
        ({"view": {"window": None, "one_hot": True}}, "view.one_hot", "view.window"),
        ({"retriever": 5}, "retriever", "give a"),
        ({"retriever": BM25Retriever}, "retriever", "not its class"),
        ({"noise": 4}, "noise", "give a function"),
        ({"judge": "exact"}, "judge", "give an object with a method judge()"),
        ({"verifier": "world"}, "verifier", 'game={"verifier": "world"}'),
        ({"proposer_reward": "1-p"}, "proposer_reward", 'game={"proposer_reward": "4p(1-p)"}'),
        ({"game": {"verifier": "openai"}}, "game.verifier", "ssp_env.judge.openai.OpenAIVerifier"),
        ({"judge": SimpleNamespace(judge=lambda: None)}, "judge", "it is called with (tasks)"),
        ({"filters": {"": lambda proposal: False}}, "filters", "not empty"),
        ({"world": "mini", "world_options": {"entities": -1}}, "world_options.entities", "16 to"),
        ({"filters": ["spoiler"]}, "filters", "a mapping from reason code to function"),
        ({"filters": {"mine": 5}}, "filters['mine']", "give a function"),
        ({"filters": {"unverified": lambda p: False}}, "filters", "reason code is taken"),
    ],
)
def test_parts_that_are_none(setup: dict[str, Any], field: str, said: str) -> None:
    refused(lambda: raw(**setup), field, said)


# -- prompts, tokenizers, answers: known when the game is set up -------------------------------


class OneCase(ByteTokenizer):
    """Knows small letters only."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text.lower())


@pytest.mark.parametrize(
    ("tokenizer", "tags", "said"),
    [
        (OneCase(), {"search": "Search"}, "cannot spell the tag <Search>: it becomes '<search>'"),
        (HuggingFaceTokenizer(word_level()), {"search": "find"}, "cannot spell the tag <find>"),
    ],
)
def test_a_tokenizer_that_cannot_spell_the_tags(
    tokenizer: Any, tags: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(TokenizerError) as error:
        raw(tokenizer=tokenizer, game={"tags": tags}, view={})
    assert said in str(error.value)
    assert "choose other tags" in str(error.value)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def files(folder: Path, *answers: Any) -> dict[str, Any]:
    """A world of one passage."""
    corpus = write(
        folder / "corpus.jsonl", {"id": "1", "title": "Vienna", "text": "It lies on the Danube."}
    )
    own = write(folder / "answers.jsonl", *answers)
    return {
        "world": "files",
        "world_options": {"name": "mine", "corpus_path": corpus, "answers_path": own},
    }


@pytest.mark.parametrize("door", DOORS)
def test_a_world_without_answers(door: str) -> None:
    world = SmallWorld()
    world.answers = ()
    if door not in ("SolverEnv", "SolverVectorEnv", "TextRole"):
        refused(
            lambda: DOORS[door](world=world), "world.answers", "give it some, or play questions"
        )
    else:
        DOORS[door](world=world, questions=[QUESTION])


def test_an_answer_that_no_search_can_find(tmp_path: Path) -> None:
    setup = files(
        tmp_path,
        {"answer": "Vienna"},
        {"id": "far", "answer": "Timbuktu", "aliases": ["Tombouctou"]},
    )
    with pytest.raises(ConfigError) as error:
        ssp_env.env(**setup)
    for said in (
        "world.answers = 'Timbuktu'",
        "answer 'far' of the world 'mine'",
        "corpus.jsonl",
        "add a passage",
        "leave it out",
    ):
        assert said in str(error.value)


# -- calls -------------------------------------------------------------------------------------


@dataclass
class Door:
    """How a door is stepped through."""

    name: str
    action: Any
    """A proper action, or one for each game."""

    def make(self) -> Any:
        return DOORS[self.name](world=SMALL)

    def bad(self, token: Any) -> Any:
        """The same with a bad token."""
        return (
            [token] * 2
            if "Vector" in self.name
            else [[token]] * 2
            if self.name == "GameBatch"
            else token
        )


TOKENS = [
    Door("raw_env", 5),
    Door("SolverEnv", 5),
    Door("ProposerEnv", 5),
    Door("SolverVectorEnv", [5, 5]),
    Door("ProposerVectorEnv", [5, 5]),
    Door("GameBatch", [[5], [5]]),
]
TEXTS = [Door("TextGame", "what"), Door("TextRole", "what")]
by_name = {"ids": lambda door: door.name if isinstance(door, Door) else None}


@pytest.mark.parametrize("door", [*TOKENS, *TEXTS], **by_name)
def test_a_step_before_reset(door: Door) -> None:
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        door.make().step(door.action)


@pytest.mark.parametrize("door", TOKENS, **by_name)
@pytest.mark.parametrize("token", [-1, 10**6])
def test_an_action_outside_the_space(door: Door, token: Any) -> None:
    env = door.make()
    env.reset(seed=0)
    with pytest.raises(UsageError):
        env.step(door.bad(token))


@pytest.mark.parametrize("door", [TOKENS[1], TOKENS[2], *TEXTS], **by_name)
def test_a_step_after_the_end(door: Door) -> None:
    env = door.make()
    env.reset(seed=0)
    over = False
    while not over:
        end = env.rules.tokenizer.eos_id if door in TOKENS else ""
        over = any(env.step(end)[2:4])
    with pytest.raises(UsageError, match=r"the game is over: call reset\(\)"):
        env.step(door.action)
    env.reset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("answer", "options are a mapping, not str"),
        ({"answr": "x"}, r"options\['answr'\]: there is no such option; did you mean 'answer'"),
        ({"answer": 5}, r"options\['answer'\] is a string or a GroundTruth, not int"),
        ({"answer": " "}, r"options\['answer'\] = ' ': it is blank"),
        ({"answer": "Zebra"}, "the tokenizer has no tokens"),
        ({"question": "what ?"}, r"options\['question'\] is a Question, not str"),
        ({"answer": "Rome", "question": QUESTION}, "not about answer and question"),
    ],
)
def test_bad_options(options: Any, said: str) -> None:
    for door in ("raw_env", "SolverEnv", "ProposerVectorEnv", "TextGame"):
        with pytest.raises(UsageError, match=said):
            DOORS[door](world=SMALL).reset(seed=0, options=options)


@pytest.mark.parametrize("error", [ValueError("err"), ServiceError])
def test_only_a_service_error_voids_games(error: Any) -> None:
    batch = ssp_env.GameBatch(2, world="small")
    turns = batch.reset(seed=0)
    with pytest.raises(UsageError, match=r'wrap it: ServiceError\("engine", str\(error\)\)'):
        batch.void(turns, error)
    assert batch.turns == turns, "nothing was voided"

    batch.void(turns, ServiceError("engine", "err"))
    assert {info["outcome"] for info in batch.infos} == {"void"}
