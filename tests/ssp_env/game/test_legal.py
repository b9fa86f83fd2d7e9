"""Legal moves: whoever keeps to them ends no turn badly, and every well-formed turn keeps to
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import begin, rules_of

import ssp_env
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.legal import LegalMoves
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer, Player, RandomLegalPlayer
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, Role
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld

TAGS = Tags()


def small_rules(seed: int = 0) -> Rules:
    return ssp_env.raw_env(world="small", world_options={"seed": seed}).rules


def play_out(played: Round, proposer: Player, solver: Player) -> list[Trajectory]:
    while pending := played.pending():
        for trajectory in pending:
            (proposer if trajectory.role is Role.PROPOSER else solver).play([trajectory])
        played.advance()
    return [t for game in played.games for t in game.trajectories()]


def test_a_random_legal_player_ends_every_turn_well(mini: MiniWorld, words: Tokenizer) -> None:
    for rules in [rules_of(mini, words), small_rules(1)]:
        player = RandomLegalPlayer(rules, np.random.default_rng(0))
        ended = play_out(begin(rules, 30), player, player)
        ended += play_out(begin(rules, 30), MiniPlayer(TAGS), player)
        assert {t.ending for t in ended} == {Ending.ACTION}
        assert sum(t.role is Role.SOLVER for t in ended) > 30
        assert sum(len(t.searches) for t in ended) > 30


def test_the_scripted_players_turns_are_legal(mini: MiniWorld, words: Tokenizer) -> None:
    for rules in [rules_of(mini, words, attempts=1), small_rules()]:
        legal, player = LegalMoves(rules), MiniPlayer(TAGS, hops=3)
        played = begin(rules, 8)
        while pending := played.pending():
            for trajectory in pending:
                turn = rules.tokenizer.encode(player.write(trajectory))
                for place, token in enumerate(turn):
                    assert legal.mask(trajectory, turn[:place])[token] == 1
                trajectory.feed(turn)
            played.advance()
        assert {game.solve_rate for game in played.games} == {1.0}


def legal_text(rules: Rules, trajectory: Trajectory) -> set[str]:
    mask = LegalMoves(rules).mask(trajectory)
    assert (mask.dtype, mask.shape) == (np.int8, (rules.tokenizer.vocab_size,))
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


class Fixed:
    """A retriever that finds the same for every query."""

    def __init__(self, documents: list[Document]) -> None:
        self._documents = documents

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        return [self._documents[:k] for _ in queries]


@pytest.fixture(scope="module")
def wiki() -> Rules:
    """A world without a grammar; words of some passages, and the letters that tags are made of."""
    world = open_world("wiki-mini")
    texts = " ".join(document.text for document in world.corpus[:40])
    words = sorted({*filter(str.isalnum, texts.split()), "search", "information"})
    return Rules.build(
        world,
        WordTokenizer([*words, "<", ">", "/"], TAGS.all()),
        GameConfig(
            attempts=2,
            max_response_tokens=3000,
            verifier="none",
            filters=("no_search",),
        ),
        retriever=Fixed([Document(str(i), "title", world.corpus[i].text) for i in range(3)]),
    )


def test_a_random_legal_player_in_a_world_without_grammar(wiki: Rules) -> None:
    player = RandomLegalPlayer(wiki, np.random.default_rng(0))
    ended = play_out(begin(wiki, 6), player, player)
    assert {t.ending for t in ended} <= {Ending.ACTION, Ending.BUDGET_TOKENS}
    assert sum(t.ending is Ending.ACTION for t in ended) > len(ended) / 2
    assert {t.role for t in ended} == {Role.PROPOSER, Role.SOLVER}
    written = {token for t in ended for token, mine in zip(t.ids, t.mask, strict=True) if mine}
    assert wiki.tokenizer.encode("unheard-of")[0] not in written
    assert written.isdisjoint(wiki.tokenizer.encode("< >")), "half a tag"


def test_a_query_is_closed_at_its_budget_and_nothing_is_closed_empty(wiki: Rules) -> None:
    (proposer,), legal = begin(wiki, 1).pending(), LegalMoves(wiki)
    write(wiki, proposer, "<search>")
    assert "</search>" not in legal_text(wiki, proposer)
    for _ in range(wiki.config.max_query_tokens):
        word = int(np.flatnonzero(legal.mask(proposer))[-1])
        assert not proposer.feed([word])
    assert legal_text(wiki, proposer) == {"</search>"}
    write(wiki, proposer, "</search>")
    assert proposer.query is not None


def test_tags_of_several_tokens_have_no_legal_moves(mini: MiniWorld) -> None:
    with pytest.raises(ConfigError, match=r"view\.legal_moves.*one token per tag"):
        LegalMoves(rules_of(mini, ByteTokenizer()))
