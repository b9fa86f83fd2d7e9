"""The text facade: strings in, strings out, one turn a step."""

from __future__ import annotations

import pytest
from hf_tokenizers import byte_level
from scripted import propose, solve

import ssp_env
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer
from ssp_env.worlds.mini import MiniWorld

ROOMY = {
    "max_prompt_tokens": 3000,
    "max_response_tokens": 3000,
    "max_query_tokens": 40,
    "max_document_tokens": 500,
}


@pytest.fixture(params=["bytes", "words", "bpe"])
def tokenizer(request: pytest.FixtureRequest, words: Tokenizer) -> Tokenizer:
    known = {"bytes": ByteTokenizer(), "words": words, "bpe": HuggingFaceTokenizer(byte_level())}
    return known[request.param]


def test_each_writer_reads_what_it_has_not_seen(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    """All that a trajectory was shown, and all that was written in it, is the trajectory."""
    env = ssp_env.TextGame(world=mini, tokenizer=tokenizer, game={**ROOMY, "attempts": 2})
    shown, info = env.reset(seed=1)
    transcripts: dict[int, str] = {}
    flags = (False, False)
    while not any(flags):
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        assert info["role"] == trajectory.role.value
        assert ("<information>" in shown) == bool(trajectory.searches)
        written = str((propose(2) if info["role"] == "proposer" else solve)(trajectory))
        transcripts[trajectory.key] = transcripts.get(trajectory.key, "") + shown + written
        shown, paid, *flags, info = env.step(written)  # type: ignore[assignment]
    assert shown == ""
    assert paid == {"proposer": 0.0, "solver": 1.0}
    for trajectory in env.game.trajectories():
        whole = tokenizer.decode(trajectory.ids)
        assert transcripts[trajectory.key].replace(" ", "") == whole.replace(" ", "")
        if not isinstance(tokenizer, ByteTokenizer):
            continue
        assert transcripts[trajectory.key] == whole


@pytest.mark.parametrize(
    "text", ["", " ", "I do not know.", "<answer>", "\ud800", "\x00", "é" * 300]
)
def test_a_turn_without_an_action_is_a_wrong_one(
    mini: MiniWorld, tokenizer: Tokenizer, text: str
) -> None:
    env = ssp_env.TextRole(
        questions=mini.questions(0, 3), world=mini, tokenizer=tokenizer, game=ROOMY
    )
    env.reset(seed=1)
    shown, reward, terminated, truncated, info = env.step(text)
    assert (shown, reward, terminated, truncated) == ("", 0.0, True, False)
    assert info["outcome"] == "valid"


def test_what_follows_the_first_action_is_dropped(mini: MiniWorld) -> None:
    env = ssp_env.TextRole(
        questions=mini.questions(0, 3), world=mini, tokenizer="bytes", game=ROOMY
    )
    env.reset(seed=1)
    right = env.game.truth.answer
    _, reward, *_ = env.step(f"<answer> {right} </answer> no: <answer> other </answer>")
    assert reward == 1.0
    assert "other" not in ByteTokenizer().decode(env.game.attempts[0].trajectory.ids)


def test_a_proposer_alone(mini: MiniWorld) -> None:
    env = ssp_env.TextRole("proposer", world=mini)
    shown, info = env.reset(seed=1)
    assert shown.startswith("propose")
    terminated = False
    while not terminated:
        shown, reward, terminated, _, info = env.step(str(propose(1)(env.game.proposer)))  # type: ignore[arg-type]
    assert (reward, info["solve_rate"]) == (0.0, 1.0)


def test_seeds_and_options(mini: MiniWorld) -> None:
    def prompts(env: ssp_env.TextGame | ssp_env.TextRole) -> list[str]:
        return [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]

    for make in (ssp_env.TextGame, ssp_env.TextRole):
        env = make(world=mini)  # type: ignore[operator]
        assert prompts(env) == prompts(env) == prompts(make(world=mini))  # type: ignore[operator]
        assert len(set(prompts(env))) == 3
        env.reset(options={"answer": mini.answers[3]})
        assert env.game.truth is mini.answers[3]
