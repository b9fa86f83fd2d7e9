"""The kind of noise is a setting: every kind in rounds, over HTTP, from an index directory, in an
outage; and settings that change nothing are named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from hostile import serving
from scripted import begin, by_role, play, propose, records, rules_of, say, word_tokenizer, written

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.config import MINI_GAME, NoiseKind
from ssp_env.game.idle import idle_settings
from ssp_env.game.noise import NOISE, draw_noise
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.replay import replay, save_game
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.search.index import build_index
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document, GroundTruth, Passages
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld


def origins(played: Round) -> set[str]:
    return {
        item.origin.partition(" ")[0]
        for game in played.games
        if game.outcome is Outcome.VALID
        for item in game.noise
    }


def test_the_names_are_those_of_the_settings() -> None:
    assert tuple(NOISE) == get_args(NoiseKind)


@pytest.mark.parametrize(
    ("kind", "origin"), [("batch", "game"), ("corpus", "corpus"), ("near", "near")]
)
def test_kinds(mini: MiniWorld, words: WordTokenizer, kind: str, origin: str) -> None:
    rules = rules_of(mini, words, noise_kind=kind)
    once, again = (play(begin(rules, slots=6), by_role(propose(2))) for _ in range(2))
    assert origins(once) == {origin}
    assert records(once) == records(again)

    for game in once.games:
        noise = [item.document.id for item in game.noise]
        assert len(set(noise)) == len(noise) == rules.config.noise_documents
        assert not set(noise) & {document.id for document in game.evidence}


def test_near_is_what_a_search_for_the_question_finds(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    rules = rules_of(mini, words, noise_kind="near", noise_documents=3)
    for game in play(begin(rules), by_role(propose())).games:
        (found,) = rules.retriever.search([game.question or ""], 20)
        own = {document.id for document in game.evidence}
        fresh = [document for document in found if document.id not in own]
        assert [item.document for item in game.noise] == fresh[:3]


def test_the_corpus_fills_up_what_is_not_near(mini: MiniWorld, words: WordTokenizer) -> None:
    class Narrow:
        """Finds nothing for a question."""

        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            found = BM25Retriever(mini.corpus).search(queries, k)
            return [
                [] if query.endswith("?") else ranking
                for query, ranking in zip(queries, found, strict=True)
            ]

    rules = rules_of(mini, words, noise_kind="near", retriever=Narrow())
    played = play(begin(rules), by_role(propose()))
    assert origins(played) == {"corpus"}
    assert all(len(game.noise) == 4 for game in played.games)


# -- other retrievers --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(NoiseKind))
def test_a_server_and_an_index_directory(
    mini: MiniWorld, words: WordTokenizer, kind: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """The same games as in process, and no kind is missing where a corpus is mapped."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    here = BM25Retriever(mini.corpus)

    def rank(query: str, k: int) -> list[dict[str, Any]]:
        return [
            {"document": {"id": d.id, "contents": f'"{d.title}"\n{d.text}'}, "score": d.score}
            for d in here.search([query], k)[0]
        ]

    local = play(begin(rules_of(mini, words, noise_kind=kind)), by_role(propose()))
    with serving(rank=rank) as server, HTTPRetriever(HTTPConfig(url=server.url)) as retriever:
        far = rules_of(mini, words, noise_kind=kind, retriever=retriever)
        assert records(play(begin(far), by_role(propose()))) == records(local)

    corpus, answers = tmp_path / "mini.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": d.id, "title": d.title, "text": d.text} for d in mini.corpus]
    corpus.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    answers.write_text("".join(f'{{"answer": "{t.answer}"}}\n' for t in mini.answers))
    build_index(corpus, tmp_path / "index", "bm25")
    options = {"name": "m", "corpus_path": tmp_path / "index", "answers_path": answers}
    game = {**vars(MINI_GAME), "noise_kind": kind, "verifier": "none"}
    rules = set_up(
        {"world": open_world("files", **options), "tokenizer": words, "game": game}
    ).rules
    origin = {"batch": "game"}.get(kind, kind)
    assert origin in origins(play(begin(rules), by_role(propose())))


# -- what can fail -----------------------------------------------------------------------------


class Down:
    """Answers players, and is down for one question."""

    def __init__(self, world: MiniWorld, about: str) -> None:
        self._inner, self._about = BM25Retriever(world.corpus), about

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if any(query.endswith(f"{self._about} ?") for query in queries):
            raise ServiceError("search", "down", 3)
        return self._inner.search(queries, k)


