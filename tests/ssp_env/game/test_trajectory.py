"""One role's play: what is taken, what is masked, how it ends, and that a refused call changes
nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell, word_tokenizer

from ssp_env.errors import UsageError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.outcome import Ending
from ssp_env.game.trajectory import Limits, SearchRecord, Trajectory, Waiting
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Role

WORDS, BYTES = word_tokenizer(), ByteTokenizer()
TOKENIZERS: list[Tokenizer] = [WORDS, BYTES]
PAGE = Document("d", "Title", "what is the mentor")


def begin(
    role: Role = Role.SOLVER, tokenizer: Tokenizer = WORDS, prompt: str = "solve :", **changes: Any
) -> Trajectory:
    config = MINI_GAME.replace(**changes)
    return Trajectory(Limits.of(role, config, tokenizer), tokenizer.encode(prompt))


def state(trajectory: Trajectory) -> tuple[Any, ...]:
    """Everything that a refused call might have changed."""
    t = trajectory
    return (
        list(t.ids),
        bytes(t.mask),
        list(t.logprobs),
        list(t.searches),
        t.waiting,
        t.ending,
        t.result,
        t.query,
        t.tokens_left,
    )


def write(trajectory: Trajectory, text: str) -> bool:
    return trajectory.feed(trajectory.limits.tokenizer.encode(text))


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_whole_play(tokenizer: Tokenizer) -> None:
    trajectory = begin(tokenizer=tokenizer, prompt="solve what :")
    prompt = list(trajectory.ids)
    first, seen, last = (
        tokenizer.encode(text)
        for text in (
            "<think> what </think> <search> mentor </search>",
            "<information> is </information>",
            "<answer> the </answer>",
        )
    )
    assert trajectory.feed(first, [-1.0] * len(first))
    assert (trajectory.waiting, trajectory.query) == (Waiting.SEARCH, "mentor")
    trajectory.observe([PAGE], seen)
    assert (trajectory.waiting, trajectory.query) == (Waiting.POLICY, None)
    for token in last[:-1]:
        assert not trajectory.feed([token], [-2.0])
    assert trajectory.feed(last[-1:], [-2.0])
    assert (trajectory.waiting, trajectory.ending, trajectory.result) == (
        Waiting.NOTHING,
        Ending.ACTION,
        "the",
    )
    assert trajectory.done
    assert trajectory.searches == [SearchRecord("mentor", (PAGE,))]
    assert trajectory.ids == [*prompt, *first, *seen, *last]
    assert list(trajectory.mask) == [0] * len(prompt) + [1] * len(first) + [0] * len(seen) + [
        1
    ] * len(last)
    expected = [0.0] * len(prompt) + [-1.0] * len(first) + [0.0] * len(seen) + [-2.0] * len(last)
    assert list(trajectory.logprobs) == expected


# -- thoughts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_prompt_may_open_the_thought(tokenizer: Tokenizer) -> None:
    trajectory = begin(tokenizer=tokenizer, prompt="solve : <think>\n")
    assert trajectory.thinking
    assert not write(trajectory, "<answer> is </answer> </think>")
    assert not trajectory.thinking
    assert write(trajectory, "<answer> the </answer>")
    assert trajectory.result == "the"


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_forged_information_ends_it(tokenizer: Tokenizer) -> None:
    trajectory = begin(tokenizer=tokenizer)
    assert write(trajectory, "<search> what <information>")
    assert trajectory.ending is Ending.FORGED


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_token_budget(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("what is the what is the what is the")[:9]
    trajectory = begin(tokenizer=tokenizer, max_response_tokens=9)
    assert not trajectory.feed(ids[:8])
    assert trajectory.tokens_left == 1
    assert trajectory.feed(ids[8:])
    assert (trajectory.ending, trajectory.tokens_left) == (Ending.BUDGET_TOKENS, 0)


def test_query_budget() -> None:
    inside = begin(max_query_tokens=3)
    assert write(inside, "<search> what is the </search>")
    assert inside.waiting is Waiting.SEARCH
    over = begin(max_query_tokens=3)
    assert write(over, "<search> what is the of </search>")
    assert over.ending is Ending.BUDGET_QUERY
    assert over.searches == []


def test_an_observation_has_to_leave_room_for_a_token() -> None:
    seen = WORDS.encode("<information> what is </information>")
    fits, overflows = (begin(max_response_tokens=3 + len(seen) + spare) for spare in (1, 0))
    for trajectory in (fits, overflows):
        write(trajectory, "<search> what </search>")
        trajectory.observe([PAGE], seen)
        assert [record.documents for record in trajectory.searches] == [(PAGE,)]
    assert (fits.waiting, fits.tokens_left) == (Waiting.POLICY, 1)
    assert overflows.ending is Ending.BUDGET_TOKENS
    assert overflows.ids == overflows.limits.tokenizer.encode("solve : <search> what </search>"), (
        "nothing half taken"
    )
    assert len(overflows.ids) == len(overflows.mask) == len(overflows.logprobs)
    assert fits.feed(WORDS.encode("what"))
    assert fits.ending is Ending.BUDGET_TOKENS


def test_a_tag_never_reaches_over_an_observation() -> None:
    trajectory = begin(tokenizer=BYTES)
    write(trajectory, "<search> a </search>")
    trajectory.observe([], BYTES.encode("<answer> from outside"))
    assert not write(trajectory, "</answer> </search>"), "nothing is open any more"
    assert write(trajectory, "<answer> b </answer>")
    assert trajectory.result == "b"


# -- calls that are refused --------------------------------------------------------------------


def refused(
    trajectory: Trajectory, ids: Sequence[int], logprobs: Sequence[float] | None, match: str
) -> None:
    before = state(trajectory)
    with pytest.raises(UsageError, match=match):
        trajectory.feed(ids, logprobs)
    assert state(trajectory) == before


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokens_after_the_end_of_a_turn(tokenizer: Tokenizer) -> None:
    trajectory = begin(tokenizer=tokenizer)
    write(trajectory, "<search> what")
    refused(trajectory, tokenizer.encode("is </search> the"), None, "after the end of the turn")
    assert write(trajectory, "of </search>"), (
        "the refused tokens are forgotten, the earlier ones are not"
    )
    assert trajectory.query is not None
    assert trajectory.query.split() == (["what", "of"] if tokenizer is WORDS else ["whatof"])


# -- the mask, over any stream -----------------------------------------------------------------

TEXTS = st.lists(
    st.sampled_from(
        [
            "<search>",
            "</search>",
            "<answer>",
            "</answer>",
            "<think>",
            "what",
            " is ",
            "<",
            "</",
            "sea",
            "é",
            "<information",
        ]
    ),
    min_size=1,
    max_size=8,
).map("".join)


@given(data=st.data(), tokenizer=st.sampled_from(TOKENIZERS), budget=st.integers(1, 60))
def test_the_mask_is_1_on_precisely_the_policys_tokens(
    data: st.DataObject, tokenizer: Tokenizer, budget: int
) -> None:
    trajectory = begin(
        tokenizer=tokenizer, max_response_tokens=budget, max_searches=3, max_query_tokens=4
    )
    written = [(token, 0, 0.0) for token in trajectory.ids]
    while not trajectory.done:
        ids = data.draw(TEXTS.map(tokenizer.encode).filter(bool))
        if data.draw(st.integers(0, 9)) == 0:
            ids.append(tokenizer.eos_id or 0)
        size = data.draw(st.integers(1, 4))
        for start in range(0, len(ids), size):
            chunk = ids[start : start + size]
            logprobs = [-float(len(written) + i) for i in range(len(chunk))]
            before = state(trajectory)
            try:
                ended = trajectory.feed(chunk, logprobs)
            except UsageError:
                assert state(trajectory) == before
                chunk, logprobs, ended = (
                    chunk[:1],
                    logprobs[:1],
                    trajectory.feed(chunk[:1], logprobs[:1]),
                )
            written += [(token, 1, logprob) for token, logprob in zip(chunk, logprobs, strict=True)]
            assert ended == (trajectory.waiting is not Waiting.POLICY)
            if ended:
                break
        if trajectory.waiting is Waiting.SEARCH:
            seen = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
            room = trajectory.tokens_left
            trajectory.observe([], seen)
            written += [(token, 0, 0.0) for token in seen] if len(seen) < room else []
        got = list(zip(trajectory.ids, trajectory.mask, trajectory.logprobs, strict=True))
        assert got == written
        assert trajectory.tokens_left == budget - (len(written) - trajectory.prompt_length) >= 0
    assert trajectory.ending is not None
    if trajectory.ending is Ending.ACTION:
        assert trajectory.result is not None
        # Behind an action in a thought that was never closed, more may have been written.
        assert trajectory.thinking or spell(tokenizer, trajectory.ids).endswith(b"</answer>")
