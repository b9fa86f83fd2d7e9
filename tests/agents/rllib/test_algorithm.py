"""The algorithm as RLlib users use it: in one process, spread out, resumed, tuned, and in
trouble."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from playful import GAME, WORLD, make_rules

from agents.config import LearningConfig
from agents.rllib.algorithm import SSP, SSPConfig
from agents.rllib.env_runner import Sample
from agents.rllib.rounds import renumber
from agents.rows import rows_of
from ssp_env.errors import ConfigError, ModelError, ServiceError, TokenizerError
from ssp_env.game.config import GameConfig
from ssp_env.game.record import record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")

Weights = dict[str, np.ndarray]


@contextmanager
def running(config: SSPConfig) -> Iterator[SSP]:
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def weights_of(algorithm: SSP) -> Weights:
    return {name: np.array(value) for name, value in algorithm.policy_weights().items()}


def distance(one: Weights, other: Weights) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def changed(config: SSPConfig, **training: Any) -> SSPConfig:
    return config.copy(copy_frozen=False).training(**training)


@pytest.fixture(scope="module")
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Four steps in one process, with a checkpoint after the second; the pool of questions is reset
    after the third."""
    model_dir = request.getfixturevalue("model_dir")
    request.getfixturevalue("cluster")
    env = {"world": "mini", "world_options": WORLD, "game": GAME, "make_rules": make_rules}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    config.training(
        model_dir=model_dir,
        batch_size=8,
        minibatches=2,
        lr=1e-4,
        warmup_steps=3,
        precision="float32",
    )
    config.training(reset_every=3)
    run: dict[str, Any] = {"config": config, "weights": [], "results": [], "games": []}
    run["checkpoint"] = tmp_path_factory.mktemp("checkpoint")
    with running(config) as algorithm:
        run["start"] = weights_of(algorithm)
        for step in range(4):
            run["results"].append(algorithm.train())
            run["weights"].append(weights_of(algorithm))
            run["games"].append(algorithm.last_games)
            if step == 1:
                algorithm.save_to_path(run["checkpoint"])
    return run


# -- one process -------------------------------------------------------------------------------


def test_training_changes_the_weights_and_says_what_happened(uninterrupted: dict[str, Any]) -> None:
    figures = uninterrupted["results"][0]["ssp"]["figures"]
    assert figures["games"] - figures["reused_games"] == 8
    assert figures["learner_updates"] == 2
    assert figures["learner_skipped_updates"] == 0
    assert figures["learner_logprob_gap"] < 0.02
    assert figures["learner_trained_tokens"] > 0
    assert distance(uninterrupted["start"], uninterrupted["weights"][0]) > 1e-5
    assert uninterrupted["results"][3]["training_iteration"] == 4
    assert set(uninterrupted["results"][0]["ssp"]["seconds"]) == {
        "sample",
        "learn",
        "game",
        "engine",
    }


def test_games_carry_the_version_of_the_weights(uninterrupted: dict[str, Any]) -> None:
    assert [{game.weights_version for game in games} for games in uninterrupted["games"]] == [
        {0},
        {1},
        {2},
        {3},
    ]


def test_the_pool_of_questions_is_used(uninterrupted: dict[str, Any]) -> None:
    """Otherwise the resumed run would have no state of a strategy to prove."""
    origins = [{game.origin for game in games} for games in uninterrupted["games"]]
    assert "reused" in origins[2]


def test_a_figure_that_a_step_does_not_have_is_left_out(algorithm_config: SSPConfig) -> None:
    with running(changed(algorithm_config, strategy="dummy")) as algorithm:
        assert "solver_reward" in algorithm.train()["ssp"]["figures"]
        rules = algorithm.env_runner.rules
        # From now on, every question is too short.
        algorithm.env_runner.rules = replace(rules, filters={"too_short": lambda proposal: True})
        figures = algorithm.train()["ssp"]["figures"]
    assert figures["valid_rate"] == 0
    assert "solver_reward" not in figures
    assert not [name for name, value in figures.items() if np.isnan(value)]


def test_questions_are_solved_in_order(uninterrupted: dict[str, Any]) -> None:
    config = uninterrupted["config"]
    questions = config.make_world().questions(0, per_group=3)
    with running(config.copy(copy_frozen=False)) as algorithm:
        records = algorithm.solve(questions)
        assert [record.question for record in records] == [question.text for question in questions]
        assert {record.origin for record in records} == {"given"}
        assert all(len(record.trajectories) == 1 for record in records), "one attempt a question"

        # A record names the seed that it was played from; nothing else may differ.
        again = algorithm.solve(questions, seed=7)
        assert [replace(record, start=replace(record.start, seed=())) for record in records] == [
            replace(record, start=replace(record.start, seed=())) for record in again
        ], "greedy answers do not depend on a seed"
        assert algorithm.solve([]) == []


