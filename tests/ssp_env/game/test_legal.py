"""Legal moves: whoever keeps to them ends no turn badly, and every well-formed turn keeps to
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hf_tokenizers import byte_level
from scripted import begin, rules_of

import ssp_env
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.legal import LegalMoves
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import MAX_CALL_TOKENS, Trajectory
from ssp_env.players import MiniPlayer, Player, RandomLegalPlayer
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, Role, World
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld

TAGS = Tags()


class Fixed:
    """A retriever that finds the same for every query."""

    def __init__(self, documents: list[Document]) -> None:
        self._documents = documents

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        return [self._documents[:k] for _ in queries]


def small_rules(seed: int = 0) -> Rules:
    return ssp_env.raw_env(world="small", world_options={"seed": seed}).rules


def play_out(played: Round, proposer: Player, solver: Player) -> list[Trajectory]:
    while pending := played.pending():
        for trajectory in pending:
            (proposer if trajectory.role is Role.PROPOSER else solver).play([trajectory])
        played.advance()
    return [t for game in played.games for t in game.trajectories()]


@pytest.mark.parametrize(("name", "seed"), [("mini", 0), ("small", 1)])
def test_a_random_legal_player_ends_every_turn_well(name: str, seed: int) -> None:
    rules = ssp_env.raw_env(world=name, world_options={"seed": seed}).rules
    player = RandomLegalPlayer(rules, np.random.default_rng(seed))
    ended = play_out(begin(rules, 30, [seed]), player, player)
    ended += play_out(begin(rules, 30, [seed]), MiniPlayer(TAGS), player)
    assert {t.ending for t in ended} == {Ending.ACTION}
    assert sum(t.role is Role.SOLVER for t in ended) > 30
    assert sum(len(t.searches) for t in ended) > 30


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_scripted_players_turns_are_legal(mini: MiniWorld, words: Tokenizer, hops: int) -> None:
    for rules in [rules_of(mini, words, attempts=1), small_rules()]:
        legal, player = LegalMoves(rules), MiniPlayer(TAGS, hops)
        played = begin(rules, 8)
        checked = 0
        while pending := played.pending():
            for trajectory in pending:
                for token in rules.tokenizer.encode(player.write(trajectory)):
                    assert legal.mask(trajectory)[token] == 1, rules.tokenizer.decode(
                        [*trajectory.ids, token]
                    )
                    trajectory.feed([token])
                    checked += 1
            played.advance()
        assert checked > 80
        assert {game.solve_rate for game in played.games} == {1.0}


def legal_text(rules: Rules, trajectory: Trajectory) -> set[str]:
    mask = LegalMoves(rules).mask(trajectory)
    assert mask.dtype == np.int8
    assert mask.shape == (rules.tokenizer.vocab_size,)
    assert set(mask.tolist()) <= {0, 1}
    return {rules.tokenizer.decode([int(token)]) for token in np.flatnonzero(mask)}


def write(rules: Rules, trajectory: Trajectory, text: str) -> None:
    trajectory.feed(rules.tokenizer.encode(text))


def test_tags_in_a_thought_are_text() -> None:
    """A policy that does not keep to its mask may think; the mask reads it as the parser does."""
    rules = small_rules()
    (proposer,) = begin(rules, 1).pending()

    write(rules, proposer, "<think> <search>")
    assert legal_text(rules, proposer) == {"</think>"}
    write(rules, proposer, "</search> </think>")
    assert legal_text(rules, proposer) == {"<search>"}

    write(rules, proposer, f"<search> <think> <question> </think> {proposer.about}")
    assert legal_text(rules, proposer) == {"</search>"}
    assert proposer.feed(rules.tokenizer.encode("</search>"))


# -- without a grammar -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wiki() -> World:
    return open_world("wiki-mini")


@pytest.fixture(scope="module")
def wiki_words(wiki: World) -> WordTokenizer:
    """Words of some passages, and the letters that tags are made of."""
    words = {
        word for document in wiki.corpus[:40] for word in document.text.split() if word.isalnum()
    }
    return WordTokenizer([*sorted({*words, "search", "information"}), "<", ">", "/"], TAGS.all())


def wiki_rules(wiki: World, tokenizer: Tokenizer, **changes: Any) -> Rules:
    found = [Document(str(i), "title", document.text) for i, document in enumerate(wiki.corpus[:3])]
    config = GameConfig(attempts=2, max_response_tokens=3000, **changes)
    return Rules.build(wiki, tokenizer, config, retriever=Fixed(found))


def test_a_random_legal_player_in_a_world_without_grammar(
    wiki: World, wiki_words: WordTokenizer
) -> None:
    rules = wiki_rules(wiki, wiki_words, verifier="none", filters=("no_search",))
    player = RandomLegalPlayer(rules, np.random.default_rng(0))
    ended = play_out(begin(rules, 6), player, player)
    assert {t.ending for t in ended} <= {Ending.ACTION, Ending.BUDGET_TOKENS}
    assert sum(t.ending is Ending.ACTION for t in ended) > len(ended) / 2
    assert {role for role in Role if any(t.role is role for t in ended)} == {
        Role.PROPOSER,
        Role.SOLVER,
    }
    written = {token for t in ended for token, mine in zip(t.ids, t.mask, strict=True) if mine}
    assert wiki_words.unknown_id not in written, "it takes three tokens when it is read again"
    assert {"<", ">"}.isdisjoint(wiki_words.tokens[token] for token in written), "half a tag"


def test_a_query_is_closed_at_its_budget_and_nothing_is_closed_empty(
    wiki: World, wiki_words: WordTokenizer
) -> None:
    rules, query = wiki_rules(wiki, wiki_words), " ".join(wiki_words.words[:MAX_CALL_TOKENS])
    (proposer,) = begin(rules, 1).pending()
    write(rules, proposer, "<search>")
    assert "</search>" not in legal_text(rules, proposer)
    legal = LegalMoves(rules)
    for token in wiki_words.encode(query):
        assert legal.mask(proposer)[token] == 1
        proposer.feed([token])
    assert legal_text(rules, proposer) == {"</search>"}
    write(rules, proposer, "</search>")
    assert proposer.query == query


# -- tokenizers that cannot --------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), HuggingFaceTokenizer(byte_level())])
def test_tags_of_several_tokens_have_no_legal_moves(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    rules = rules_of(mini, tokenizer)
    with pytest.raises(ConfigError, match=r"view\.legal_moves.*takes \d+ tokens"):
        LegalMoves(rules)
    with pytest.raises(ConfigError, match="one token per tag"):
        ssp_env.SolverEnv(world="small", tokenizer=tokenizer)
