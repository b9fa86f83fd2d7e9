"""Proposers that choose the answer: it is checked against their evidence, and then it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted import again

from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.game import Game
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.game.trajectory import Trajectory
from ssp_env.replay import rescore
from ssp_env.types import Role, World

ASKED = "Which river is it that the French capital lies on?"
Script = Callable[[Trajectory], str]


def rules_of(world: World, **game: Any) -> Rules:
    game = {"answers": "proposed", "attempts": 2, "noise_documents": 0, **game}
    return set_up({"world": world, "tokenizer": "bytes", "game": game}).rules


def played(rules: Rules, proposed: str, said: str = "Seine") -> Game:
    """A game in which one search is made, this is proposed, and the rest say this."""
    batch = GameBatch(rules, answers_of(rules.world), 1, [3])
    while pending := batch.pending():
        for trajectory in pending:
            if trajectory.role is not Role.PROPOSER:
                searches = trajectory.role is Role.SOLVER and not trajectory.searches
                turn = "<search> river </search>" if searches else f"<answer> {said} </answer>"
            elif not trajectory.searches:
                turn = "<search> Paris </search>"
            else:
                turn = f"<question> {proposed} </question>"
            trajectory.feed_text(turn)
        batch.advance()
    return batch.games[0]


@pytest.mark.parametrize("prompts", ["plain", "few-shot"])
@pytest.mark.parametrize("proposed", [f"{ASKED}\nSeine", f"\n{ASKED} \n\n  Seine "])
def test_the_last_line_is_the_answer(cities: World, prompts: str, proposed: str) -> None:
    rules = rules_of(cities, prompts=prompts, closed_book=False, max_prompt_tokens=9_000)
    game = played(rules, proposed)
    assert game.proposer is not None
    prompt = game.proposer.text_from(0)[: game.proposer.prompt_length]
    assert prompt.rstrip().endswith("Paris") or "topic: Paris" in prompt
    assert (game.question, game.truth.answer) == (ASKED, "Seine")
    assert (game.initial_state.topic, game.truth.id) == ("Paris", cities.answers[0].id)
    assert (game.reason, game.solver_reward) == (None, 1.0)
    saved = again(game, rules)
    assert saved.record.answer == "Seine"
    (anew,) = rescore([saved], judge=rules.judge)
    assert not anew.changed


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        (ASKED, "no_answer"),
        (f"{ASKED}\n ", "no_answer"),
        (f"{ASKED}\n" + "Paris lies on the river Seine. " * 2, "no_answer"),
        (f"{ASKED}\nDanube", "unseen_answer"),
        (f"{ASKED}\nyes", "unseen_answer"),
        ("Does Paris lie on the river Seine?\nSeine", "spoiler"),
        ("\nSeine", "no_answer"),
    ],
)
def test_what_is_chosen_badly_is_refused(cities: World, proposed: str, reason: str) -> None:
    rules = rules_of(cities)
    game = played(rules, proposed)
    assert (game.reason, game.proposer_reward) == (reason, 0.0)
    again(game, rules)


def test_a_wrong_choice_is_not_verified(cities: World) -> None:
    game = played(rules_of(cities, closed_book=False), f"{ASKED}\nParis")
    assert game.reason == "unverified"


def test_a_given_answer_needs_no_second_line(cities: World) -> None:
    """Neither prompts nor fingerprints nor filters know of topics."""
    rules = rules_of(cities, answers="given")
    assert "topic" not in rules.prompts.texts
    assert rules.config.filters is not None
    assert not {"no_answer", "unseen_answer"} & {*rules.config.filters}
    game = played(rules, "Which city is it that lies on the Seine?\nPlease", "Paris")
    assert (game.question or "").endswith("Please")
    assert (game.truth.answer, game.initial_state.topic) == ("Paris", "")
    assert fingerprint(rules) != fingerprint(rules_of(cities))


def test_evidence_has_to_hold_a_given_answer_where_that_is_asked_for(cities: World) -> None:
    rules = rules_of(cities, answers="given", filters=("unseen_answer",), closed_book=False)
    assert played(rules, "Which city?", "Paris").reason is None


def test_words_that_cannot_spell_the_prompt_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no words for its topic\.txt"):
        set_up({"world": "mini", "game": {"answers": "proposed"}})
