"""One role's play: what is taken, what is masked, how it ends, and that a refused call changes
nothing. Legal moves: whoever keeps to them ends no turn badly, and every well-formed turn keeps to
them. Games as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    Everything,
    begin,
    by_role,
    play,
    propose,
    rules_of,
    say,
    solve,
    spell,
    turn,
    word_tokenizer,
)

import ssp_env
from ssp_env.errors import UsageError
from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.legal import LegalMoves
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.game.transcript import LiveView, render_ansi
from ssp_env.players import MiniPlayer, Player, RandomLegalPlayer
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Role, World
from ssp_env.worlds.mini import MiniWorld

WORDS, BYTES = word_tokenizer(), ByteTokenizer()
TOKENIZERS: list[Tokenizer] = [WORDS, BYTES]


def started(tokenizer: Tokenizer = WORDS, prompt: str = "solve :", **changes: Any) -> Trajectory:
    limits = Limits.of(Role.SOLVER, MINI_GAME.replace(**changes), tokenizer, Tags())
    return Trajectory(limits, tokenizer.encode(prompt))


def write(trajectory: Trajectory, text: str) -> bool:
    return trajectory.feed(trajectory.limits.tokenizer.encode(text))


def state(t: Trajectory) -> tuple[Any, ...]:
    """Everything that a refused call might have changed."""
    tokens = list(t.ids), bytes(t.mask), list(t.logprobs), t.tokens_left
    return *tokens, list(t.searches), t.waiting, t.ending, t.result, t.query


def test_a_prompt_may_open_the_thought() -> None:
    trajectory = started(prompt="solve : <think>")
    assert trajectory.began_thinking
    assert not write(trajectory, "<answer> is </answer> </think>")
    assert write(trajectory, "<answer> the </answer>")
    assert trajectory.result == "the"


def test_a_tag_never_reaches_over_an_observation() -> None:
    trajectory = started(BYTES)
    write(trajectory, "<search> a </search>")
    trajectory.observe([], BYTES.encode("<answer> from outside"))
    assert not write(trajectory, "</answer> </search>"), "nothing is open any more"
    assert write(trajectory, "<answer> b </answer>")
    assert trajectory.result == "b"


def test_tokens_after_the_end_of_a_turn_are_refused_whole() -> None:
    trajectory = started(BYTES)
    write(trajectory, "<search> what ")
    before = state(trajectory)
    with pytest.raises(UsageError, match="after the end of the turn"):
        write(trajectory, "is </search> the")
    assert state(trajectory) == before
    assert write(trajectory, "of </search>"), "what came before them is not forgotten"
    assert trajectory.query == "what of"


PARTS = ["<search>", "</search>", "<answer>", "</answer>", "<think>", "what", " is ", "<", "</"]
TEXTS = st.lists(st.sampled_from([*PARTS, "sea", "é", "<information"]), min_size=1, max_size=8)


@given(data=st.data(), tokenizer=st.sampled_from(TOKENIZERS), budget=st.integers(1, 60))
def test_the_mask_is_1_on_precisely_the_policys_tokens(
    data: st.DataObject, tokenizer: Tokenizer, budget: int
) -> None:
    """Whatever is written in whatever pieces: tokens, mask and log-probabilities stay aligned."""
    limits = {"max_response_tokens": budget, "max_searches": 3, "max_query_tokens": 4}
    trajectory = started(tokenizer, **limits)
    written = [(token, 0, 0.0) for token in trajectory.ids]
    while not trajectory.done:
        ids = data.draw(TEXTS.map("".join).map(tokenizer.encode).filter(bool))
        ids += [tokenizer.eos_id or 0] * data.draw(st.booleans())
        size = data.draw(st.integers(1, 4))
        for start in range(0, len(ids), size):
            chunk = ids[start : start + size]
            logprobs = [-float(len(written) + i) for i in range(len(chunk))]
            before = state(trajectory)
            try:
                ended = trajectory.feed(chunk, logprobs)
            except UsageError:
                assert state(trajectory) == before
                chunk, logprobs = chunk[:1], logprobs[:1]
                ended = trajectory.feed(chunk, logprobs)
            written += [(token, 1, logprob) for token, logprob in zip(chunk, logprobs, strict=True)]
            assert ended == (trajectory.waiting is not Waiting.POLICY)
            if ended:
                break

        if trajectory.waiting is Waiting.SEARCH:
            seen = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
            fits = len(seen) < trajectory.tokens_left
            trajectory.observe([], seen)
            written += [(token, 0, 0.0) for token in seen] if fits else []
        got = zip(trajectory.ids, trajectory.mask, trajectory.logprobs, strict=True)
        assert list(got) == written
        assert trajectory.tokens_left == budget - (len(written) - trajectory.prompt_length) >= 0

    # Behind an action in a thought that was never closed, more may have been written.
    text = spell(tokenizer, trajectory.ids)
    assert trajectory.ending is not Ending.ACTION or b"</answer>" in text
    if trajectory.ending is Ending.ACTION and b"<think>" not in text:
        assert text.endswith(b"</answer>")


# -- legal moves -------------------------------------------------------------------------------

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
    return Rules.build(cities, tokenizer, game, retriever=Everything(cities))


def test_a_random_legal_player_in_a_world_without_grammar(plain: Rules) -> None:
    player = RandomLegalPlayer(plain, np.random.default_rng(0))
    ended = play_out(begin(plain, 6), player, player)
    assert {t.ending for t in ended} <= {Ending.ACTION, Ending.BUDGET_TOKENS}
    assert sum(t.ending is Ending.ACTION for t in ended) > len(ended) / 2
    assert {t.role for t in ended} == {Role.PROPOSER, Role.SOLVER}
    written = {token for t in ended for token, mine in zip(t.ids, t.mask, strict=True) if mine}
    assert plain.tokenizer.encode("unheard-of")[0] not in written
    assert written.isdisjoint(plain.tokenizer.encode("< >")), "half a tag"


# -- games as text -----------------------------------------------------------------------------


def test_a_valid_game(
    mini: MiniWorld, words: WordTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, and line by line while it is played."""
    played = begin(rules_of(mini, words, attempts=2), slots=1)
    (game,), view, script = played.games, LiveView(played.rules), by_role(propose(), solve)
    while pending := played.pending():
        view.show(game)
        pending[0].feed(turn(pending[0], script))
        played.advance()
    view.show(game)

    text = render_ansi(game, played.rules)
    outer = [line for line in text.splitlines() if not line.startswith(" ")]
    assert outer[:2] == [f"answer: {game.truth.answer}", "proposer"]
    assert outer[2] == f"question: {game.question}  (1 hop; right in this world: {outer[0][8:]})"
    assert outer[3].startswith("verification: right (the documents support")
    assert outer[4:] == [
        "solver 1",
        "solver 1: right, paid 1",
        "solver 2",
        "solver 2: right, paid 1",
        "outcome: valid; proposer 0.0, solver 1.0",
    ]
    for indented in (f"propose {game.truth.answer} :", "<information> ", "found: ", "read: "):
        assert f"\n    {indented}" in text
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(text.splitlines())


def test_tokens_cannot_command_a_terminal(mini: MiniWorld) -> None:
    played = begin(rules_of(mini, ByteTokenizer()), slots=1)
    play(played, by_role(say([*b"\x1b[2J\x07 [bold]red[/bold]", 256])))
    text = render_ansi(played.games[0], played.rules)
    assert {"\x1b", "\x07"}.isdisjoint(text)
    assert "[bold]red[/bold]" in text, "and are not taken for colours"
