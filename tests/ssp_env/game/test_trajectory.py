"""One role's play: thoughts that a prompt opens, and room for a reply. Legal moves: whoever keeps
to them ends no turn badly, and every well-formed turn keeps to them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from random_player import RandomLegalPlayer
from scripted import begin, everything, rules_of, word_tokenizer

import ssp_env
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.legal import LegalMoves
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.players import MiniPlayer, Player
from ssp_env.tokenizers import Tokenizer, WordTokenizer
from ssp_env.types import Role, World
from ssp_env.worlds.mini import MiniWorld

WORDS, TAGS = word_tokenizer(), Tags()


def started(prompt: str, **changes: Any) -> Trajectory:
    limits = Limits.of(Role.SOLVER, MINI_GAME.replace(**changes), WORDS, TAGS)
    return Trajectory(limits, WORDS.encode(prompt))


def write(trajectory: Trajectory, text: str) -> bool:
    return trajectory.feed(trajectory.limits.tokenizer.encode(text))


def test_a_prompt_may_open_the_thought() -> None:
    trajectory = started("solve : <think>")
    assert trajectory.began_thinking
    assert not write(trajectory, "<answer> is </answer> </think>")
    assert write(trajectory, "<answer> the </answer>")
    assert trajectory.result == "the"


def test_an_action_in_a_thought_left_open_counts_once_the_turn_is_over() -> None:
    """As an end token does, a whole turn ends the thought; token by token it may still close."""
    trajectory = started("solve :")
    assert not write(trajectory, "<think> <answer> the </answer> is")
    assert trajectory.result is None
    whole = started("solve :")
    whole.feed_text("<think> <answer> the </answer> is")
    assert (whole.result, whole.ending) == ("the", Ending.ACTION)
    assert whole.ids == trajectory.ids


@pytest.mark.parametrize(("room", "ending"), [(1, None), (0, Ending.BUDGET_TOKENS)])
def test_an_observation_leaves_room_for_a_reply_or_ends_it(room: int, ending: Any) -> None:
    """Else the mask is that of every random game (test_tags.py): 1 on the policy's tokens."""
    trajectory = started("solve :", max_response_tokens=20)
    write(trajectory, "<search> what </search>")
    trajectory.observe([], [5] * (trajectory.tokens_left - room))
    assert trajectory.ending is ending


def small_rules(seed: int = 0) -> Rules:
    return ssp_env.raw_env(world="small", world_options={"seed": seed}).rules


def play_out(played: GameBatch, proposer: Player, solver: Player) -> list[Trajectory]:
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


def test_tags_in_a_thought_are_text() -> None:
    """A policy that does not keep to its mask may think; the mask reads it as the parser does."""
    rules = small_rules()
    (proposer,) = begin(rules, 1).pending()

    write(proposer, "<think> <search>")
    assert legal_text(rules, proposer) == {"</think>"}
    write(proposer, "</search> </think>")
    assert legal_text(rules, proposer) == {"<search>"}

    write(proposer, f"<search> <think> <question> </think> {proposer.about}")
    assert legal_text(rules, proposer) == {"</search>"}
    assert write(proposer, "</search>")


@pytest.fixture(scope="module")
def plain(cities: World) -> Rules:
    """A world without a grammar; its words, and the letters that tags are made of."""
    words = {word for page in cities.corpus for word in re.findall(r"\w+", page.text)}
    tokenizer = WordTokenizer(sorted(words | {"search", "information", *"<>/"}), TAGS.all())
    game = GameConfig(attempts=2, max_response_tokens=3000, verifier="none", filters=("no_search",))
    return Rules.build(cities, tokenizer, game, retriever=everything(cities))


def test_a_random_legal_player_in_a_world_without_grammar(plain: Rules) -> None:
    player = RandomLegalPlayer(plain, np.random.default_rng(0))
    ended = play_out(begin(plain, 6), player, player)
    assert {t.ending for t in ended} <= {Ending.ACTION, Ending.BUDGET_TOKENS}
    assert sum(t.ending is Ending.ACTION for t in ended) > len(ended) / 2
    assert {t.role for t in ended} == {Role.PROPOSER, Role.SOLVER}
    written = {token for t in ended for token, mine in zip(t.ids, t.mask, strict=True) if mine}
    assert plain.tokenizer.encode("unheard-of")[0] not in written
    assert written.isdisjoint(plain.tokenizer.encode("< >")), "half a tag"
