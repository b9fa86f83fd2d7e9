"""Game records: plain data that says who wrote what, what was found by whom, and why a game ended
as it did."""

from __future__ import annotations

import pytest
from scripted import begin, by_role, play, propose, records, rules_of, say

from ssp_env.errors import UsageError
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def test_segments_tell_the_authors_apart(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words), slots=1), by_role(propose()))
    (game,) = records(played)
    proposer = game.trajectories[0]
    assert [segment.by for segment in proposer.segments] == [
        "prompt",
        "policy",
        "environment",
        "policy",
    ]
    prompt, search, found, question = proposer.segments
    assert prompt.text == f"propose {game.answer} :"
    assert search.text.endswith(f"<search> {game.answer}</search>")
    assert found.text.startswith("<information> ")
    assert found.text.endswith("</information>")
    assert question.text == f"<question> {game.question}</question>"
    trajectory = played.games[0].proposer
    assert trajectory is not None
    assert [segment.tokens for segment in proposer.segments] == [
        trajectory.prompt_length,
        search.tokens,
        found.tokens,
        question.tokens,
    ]
    assert sum(segment.tokens for segment in proposer.segments) == len(trajectory.ids)
    assert proposer.policy_tokens == sum(trajectory.mask) == search.tokens + question.tokens


def test_a_record_holds_every_token(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words, attempts=2), slots=1), by_role(propose()))
    (game,) = records(played)
    assert list(game.named()) == ["proposer", "solver 1", "solver 2"]
    assert (game.slot, game.origin, game.outcome) == (0, "proposed", "valid")
    for record, then in zip(game.trajectories, played.games[0].trajectories(), strict=True):
        own = [i for i, mine in enumerate(then.mask) if mine]
        assert (list(record.ids), record.mask) == (then.ids, bytes(then.mask))
        assert list(record.own) == [then.ids[i] for i in own]
        assert list(record.logprobs) == [then.logprobs[i] for i in own]
        assert (record.tokens, record.policy_tokens) == (len(then.ids), len(own))
    verdicts = [attempt.verdict for attempt in game.attempts]
    assert all(verdict is not None and verdict.correct for verdict in verdicts)
    bare = game.without_tokens()
    assert [t.policy_tokens for t in bare.trajectories] == [
        t.policy_tokens for t in game.trajectories
    ]
    with pytest.raises(UsageError, match="without token ids"):
        _ = bare.trajectories[0].own


def test_what_the_world_knows(words: WordTokenizer) -> None:
    world = MiniWorld(seed=3, entities=60, one_to_many=True)
    nation = next(
        value
        for facts in world.train_graph.facts.values()
        for r, value in facts.items()
        if r.noun == "nation"
    )
    text = f"<question> what is the citizen of {nation} ? </question>"
    plain = MiniWorld(seed=3, entities=60, one_to_many=False)
    for played_in, hops, ambiguous in ((plain, None, False), (world, 1, True)):
        rules = rules_of(played_in, words, filters=(), verifier="none")
        (game,) = records(play(begin(rules, slots=1), by_role(say(text), say([1]))))
        assert game.hops == hops
        assert (game.right_answers is not None and len(game.right_answers) > 1) is ambiguous
    # A nation of sixty has more citizens than fit in a line: all are there.
    citizens = {
        who
        for who, facts in world.train_graph.facts.items()
        for r, value in facts.items()
        if (r.noun, value) == ("nation", nation)
    }
    assert game.right_answers == tuple(sorted(citizens))
    assert len(citizens) > 10