# -- checkpoints -------------------------------------------------------------------------------


def test_a_resumed_run_continues_as_if_it_had_not_stopped(uninterrupted: dict[str, Any]) -> None:
    with running(uninterrupted["config"].copy(copy_frozen=False)) as algorithm:
        algorithm.restore_from_path(uninterrupted["checkpoint"])
        assert distance(weights_of(algorithm), uninterrupted["weights"][1]) == 0.0
        for step in (2, 3):
            result = algorithm.train()
            assert algorithm.last_games == uninterrupted["games"][step]
            assert distance(weights_of(algorithm), uninterrupted["weights"][step]) == 0.0
        assert result["training_iteration"] == 4
        assert dict(result["ssp"]["figures"]) == dict(uninterrupted["results"][3]["ssp"]["figures"])


def test_from_checkpoint_needs_no_config(uninterrupted: dict[str, Any]) -> None:
    algorithm = SSP.from_checkpoint(str(uninterrupted["checkpoint"]))
    try:
        algorithm.train()
        assert distance(weights_of(algorithm), uninterrupted["weights"][2]) == 0.0
    finally:
        algorithm.stop()


def test_state_can_be_handed_over_directly(uninterrupted: dict[str, Any]) -> None:
    with running(uninterrupted["config"].copy(copy_frozen=False)) as one:
        one.train()
        state = one.get_state()
    with running(uninterrupted["config"].copy(copy_frozen=False)) as other:
        other.set_state(state)
        other.train()
        assert other.last_games == uninterrupted["games"][1]
        assert distance(weights_of(other), uninterrupted["weights"][1]) == 0.0


def test_a_checkpoint_holds_the_weights_once(uninterrupted: dict[str, Any]) -> None:
    """Twice more are Adam's moments."""
    size = sum(value.nbytes for value in uninterrupted["start"].values())
    written = sum(
        file.stat().st_size for file in uninterrupted["checkpoint"].rglob("*") if file.is_file()
    )
    assert written < 3.5 * size


# -- several learners and runners --------------------------------------------------------------


def test_two_learners_give_the_weights_of_none(uninterrupted: dict[str, Any]) -> None:
    config = uninterrupted["config"].copy(copy_frozen=False).learners(num_learners=2)
    config.training(microbatch_tokens=400)  # so that the learners need different numbers of passes
    with running(config) as algorithm:
        for step in range(2):
            figures = algorithm.train()["ssp"]["figures"]
            assert distance(weights_of(algorithm), uninterrupted["weights"][step]) < 1e-6
            alone = uninterrupted["results"][step]["ssp"]["figures"]
            assert figures["learner_trained_tokens"] == alone["learner_trained_tokens"]
            # Adam and clipping would hide a gradient of the wrong size.
            assert figures["learner_grad_norm"] == pytest.approx(
                alone["learner_grad_norm"], rel=1e-3
            )
            assert figures["learner_loss"] == pytest.approx(
                alone["learner_loss"], rel=1e-3, abs=1e-6
            )


def test_games_are_numbered_over_all_runners(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig())
    records = [record_game(game, played.rules) for game in played.games]
    first, second = renumber([Sample(rows, records, {}), Sample(rows, records, {})])
    count = len(records)
    assert [record.slot for record in (*first.records, *second.records)] == list(range(2 * count))
    assert {record.group for record in first.records}.isdisjoint(
        record.group for record in second.records
    )
    assert [row.game for row in first.rows] == [row.game for row in rows]
    assert [row.game for row in second.rows] == [row.game + count for row in rows]


def test_two_env_runners_play_whole_groups_and_survive_the_loss_of_one(
    algorithm_config: SSPConfig, tmp_path: Path
) -> None:
    algorithm_config.env_config["game"] = {**GAME, "proposals": 2}
    algorithm_config.training(batch_size=8, lr=1e-4, strategy="reuse").env_runners(
        num_env_runners=2
    )
    with running(algorithm_config) as algorithm:
        assert algorithm.env_runner is None, "no third copy of the model in the main process"
        algorithm.train()
        _check_groups(algorithm, version=0)
        _check_weights(algorithm, version=1)
        questions = algorithm.config.make_world().questions(0, per_group=1)
        assert [r.question for r in algorithm.solve(questions)] == [q.text for q in questions]

        saved = algorithm._strategies()
        assert {runner for runner, state in saved.items() if state["steps"] == 1} == {1, 2}
        algorithm.save_to_path(tmp_path)
        algorithm.train()
        _check_groups(algorithm, version=1)
        later = algorithm.last_games
        assert algorithm._strategies() != saved
        algorithm.restore_from_path(tmp_path)
        assert algorithm._strategies() == saved
        algorithm.train()
        assert algorithm.last_games == later
        with pytest.raises(ConfigError, match="resume with 3"):
            algorithm.set_state({"ssp_strategies": {3: saved[1]}})

        ray.kill(algorithm.env_runner_group._worker_manager.actors()[1], no_restart=False)
        assert algorithm.train()["ssp"]["figures"]["games"] >= 4, "the other one has played"
        for _ in range(120):
            if len(algorithm.env_runner_group.healthy_worker_ids()) == 2:
                break
            algorithm.restore_env_runners(algorithm.env_runner_group)
            time.sleep(0.5)
        _check_weights(algorithm, version=3)
        algorithm.train()
        _check_groups(algorithm, version=3)


