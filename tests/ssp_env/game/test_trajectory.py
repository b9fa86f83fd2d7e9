"""One role's play: what is taken, what is masked, how it ends, and that a refused call changes
nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell, word_tokenizer

from ssp_env.errors import UsageError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Role

WORDS, BYTES = word_tokenizer(), ByteTokenizer()
TOKENIZERS: list[Tokenizer] = [WORDS, BYTES]
PAGE = Document("d", "Title", "what is the mentor")


def begin(tokenizer: Tokenizer = WORDS, prompt: str = "solve :", **changes: Any) -> Trajectory:
    limits = Limits.of(Role.SOLVER, MINI_GAME.replace(**changes), tokenizer, Tags())
    return Trajectory(limits, tokenizer.encode(prompt))


def write(trajectory: Trajectory, text: str) -> bool:
    return trajectory.feed(trajectory.limits.tokenizer.encode(text))


def state(t: Trajectory) -> tuple[Any, ...]:
    """Everything that a refused call might have changed."""
    tokens = list(t.ids), bytes(t.mask), list(t.logprobs), t.tokens_left
    return *tokens, list(t.searches), t.waiting, t.ending, t.result, t.query


def test_a_prompt_may_open_the_thought() -> None:
    trajectory = begin(prompt="solve : <think>")
    assert trajectory.began_thinking
    assert not write(trajectory, "<answer> is </answer> </think>")
    assert write(trajectory, "<answer> the </answer>")
    assert trajectory.result == "the"


def test_an_observation_has_to_leave_room_for_a_token() -> None:
    seen = WORDS.encode("<information> what is </information>")
    fits, overflows = (begin(max_response_tokens=3 + len(seen) + spare) for spare in (1, 0))
    for trajectory in (fits, overflows):
        write(trajectory, "<search> what </search>")
        trajectory.observe([PAGE], seen)
        assert [record.documents for record in trajectory.searches] == [(PAGE,)]
    assert overflows.ending is Ending.BUDGET_TOKENS
    assert overflows.ids == WORDS.encode("solve : <search> what </search>"), "nothing half taken"
    assert (fits.waiting, fits.tokens_left) == (Waiting.POLICY, 1)
    assert write(fits, "what")
    assert fits.ending is Ending.BUDGET_TOKENS


def test_a_tag_never_reaches_over_an_observation() -> None:
    trajectory = begin(BYTES)
    write(trajectory, "<search> a </search>")
    trajectory.observe([], BYTES.encode("<answer> from outside"))
    assert not write(trajectory, "</answer> </search>"), "nothing is open any more"
    assert write(trajectory, "<answer> b </answer>")
    assert trajectory.result == "b"


def test_tokens_after_the_end_of_a_turn_are_refused_whole() -> None:
    trajectory = begin(BYTES)
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
    trajectory = begin(tokenizer, **limits)
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
