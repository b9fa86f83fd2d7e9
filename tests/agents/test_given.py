"""Training on given questions without Ray: their order, their share of a step, what is learnt from
them, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from playful import GAME, LEARNING

from ssp_agents.checks import check_settings
from ssp_agents.config import (
    ComputeConfig,
    EngineConfig,
    LearningConfig,
    given_per_step,
)
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.given import GivenQuestions, check_given, check_unseen
from ssp_agents.health import Monitor
from ssp_agents.metrics import step_figures
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.env_runner import game_batches_of
from ssp_agents.rollout import play
from ssp_agents.rows import rows_of, with_advantages, with_loss_weights
from ssp_env.errors import ConfigError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.types import Question


def some(count: int) -> list[Question]:
    return [Question(f"q{i}", f"what is the twin of {i} ?", ("Arra",)) for i in range(count)]


@pytest.fixture(scope="module")
def asked(rules: Rules) -> list[Question]:
    """Questions that the policy can read."""
    return rules.world.questions(0, per_group=4)


@pytest.fixture(scope="module")
def solved(rules: Rules, engine: TransformersEngine, asked: list[Question]) -> GameBatch:
    """A batch of these questions alone, played by the policy."""
    return play(GameBatch(rules, None, 0, [3], given=asked), engine, temperature=0.8)


def kept(played: GameBatch) -> list[GameRecord]:
    return [record_game(game, played.rules) for game in played.games]


@drawn(st.integers(1, 30), st.integers(1, 40), st.integers(0, 9))
def test_each_comes_once_before_any_comes_again(count: int, per_step: int, seed: int) -> None:
    questions, steps = some(count), -(-3 * count // per_step)
    given = GivenQuestions(questions, seed, per_step)
    stream = [q.id for step in range(steps) for q in given.of_step(step)]
    epochs = [stream[i : i + count] for i in range(0, 3 * count, count)]
    assert all(Counter(epoch) == Counter(q.id for q in questions) for epoch in epochs)
    # The same from anywhere: a run that is resumed has no generator to bring along.
    assert GivenQuestions(questions, seed, per_step).of_step(steps - 1) == given.of_step(steps - 1)
    assert given.figures(steps)["given_epoch"] == pytest.approx(steps * per_step / count)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    questions = some(20)
    first, second = (GivenQuestions(questions, 0, 20).of_step(step) for step in (0, 1))
    other = GivenQuestions(questions, 1, 20).of_step(0)
    assert first != second
    assert other not in (first, second)


@drawn(
    st.sampled_from([1, 2, 4]),
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(0.0, 1.0),
)
def test_batches_hold_whole_groups_and_the_share_exactly(
    proposals: int, groups: int, groups_of_batch: int, share: float
) -> None:
    game, batch = GameConfig(proposals=proposals), groups * proposals
    learning = LearningConfig(
        batch_size=batch,
        minibatches=1,
        round_size=groups_of_batch * proposals,
        questions="q.jsonl",
        given_share=share,
    )
    count = given_per_step(learning, game)
    assert abs(count - share * batch) <= proposals / 2 + 1e-9
    game_batches = game_batches_of(3, learning, game, some(count))
    assert [q for each in game_batches for q in each["given"]] == some(count)
    assert sum(each["num_games"] for each in game_batches) == batch - count
    for each in game_batches:
        assert each["num_games"] % proposals == 0
        assert each["num_games"] + len(each["given"]) <= learning.round_size
    # No game batch is given two more than another one of its size, apart from groups being whole.
    sizes = [len(each["given"]) for each in game_batches[:-1]]
    assert not sizes or max(sizes) - min(sizes) <= proposals


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"given_share": 0.5, "questions": ""}, "given_share = 0.5: name the file"),
        ({"learning_roles": ["proposer"]}, "learning_roles = .*the solver alone learns"),
        ({"partner": "p", "learning_roles": ["solver"]}, "partner = 'p': all questions are given"),
        ({"given_share": 1.5}, "given_share = 1.5"),
        ({"questions": 3}, "questions = 3: name a file, or give a list of Questions"),
        ({"questions": []}, r"questions = \[\]: name a file"),
        ({"given_share": 0.05}, "of 8 questions a step it comes to none; give more than 0.0625"),
        ({"given_share": 0.96}, "of 8 questions a step it comes to all; give 0.938"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], says: str) -> None:
    def make() -> None:
        learning = LearningConfig(**{"batch_size": 8, "questions": "q.jsonl", **settings})
        check_settings(GameConfig(attempts=2), learning, EngineConfig(), ComputeConfig())

    with pytest.raises(ConfigError, match=f"learning.*{says}"):
        make()


def test_a_file_alone_is_search_r1s_arm_and_the_solver_learns_alone() -> None:
    learning = LearningConfig(questions="q.jsonl")
    assert (learning.share_given, learning.learning_roles) == (1.0, ("solver",))
    assert LearningConfig(questions=Path("q.jsonl")) == learning
    half = LearningConfig(questions="q.jsonl", given_share=0.5)
    assert half.learning_roles == ("proposer", "solver")
    # An arm of a sweep may leave them out, and have a partner then.
    without = {"given_share": 0, "learning_roles": ["proposer"], "partner": "p"}
    assert LearningConfig(questions="q.jsonl", **without).share_given == 0


def test_what_is_learnt_from_them(solved: GameBatch, asked: list[Question]) -> None:
    common = {**LEARNING, "batch_size": 16}
    config = LearningConfig(**common, questions=asked, drop_uniform_groups=True)
    rows = rows_of(solved.games, config)
    assert {row.role for row in rows} == {"solver"}
    assert len(rows) == sum(len(game.counted) for game in solved.games)
    learnt = with_advantages(rows, config)
    rewards = {row.game: {r.reward for r in rows if r.game == row.game} for row in rows}
    # Groups of equal rewards teach nothing: they are left out, and counted.
    assert {row.game for row in learnt} == {g for g, paid in rewards.items() if len(paid) > 1}
    figures = step_figures(kept(solved), 16, [])
    same = [len(paid) == 1 for paid in rewards.values()]
    assert figures["given_uniform"] == pytest.approx(sum(same) / len(same))
    assert 0 < sum(same) < len(same)

    game = GameConfig(**GAME)
    weights = [row.weight for row in with_loss_weights(learnt, config, 16, game)]
    expected = [1 / (16 * game.attempts * row.tokens) for row in learnt]
    assert weights == pytest.approx(expected), "equation 4, over all questions of the step"


def test_a_proposal_weighs_as_much_as_in_a_step_of_proposals_alone(played: GameBatch) -> None:
    """Half of 16 games are given: the other half has the proposers' denominator to itself."""
    game, common = GameConfig(**GAME), {**LEARNING, "batch_size": 16}
    mixed = LearningConfig(**common, questions=some(3), given_share=0.5)
    alone = LearningConfig(**{**common, "batch_size": 8})
    rows = rows_of(played.games, alone)
    ours, theirs = (
        [row.weight for row in with_loss_weights(rows, config, num_games, game)]
        for config, num_games in ((mixed, 16), (alone, 8))
    )
    for row, here, there in zip(rows, ours, theirs, strict=True):
        assert here == pytest.approx(there if row.role == "proposer" else there / 2)