def _check_groups(algorithm: SSP, version: int) -> None:
    games = algorithm.last_games
    proposed = [game for game in games if game.origin == "proposed"]
    assert len(proposed) == 8
    assert len({game.slot for game in games}) == len(games), "slots are numbered over all runners"
    groups = [
        [game for game in proposed if game.group == group]
        for group in sorted({g.group for g in proposed})
    ]
    assert [len(group) for group in groups] == [2] * 4
    assert all(len({game.answer for game in group}) == 1 for group in groups)
    for game in games:
        if game.outcome == "valid":
            assert sum(trajectory.role == "solver" for trajectory in game.trajectories) == 4
    assert {game.weights_version for game in games} == {version}


def _check_weights(algorithm: SSP, version: int) -> None:
    expected = weights_of(algorithm)
    states = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: runner.get_state(), local_env_runner=False
    )
    assert [state["weights_seq_no"] for state in states] == [version] * 2
    for state in states:
        held = {
            name.removeprefix("lm."): value for name, value in state["rl_module"]["llm"].items()
        }
        assert distance(expected, held) == 0.0


# -- trouble -----------------------------------------------------------------------------------


def test_an_engine_failure_voids_games_and_training_goes_on(algorithm_config: SSPConfig) -> None:
    with running(changed(algorithm_config, strategy="dummy")) as algorithm:
        engine, before = algorithm.env_runner.engine, weights_of(algorithm)
        step = engine.step

        def fail(*_: object, **__: object) -> None:
            raise ServiceError("engine", "gone")

        engine.step = fail
        figures = algorithm.train()["ssp"]["figures"]
        assert figures["void_games"] == figures["games"] == 8
        assert figures["learner_updates"] == 0
        assert "valid_rate" not in figures
        assert distance(weights_of(algorithm), before) == 0.0
        engine.step = step
        figures = algorithm.train()["ssp"]["figures"]
        assert figures["void_games"] == 0
        assert figures["learner_updates"] == 1
        assert distance(weights_of(algorithm), before) > 0.0


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "training", "runners", "field", "says"),
    [
        ({"wurld": "mini"}, {}, 0, "env_config.wurld", "'world'"),
        ({"world": "wiki-mni"}, {}, 0, "env_config.world", "'wiki-mini'"),
        ({"world": 3}, {}, 0, "env_config.world", "name of a world"),
        ({"world_options": {"sed": 1}}, {}, 0, "env_config.world_options.sed", "'seed'"),
        (
            {"world_options": {"entities": 1}},
            {},
            0,
            "env_config.world_options.entities",
            "16 to 700",
        ),
        ({"game": {"attemts": 3}}, {}, 0, "env_config.game.attemts", "'attempts'"),
        ({"game": {"attempts": 1}}, {}, 0, "env_config.game.attempts", "at least 2"),
        ({"game": {"attempts": "5"}}, {}, 0, "env_config.game.attempts", "type int"),
        ({}, {"proposer_algorithm": "grpo"}, 0, "env_config.game.proposals", "at least 2"),
        ({"game": {"proposals": 3}}, {"batch_size": 8}, 0, "training.batch_size", "multiple"),
        ({}, {"batch_size": 9}, 2, "training.batch_size", "multiple"),
        ({}, {"batch_size": 2, "minibatches": 3}, 0, "training.minibatches", "batch_size"),
        ({}, {"strategy": "periodic"}, 0, "training.strategy", "periodic_reset"),
    ],
)
def test_settings_that_cannot_work_are_named(
    env: dict[str, Any],
    training: dict[str, Any],
    runners: int,
    field: str,
    says: str,
    model_dir: Path,
) -> None:
    config = SSPConfig().environment(env_config=env).training(model_dir=model_dir, **training)
    with pytest.raises(ConfigError, match=says) as caught:
        config.env_runners(num_env_runners=runners).build_algo()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("env", "training"),
    [
        ({"game": {"attempts": 1}}, {"solver_algorithm": "reinforce"}),
        ({"game": {"attempts": 1}}, {"learning_roles": ("proposer",)}),
        ({"game": {"proposals": 2}}, {"proposer_algorithm": "grpo"}),
        ({"game": GameConfig(attempts=3)}, {"learning_roles": ["solver"]}),
    ],
)
def test_settings_that_can_work_pass(
    env: dict[str, Any], training: dict[str, Any], model_dir: Path
) -> None:
    SSPConfig().environment(env_config=env).training(model_dir=model_dir, **training).validate()


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        SSPConfig().training(model_dir=tmp_path / "nowhere").build_algo()


