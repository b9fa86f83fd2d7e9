"""The kind of noise is a setting: every kind in rounds, over HTTP, from an index directory, in an
outage; and settings that change nothing are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted import begin, by_role, play, propose, records, rules_of, say, word_tokenizer, written

from ssp_env.errors import ServiceError
from ssp_env.game.outcome import Outcome
from ssp_env.game.parts import idle_settings
from ssp_env.game.round import Round
from ssp_env.game.verification import draw_noise
from ssp_env.replay import replay, save_game
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld


def origins(played: Round) -> set[str]:
    return {
        item.origin.partition(" ")[0]
        for game in played.games
        if game.outcome is Outcome.VALID
        for item in game.noise
    }


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