def test_figures_of_given_questions_stand_apart_and_say_nothing_of_proposals(
    solved: GameBatch, played: GameBatch
) -> None:
    alone, mixed = kept(solved), [*kept(solved), *kept(played)]
    figures = step_figures(alone, len(alone), [])
    assert (figures["given_games"], figures["given_share"]) == (16.0, 1.0)
    attempts = [attempt for game in alone for attempt in game.attempts]
    right = sum(attempt.right for attempt in attempts) / len(attempts)
    assert figures["given_reward"] == figures["given_accuracy"] == pytest.approx(right)
    searches = [len(attempt.searches) for attempt in attempts]
    assert figures["given_searches"] == pytest.approx(sum(searches) / len(searches))
    unknown = ("valid_rate", "proposer_reward", "unsolved_share", "proposer_searches")
    assert all(figures[name] is None for name in unknown)
    assert not any(name.startswith("invalid_") for name in figures)

    both, proposed = step_figures(mixed, 32, []), step_figures(kept(played), 16, [])
    assert not any(name.startswith("given") for name in proposed)
    for name in ("valid_rate", "proposer_reward", "solver_reward_fresh", "unsolved_share"):
        assert both[name] == proposed[name]
    valid = [game for game in mixed if game.outcome == "valid"]
    assert both["given_share"] == pytest.approx(16 / len(valid))


def test_a_run_without_proposals_is_not_ill(solved: GameBatch) -> None:
    figures = step_figures(kept(solved), 16, [{"loss": 0.1, "grad_norm": 1.0}])
    monitor = Monitor(patience=1)
    assert all(monitor(step, figures) is None for step in range(1, 9))


def test_what_the_policy_cannot_read_or_is_measured_by_is_refused(
    rules: Rules, asked: list[Question], tmp_path: Path
) -> None:
    check_given(rules, asked)
    with pytest.raises(
        ConfigError, match=r"learning.questions = .*no tokens for 1 of 17, such as 'who wrote Emma"
    ):
        check_given(rules, [*asked, Question("x", "who wrote Emma?", ("Jane",))])
    long = Question("x", "what is the twin of " + f"{asked[0].answers[0]} " * 80 + "?", ("Arra",))
    with pytest.raises(
        ConfigError, match=r"max_prompt_tokens = 64: .*1 of 17.*that of x; give \d+"
    ):
        check_given(rules, [*asked, long])

    seen = [Question("y", asked[3].text.upper().replace(" ?", ""), ("Arra",)), *some(4)]
    learning = LearningConfig(questions=seen)
    with pytest.raises(ConfigError, match="1 of 5 are evaluation questions"):
        check_unseen(learning, asked)
    check_unseen(LearningConfig(questions=seen, given_share=0), asked)
    check_unseen(LearningConfig(questions=some(5)), asked)


def test_rllibs_config_takes_a_path_or_the_questions_themselves(
    algorithm_config: SSPConfig, tmp_path: Path
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "what is the twin of Arra ?", "golden_answers": ["Arra"]}\n')
    given = algorithm_config.training(questions=file).given()
    assert [question.answers for question in given.of_step(0)] == [("Arra",)] * 8
    given = algorithm_config.training(questions=some(9), given_share=0.5).given()
    assert (given.per_step, len(given.questions)) == (4, 9)
    assert algorithm_config.copy(copy_frozen=False).given().digest() == given.digest()
    assert algorithm_config.training(questions="", given_share=None).given().of_step(0) == []