def test_a_tokenizer_that_cannot_spell_the_tags_is_found_before_anything_is_built(
    model_dir: Path,
) -> None:
    tags = {name: f"{name}-it" for name in ("think", "search", "information", "question", "answer")}
    config = (
        SSPConfig().environment(env_config={"game": {"tags": tags}}).training(model_dir=model_dir)
    )
    with pytest.raises(TokenizerError, match="<think-it>"):
        config.validate()


@pytest.mark.parametrize(("name", "offers"), [("kl_coef", "kl_coeff"), ("learning_rate", "lr")])
def test_an_unknown_setting_of_training_is_refused(name: str, offers: str) -> None:
    with pytest.raises(ConfigError, match=f"training.{name} = 0.1: did you mean '{offers}'"):
        SSPConfig().training(**{name: 0.1})


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("gamma", lambda c: c.training(gamma=0.9), "nothing is discounted"),
        (
            "train_batch_size_per_learner",
            lambda c: c.training(train_batch_size_per_learner=9),
            "training.batch_size=",
        ),
        ("minibatch_size", lambda c: c.training(minibatch_size=9), "minibatches"),
        ("num_epochs", lambda c: c.training(num_epochs=2), "minibatches"),
        ("grad_clip", lambda c: c.training(grad_clip=1.0), "max_grad_norm"),
        ("env", lambda c: c.environment("CartPole-v1"), "env_config"),
        ("framework", lambda c: c.framework("tf2"), "leave it out"),
        ("evaluation_interval", lambda c: c.evaluation(evaluation_interval=1), "SSP.solve"),
        ("num_envs_per_env_runner", lambda c: c.env_runners(num_envs_per_env_runner=2), "share"),
        ("model_config", lambda c: c.rl_module(model_config={"a": 1}), "model_dir"),
        ("callbacks_on_episode_end", lambda c: c.callbacks(on_episode_end=print), "leave it out"),
    ],
)
def test_what_rllib_has_and_nobody_would_read_is_refused(name: str, change: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        change(SSPConfig()).validate()
    assert caught.value.field == name
    assert "not used by search self-play" in caught.value.fix


def test_what_rllib_does_with_its_settings_for_us_stays(model_dir: Path) -> None:
    config = SSPConfig().training(model_dir=model_dir, lr=1e-3, batch_size=8)
    config.env_runners(num_env_runners=2, sample_timeout_s=60, num_cpus_per_env_runner=2)
    config.learners(num_learners=1).fault_tolerance(restart_failed_env_runners=False)
    config.callbacks(on_train_result=print).debugging(seed=3, log_level="ERROR")
    config.validate()
    config.validate()


def test_own_rules_and_worlds_are_used(
    algorithm_config: SSPConfig, tokenizer: HuggingFaceTokenizer
) -> None:
    seen: list[object] = []

    def own_rules(world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
        seen.append((world, game.attempts))
        return make_rules(world, tokenizer, game)

    own = {
        "world": MiniWorld,
        "world_options": {"seed": 9, "entities": 55},
        "make_rules": own_rules,
    }
    algorithm_config.environment(env_config={**algorithm_config.env_config, **own}).validate()
    world = algorithm_config.make_world()
    assert len(world.corpus) == 110
    assert algorithm_config.make_rules(world, tokenizer).world is world
    assert seen == [(world, GAME["attempts"])]


# -- Tune --------------------------------------------------------------------------------------


def test_a_config_survives_its_dict(algorithm_config: SSPConfig) -> None:
    algorithm_config.training(kl_coeff=0.125, learning_roles=("solver",))
    copy = SSPConfig().update_from_dict(algorithm_config.to_dict())
    assert copy.learning() == algorithm_config.learning()
    assert copy.game() == algorithm_config.game()
    assert copy.model_dir == algorithm_config.model_dir
    copy.validate()


def test_tune_searches_over_settings(algorithm_config: SSPConfig, tmp_path: Path) -> None:
    from ray import tune

    changes = {"batch_size": 2, "strategy": "dummy", "kl_coeff": tune.grid_search([0.25])}
    algorithm_config.training(**changes)
    results = tune.Tuner(
        SSP,
        param_space=algorithm_config,
        run_config=tune.RunConfig(
            stop={"training_iteration": 1}, storage_path=str(tmp_path), verbose=0
        ),
    ).fit()
    assert not results.errors
    (result,) = results
    assert result.config["kl_coeff"] == 0.25
    assert result.metrics["ssp"]["figures"]["games"] == 2