@pytest.mark.parametrize("verifier", ["world", "policy"])
def test_an_outage_voids_the_games_that_it_hits(
    mini: MiniWorld, words: WordTokenizer, verifier: str
) -> None:
    changes: dict[str, Any] = {"noise_kind": "near", "verifier": verifier}
    script = by_role(propose(), verifier=say("<answer> nothing </answer>"))
    healthy = play(begin(rules_of(mini, words, **changes)), script)
    start = (healthy.games[1].question or "").split()[-2]
    rules = rules_of(mini, words, retriever=Down(mini, start), **changes)
    played = play(begin(rules), script)

    hit = [start in (game.question or "").split()[-2:] for game in healthy.games]
    assert hit[1]
    assert not all(hit)
    for game, before, was_hit in zip(played.games, healthy.games, hit, strict=True):
        if not was_hit:
            assert (game.outcome, game.noise) == (before.outcome, before.noise)
            continue

        assert (game.outcome, game.reason, game.noise) == (Outcome.VOID, "search", ())
        assert (game.verifier, game.proposer_reward, game.attempts) == (None, None, [])
        again = replay(written(save_game(game, rules)))
        assert [str(difference) for difference in again.differences] == []


def test_near_noise_is_replayed_without_a_search(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, noise_kind="near")
    for game in play(begin(rules), by_role(propose(2))).games:
        again = replay(written(save_game(game, rules)))
        assert again.identical
        assert again.game.noise == game.noise != ()


def test_an_outage_of_a_source_of_ones_own(mini: MiniWorld, words: WordTokenizer) -> None:
    calls: list[int] = []

    def source(rng: Any, count: int, own: Any, others: Any, corpus: Any) -> Any:
        calls.append(count)
        if len(calls) == 2:
            raise ServiceError("noise", "down")
        return draw_noise(rng, count, own, others, corpus)

    played = play(begin(rules_of(mini, words, noise=source)), by_role(propose()))
    assert [game.reason for game in played.games] == [None, "noise", None, None]
    assert played.games[1].outcome is Outcome.VOID


class Nothing(Passages):
    """A corpus that is searched elsewhere."""

    name = "elsewhere"

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        raise IndexError(index)

    def by_id(self, document_id: str) -> Document:
        raise KeyError(document_id)

    def digest(self) -> str:
        return ""


@dataclass
class Elsewhere:
    """A world without passages of its own."""

    world: MiniWorld
    name: str = "elsewhere"
    can_read: bool = True

    def __post_init__(self) -> None:
        self.corpus = Nothing()
        self.answers: Sequence[GroundTruth] = self.world.answers
        self.analyse, self.read, self.questions = (
            self.world.analyse,
            self.world.read,
            self.world.questions,
        )


def test_without_a_corpus_its_noise_is_refused_and_the_others_give_what_there_is(
    mini: MiniWorld,
) -> None:
    world: Any = Elsewhere(mini)
    parts: dict[str, Any] = {"retriever": BM25Retriever(mini.corpus)}
    with pytest.raises(ConfigError, match="no passages to draw from; choose batch or near"):
        rules_of(world, word_tokenizer(), noise_kind="corpus", **parts)

    for kind in ("batch", "near"):
        rules = rules_of(world, word_tokenizer(), noise_kind=kind, **parts)
        assert all(game.noise for game in play(begin(rules), by_role(propose())).games)


def test_a_kind_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"game\.noise_kind"):
        rules_of(MiniWorld(entities=50), word_tokenizer(), noise_kind="far")


# -- settings without effect -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "changes", "named"),
    [
        (True, {}, ""),
        (True, {"noise_documents": 0}, ""),
        (True, {"noise_kind": "near"}, ""),
        (False, {"verifier": "policy"}, ""),
        (False, {}, "noise_documents = 4"),
        (False, {"noise_documents": 0}, ""),
        (True, {"verifier": "none"}, "noise_documents = 4"),
        (True, {"noise_documents": 0, "noise_kind": "near"}, "noise_kind = near"),
        (True, {"noise": draw_noise, "noise_kind": "near"}, "noise_kind = near"),
        (True, {"asked_searches": (1, 3)}, "asked_searches = (1, 3)"),
        (
            True,
            {"verifier": "policy", "verification_prompt": "attempt", "max_verification_tokens": 99},
            "max_verification_tokens = 99",
        ),
        (
            True,
            {"asked_searches": (1, 3), "prompts": "plain", "max_prompt_tokens": 2000},
            "",
        ),
    ],
)
def test_settings_without_effect_are_named(options: bool, changes: Any, named: str) -> None:
    world = MiniWorld(entities=50, one_to_many=options)
    lines = idle_settings(rules_of(world, word_tokenizer(), **changes))
    assert [line.partition(" has no effect: ")[0] for line in lines] == (
        [f"game.{named}"] if named else []
    )
