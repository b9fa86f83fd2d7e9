"""Bad input behind every door: an error that names field, value and fix, before any play.

One test of wording per kind of error. Fields of the configs are in game/test_game_config.py, files
of a world in worlds/test_files.py, servers in judge/test_openai.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hf_tokenizers import word_level

import ssp_env
from ssp_env.doors.dealer import Dealer
from ssp_env.errors import (
    ConfigError,
    DataError,
    RenderModeError,
    ServiceError,
    TokenizerError,
    UsageError,
)
from ssp_env.game.protocol import Tags
from ssp_env.game.strategies import DynamicResampling, ReplayBuffer, make_strategy
from ssp_env.judge.exact import F1Judge
from ssp_env.players import MiniPlayer, RandomLegalPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer
from ssp_env.worlds.mini import MiniWorld, SmallWorld

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
        ({"game": {"filters": ["spoilr"]}}, "game.filters", "did you mean 'spoiler'"),
        ({"game": {"tags": {"serch": "x"}}}, "game.tags.serch", "did you mean 'search'"),
        (
            {"world": "small", "world_options": {"entitis": 20}},
            "world_options.entitis",
            "did you mean 'entities'",
        ),
        ({"world": "files"}, "world_options", "needs more: missing a required argument: 'name'"),
        ({"search": {"servr": "x"}}, "search.servr", "did you mean 'server'"),
    ],
)
def test_unknown_names(setup: dict[str, Any], field: str, said: str) -> None:
    refused(lambda: raw(**setup), field, said)


@pytest.mark.parametrize(
    ("door", "name", "meant"),
    [
        (ssp_env.SolverEnv, "question", "questions"),
        (ssp_env.SolverVectorEnv, "numenvs", "num_envs"),
        (ssp_env.TextRole, "rol", "role"),
        (lambda **setup: ssp_env.GameBatch(1, **setup), "numgames", "num_games"),
    ],
)
def test_a_doors_own_keywords_are_offered(door: Callable[..., Any], name: str, meant: str) -> None:
    refused(lambda: door(world="small", **{name: None}), name, repr(meant))


def test_an_unknown_strategy() -> None:
    refused(lambda: make_strategy("resmple"), "strategy", "did you mean 'resample'")


@pytest.mark.parametrize(
    "door", ["SolverEnv", "ProposerEnv", "SolverVectorEnv", "ProposerVectorEnv", "TextRole"]
)
def test_a_player_is_an_object(door: str) -> None:
    refused(
        lambda: DOORS[door](world=SMALL, other=MiniPlayer),
        "other",
        "an object with a method play()",
    )


def test_an_unknown_role() -> None:
    refused(lambda: ssp_env.TextRole("slover", world=SMALL), "role", "did you mean 'solver'")


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
        ({"world": "small", "world_options": [1]}, "world_options", "a mapping"),
        ({"world_options": {"entities": 20}}, "world_options", "to the world itself"),
        ({"tokenizer": 5}, "tokenizer", "give a Tokenizer"),
        ({"game": 5}, "game", "a GameConfig, or a mapping"),
        ({"game": {"attempts": "3"}}, "game.attempts", "needs a whole number, not a text"),
        ({"game": {"attempts": 0}}, "game.attempts", "at least 1"),
        ({"view": {"window": None, "one_hot": True}}, "view.one_hot", "view.window"),
        ({"retriever": 5}, "retriever", "give a"),
        ({"retriever": BM25Retriever}, "retriever", "not its class"),
        ({"noise": 4}, "noise", "give a function"),
        ({"judge": "exact"}, "judge", "leave it out for the judge by rules"),
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


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ssp_env.GameBatch(0, world=SMALL), "num_games"),
        (lambda: ssp_env.SolverVectorEnv(0, world=SMALL), "num_envs"),
        (lambda: ssp_env.ProposerVectorEnv(-1, world=SMALL), "num_envs"),
        (lambda: ssp_env.SolverEnv(questions=[], world=SMALL), "questions"),
        (lambda: ssp_env.SolverEnv(questions=["what ?"], world=SMALL), "questions"),  # type: ignore[list-item]
        (lambda: ssp_env.TextRole("proposer", questions=[QUESTION], world=SMALL), "questions"),
        (lambda: MiniWorld(entities=15), "world.entities"),
        (lambda: MiniWorld(seed=-1), "world.seed"),
        (lambda: MiniWorld(max_hops=7), "world.max_hops"),
        (lambda: SMALL.questions(-1), "questions.seed"),
        (lambda: SMALL.questions(0, 0), "questions.per_group"),
        (lambda: SMALL.questions(0, 10**5), "questions.per_group"),
        (lambda: BM25Retriever(SMALL.corpus).search(["what"], 0), "k"),
        (lambda: F1Judge(0.0), "judge.threshold"),
        (lambda: DynamicResampling(0), "strategy.max_waves"),
        (lambda: ReplayBuffer(0), "strategy.reset_every"),
        (lambda: raw(view={"legal_moves": True}, tokenizer="bytes"), "view.legal_moves"),
        (lambda: RandomLegalPlayer(BYTES, np.random.default_rng(0)), "view.legal_moves"),
        (lambda: Tags(search="a b"), "tags.search"),
        (lambda: Tags(also="quote"), "tags.also"),  # type: ignore[arg-type]
        (lambda: Tags(search="answer"), "tags"),
        (lambda: Tags(also=("think",)), "tags"),
    ],
)
def test_arguments_out_of_range(make: Callable[[], object], field: str) -> None:
    refused(make, field)


def test_one_string_is_no_list_of_queries() -> None:
    with pytest.raises(UsageError, match="not one string"):
        BM25Retriever(SMALL.corpus).search("what", 1)


# -- prompts, tokenizers, answers: known when the game is set up -------------------------------


OWN = {
    "proposer": "{answer}",
    "solver": "{question}",
    "verifier": "{documents}{question}",
    "document": "{text}",
}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("proposer", "none", "put the placeholder {answer}"),
        ("information", "none", "put the placeholder {documents}"),
        ("solver", "{question} {serches}", "did you mean 'searches'"),
        ("nothing", None, "nothing.txt is missing"),
        ("nothing", b"\xff\xfe", "readable UTF-8"),
    ],
)
def test_templates_are_checked_before_play(
    tmp_path: Path, name: str, text: str | bytes | None, said: str
) -> None:
    files: dict[str, str | bytes | None] = {**OWN, "nothing": "none", name: text}
    for file, content in files.items():
        if content is not None:
            (tmp_path / f"{file}.txt").write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
    with pytest.raises(ConfigError) as error:
        raw(tokenizer="bytes", game={"prompts": str(tmp_path)}, view={"legal_moves": False})
    assert said in str(error.value)
    assert name in str(error.value)


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


def test_an_empty_answer_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"answers\.jsonl: holds no answer"):
        ssp_env.env(**files(tmp_path))


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


@pytest.mark.parametrize(
    "answer", [{"answer": "the Blue Danube"}, {"answer": "Wien", "aliases": ["VIENNA"]}]
)
def test_one_word_of_one_wording_is_enough(tmp_path: Path, answer: dict[str, Any]) -> None:
    ssp_env.env(**files(tmp_path, answer))


def test_with_a_retriever_of_your_own_it_is_up_to_you(tmp_path: Path) -> None:
    setup = files(tmp_path, {"answer": "Timbuktu"})
    ssp_env.env(**setup, retriever=BM25Retriever(Corpus(SMALL.corpus)))


def test_a_retriever_knows_its_words() -> None:
    knows = BM25Retriever(SMALL.corpus).knows
    assert knows(SMALL.answers[0].answer.upper())
    assert not knows("Timbuktu")
    assert not knows("?!")


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
@pytest.mark.parametrize("token", [-1, 10**6, 2.5])
def test_an_action_outside_the_space(door: Door, token: Any) -> None:
    env = door.make()
    env.reset(seed=0)
    with pytest.raises(UsageError):
        env.step(door.bad(token))


@pytest.mark.parametrize("door", TEXTS, **by_name)
def test_a_turn_that_is_no_text(door: Door) -> None:
    env = door.make()
    env.reset(seed=0)
    with pytest.raises(UsageError, match="a turn is a string, not list"):
        env.step(["what"])


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


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_a_seed_that_is_none(seed: Any) -> None:
    with pytest.raises(UsageError, match=f"seed = {seed!r}: give a whole number from 0 up"):
        raw().reset(seed=seed)
    with pytest.raises(UsageError, match="give a whole number from 0 up"):
        ssp_env.TextRole(world=SMALL).reset(seed=seed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("answer", "options are a mapping, not str"),
        ({"answer": 5}, r"options\['answer'\] is a string or a GroundTruth, not int"),
        ({"question": "what ?"}, r"options\['question'\] is a Question, not str"),
        ({"start": 5}, r"options\['start'\] is a Start, not int"),
        ({"answer": "Rome", "question": QUESTION}, "not about answer and question"),
    ],
)
def test_bad_options(options: Any, said: str) -> None:
    for door in ("raw_env", "SolverEnv", "ProposerVectorEnv", "TextGame"):
        with pytest.raises(UsageError, match=said):
            DOORS[door](world=SMALL).reset(seed=0, options=options)


def test_dealing_before_seeding() -> None:
    with pytest.raises(UsageError, match="seed"):
        Dealer(raw().rules).deal()


def test_looking_before_reset() -> None:
    env = raw()
    for look in (env.last, lambda: env.observe("solver"), lambda: env.game):
        with pytest.raises(UsageError, match=r"call reset\(\) first"):
            look()
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        ssp_env.SolverEnv(world="small").action_masks()


def test_an_unknown_agent() -> None:
    env = raw()
    env.reset(seed=0)
    for ask in (env.observe, env.observation_space, env.action_space):
        with pytest.raises(UsageError, match="there is no agent 'judge'; the agents are proposer"):
            ask("judge")


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([5, -1], r"a token is outside the action space 0 \.\. \d+"),
        ([5.0, 5.0], r"actions = \[5\.0, 5\.0\]: a token is a whole number, not float64"),
        ([[5], [5]], "give one token for each of 2 envs"),
    ],
)
def test_a_vector_says_what_is_wrong_with_its_actions(actions: Any, said: str) -> None:
    env = ssp_env.SolverVectorEnv(2, world=SMALL)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=said):
        env.step(actions)
    env.step(np.array([5, 5], dtype=np.int32))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", ["4", True])
def test_a_number_of_games_is_a_whole_one(count: Any) -> None:
    refused(lambda: ssp_env.GameBatch(count, world=SMALL), "num_games", "give a whole number")
    assert len(ssp_env.GameBatch(np.int64(2), world=SMALL).reset(seed=0)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError("err"), ServiceError])
def test_only_a_service_error_voids_games(error: Any) -> None:
    batch = ssp_env.GameBatch(2, world="small")
    turns = batch.reset(seed=0)
    with pytest.raises(UsageError, match=r'wrap it: ServiceError\("engine", str\(error\)\)'):
        batch.void(turns, error)
    assert batch.turns == turns, "nothing was voided"

    batch.void(turns, ServiceError("engine", "err"))
    assert {info["outcome"] for info in batch.infos} == {"void"}
