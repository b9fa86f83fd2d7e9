"""The algorithm as RLlib users use it: in one process, spread out, resumed, tuned, in trouble."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import ray
import torch
from learning import Weights, distance, share_apart
from playful import GAME, LEARNING, WORLD, damage, lethal_rules
from ray import tune
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.learner import learner_group
from ray.rllib.core.learner.torch import torch_learner
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.train.torch import TorchConfig
from ray.tune.registry import get_trainable_cls
from safetensors.numpy import load_file

from ssp_agents.config import SHARED
from ssp_agents.rllib import SSP, SSPConfig, SSPLearner, env_runner
from ssp_agents.rllib.env_runner import SSPEnvRunner
from ssp_agents.rllib.module import LLMModule
from ssp_env.errors import LearnerDied, ModelError, ServiceError, UsageError

pytestmark = pytest.mark.usefixtures("cluster")


@contextmanager
def running(config: SSPConfig) -> Iterator[SSP]:
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def weights_of(algorithm: SSP) -> Weights:
    return {n: w.numpy().copy() for n, w in algorithm.get_module().lm.state_dict().items()}


class Witness(RLlibCallback):
    """Logs what it is told of."""

    def on_sample_end(self, *, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        metrics_logger.log_value("longest_game", float(len(samples.records)), reduce="max")

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        algorithm.told = ["start"]

    def on_evaluate_end(self, *, algorithm: Any, evaluation_metrics: Any, **kwargs: Any) -> None:
        algorithm.told.append(evaluation_metrics)


@pytest.fixture(scope="module")
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Four steps of two game batches in one process, with a checkpoint after the second."""
    model_dir = request.getfixturevalue("model_dir")
    request.getfixturevalue("cluster")
    run: dict[str, Any] = {"weights": [], "results": [], "games": []}
    run["trigger"] = tmp_path_factory.mktemp("trigger") / "kill"
    rules = partial(lethal_rules, run["trigger"])
    game = {**GAME, "filters": ("past_question",)}
    env = {"world": "mini", "world_options": WORLD, "game": game, "make_rules": rules}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    config.training(**{**LEARNING, "model_dir": model_dir, "minibatches": 2, "lr": 1e-4})
    config.training(warmup_steps=3, round_size=4)
    config.evaluation(evaluation_interval=3, evaluation_duration=4).callbacks(Witness)
    # A runner that is killed stays away: starting one takes longer than all these tests.
    config.fault_tolerance(restart_failed_env_runners=False)
    run["config"] = config
    run["checkpoint"] = tmp_path_factory.mktemp("checkpoint")
    with running(config) as algorithm:
        run["start"] = weights_of(algorithm)
        for step in range(4):
            run["results"].append(algorithm.train())
            run["weights"].append(weights_of(algorithm))
            run["games"].append(algorithm.last_games)
            if step == 1:
                algorithm.save_to_path(run["checkpoint"])
                questions = config.make_world().questions(0, per_group=3)
                run["solved"] = algorithm.solve(questions, temperature=1.0, seed=7)
        run["evaluated"] = algorithm.told
    return run


def test_results_say_what_was_played_and_learnt(uninterrupted: dict[str, Any]) -> None:
    assert get_trainable_cls("SSP") is SSP, "Tune finds it"
    assert distance(uninterrupted["start"], uninterrupted["weights"][0]) > 1e-5
    first = uninterrupted["results"][0]["ssp"]
    assert first["figures"]["games"] - first["figures"]["reused_games"] == 8
    assert first["figures"]["learner_logprob_gap"] < 0.02

    played = tokens = trained = 0
    for result, games in zip(uninterrupted["results"], uninterrupted["games"], strict=True):
        runners, figures = result["env_runners"], result["ssp"]["figures"]
        expected = [(g.proposer_reward or 0) + (g.solver_reward or 0) for g in games]
        assert runners["episode_return_mean"] == pytest.approx(np.mean(expected))
        proposer = runners["agent_episode_returns_mean"]["proposer"]
        assert proposer == pytest.approx(figures["proposer_reward"])

        assert (figures["learner_updates"], figures["learner_skipped_updates"]) == (2, 0)
        played += len(games)
        tokens += sum(t.policy_tokens for game in games for t in game.trajectories)
        trained += figures["learner_trained_tokens"] * 2
        assert runners["num_episodes_lifetime"] == played
        assert result["num_env_steps_sampled_lifetime"] == tokens
        assert result["learners"]["llm"]["num_module_steps_trained_lifetime"] == trained
    assert result["training_iteration"] == 4


def test_evaluation_asks_what_is_never_trained_on(uninterrupted: dict[str, Any]) -> None:
    """After the third step; the first two have no figures yet, the fourth has the third's."""
    *before, third, fourth = [r["evaluation"]["env_runners"] for r in uninterrupted["results"]]
    assert all(np.isnan(figures["episode_return_mean"]) for figures in before)
    assert (third["num_episodes"], third["training_step"]) == (4, 3)
    assert np.mean([*third["accuracy"].values()]) == pytest.approx(third["episode_return_mean"])
    assert fourth == third
    assert uninterrupted["evaluated"] == ["start", {"env_runners": third}]


class Adapted(LLMModule):
    """A linear map before the output layer, all else frozen, and weights of no use to it."""

    def setup(self) -> None:
        super().setup()
        self.lm.requires_grad_(False)
        head = self.lm.get_output_embeddings()
        before = torch.nn.Linear(head.in_features, head.in_features, bias=False)
        torch.nn.init.eye_(before.weight)
        self.lm.set_output_embeddings(torch.nn.Sequential(before, head))
        self.unused = torch.nn.Parameter(torch.zeros(self.model_config["unused"]))


def test_a_module_of_ones_own_is_what_plays(algorithm_config: SSPConfig) -> None:
    spec = RLModuleSpec(module_class=Adapted, model_config={"unused": 3})
    algorithm_config.rl_module(rl_module_spec=spec)
    algorithm_config.training(engine={"dtype": "bfloat16"})
    with running(algorithm_config) as algorithm:
        before, plays = weights_of(algorithm), algorithm.env_runner.engine.model
        figures = algorithm.train()["learners"]["llm"]
        assert figures["logprob_gap"] < 0.02, "the learner's own model has played"
        after, module = weights_of(algorithm), algorithm.get_module()

        moved = {name for name in before if distance({0: before[name]}, {0: after[name]}) > 0}
        assert moved == {"lm_head.0.weight"}, "the rest is frozen"
        assert isinstance(module, Adapted)
        assert plays is algorithm.env_runner.module.lm
        assert plays.config._attn_implementation == "eager"
        rounded = torch.as_tensor(after["lm_head.0.weight"]).bfloat16()
        assert torch.equal(plays.lm_head[0].weight, rounded), "the learner's are float32"
        assert torch.equal(module.lm.lm_head[0].weight, torch.as_tensor(after["lm_head.0.weight"]))
        assert module.unused.shape == (3,)


def test_weights_from_elsewhere_are_learnt_from_and_played_with(
    algorithm_config: SSPConfig,
) -> None:
    with running(algorithm_config) as algorithm:
        given = {"llm": {n: w * 1.01 for n, w in algorithm.get_weights()["llm"].items()}}
        algorithm.set_weights(given)
        present, plays = weights_of(algorithm), algorithm.env_runner.engine.model.state_dict()
        for name, weight in present.items():
            np.testing.assert_array_equal(weight, given["llm"][f"lm.{name}"])
            np.testing.assert_array_equal(weight, np.asarray(plays[name]))

        for call, says in (
            (algorithm.get_policy, r"solve\(questions\)"),
            (partial(algorithm.add_module, "other", RLModuleSpec()), "policies are named in"),
            (partial(algorithm.env_runner.sample, num_episodes=1), r"call train\(\)"),
        ):
            with pytest.raises(UsageError, match=says):
                call()


def test_rllibs_way_to_serve_finds_the_module_of_a_checkpoint(
    uninterrupted: dict[str, Any],
) -> None:
    folder = uninterrupted["checkpoint"] / "learner_group" / "learner" / "rl_module" / "llm"
    module = RLModule.from_checkpoint(folder)
    assert isinstance(module, LLMModule)
    held = {name: weight.numpy() for name, weight in module.lm.state_dict().items()}
    assert distance(held, uninterrupted["weights"][1]) == 0.0
    batch = {"ids": torch.tensor([[5, 6, 7], [5, 6, 0]]), "lengths": torch.tensor([3, 2])}
    with torch.no_grad():
        logits = module.forward_inference(batch)["action_dist_inputs"]
    assert logits.shape == (2, module.vocab_size)


def test_with_overlap_games_are_one_update_old_and_a_resumed_run_learns_from_the_same(
    uninterrupted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = uninterrupted["config"].copy(copy_frozen=False).training(overlap=True)
    with running(config) as algorithm:
        first = algorithm.train()
        assert algorithm.last_games == uninterrupted["games"][0], "the first step cannot overlap"
        assert distance(weights_of(algorithm), uninterrupted["weights"][0]) == 0.0
        algorithm.save_to_path(tmp_path)

        second = algorithm.train()
        games, weights = algorithm.last_games, weights_of(algorithm)
        assert {game.weights_version for game in games} == {0}
        assert distance(weights, uninterrupted["weights"][1]) > 0.0
        assert [r["ssp"]["figures"]["staleness"] for r in (first, second)] == [0.0, 1.0]

        # Env runners that are gone before they have played ahead leave the step undone.
        before = algorithm.get_state(components="none")["self_play"]
        monkeypatch.setattr(algorithm, "_play", Mock(side_effect=ServiceError("engine", "gone")))
        with pytest.raises(ServiceError):
            algorithm.train()
        assert str(algorithm.get_state(components="none")["self_play"]) == str(before)

    with running(config.copy(copy_frozen=False)) as algorithm:
        algorithm.restore_from_path(tmp_path)
        algorithm.train()
        assert algorithm.last_games == games
        assert distance(weights_of(algorithm), weights) == 0.0
        assert algorithm.last_gap.mean < 1e-5, "compared are games of the present weights"

        damage(share := max(tmp_path.glob("learner/*.safetensors")))
        with pytest.raises(ModelError, match=f"{share} is damaged"):
            algorithm.restore_from_path(tmp_path)


def on_cpu(*_: Any) -> torch.device:
    """In place of RLlib's `get_device`, which takes Ray's word for a GPU."""
    return torch.device("cpu")


class LearnerOnCPU(SSPLearner):
    def build(self) -> None:
        torch_learner.get_device = on_cpu
        super().build()


class RunnerOnCPU(SSPEnvRunner):
    """Counts how often its engine was put to sleep."""

    slept = 0

    def make_module(self) -> None:
        env_runner.get_device = on_cpu
        super().make_module()

    def sleep(self) -> None:
        super().sleep()
        self.slept += 1


def gpus_of(actor: Any) -> tuple[int, ...]:
    return tuple(ray.get_gpu_ids())


@pytest.mark.slow
def test_two_runners_and_two_learners_are_as_one_whoever_dies(
    uninterrupted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with other processes than it was begun with. Its 16 GPUs have no CUDA:
    tensors are on the CPU, and the learners, which share the policy, talk by gloo."""
    monkeypatch.setattr(learner_group, "_get_backend_config", lambda _: TorchConfig("gloo"))
    config = uninterrupted["config"].copy(copy_frozen=False)
    config.env_runners(num_env_runners=2, env_runner_cls=RunnerOnCPU)
    config.learners(num_learners=2, sharding="fsdp2").training(learner_class=LearnerOnCPU)
    config.training(engine={"dtype": "float32"})  # on GPUs, runners would play in bfloat16
    runner, learner = SHARED
    config.env_runners(num_gpus_per_env_runner=runner).learners(num_gpus_per_learner=learner)
    questions = config.make_world().questions(0, per_group=3)
    with running(config) as algorithm:
        runners = algorithm.env_runner_group.foreach_env_runner(gpus_of)
        learners = [r.get() for r in algorithm.learner_group.foreach_learner(gpus_of)]
        assert len(set(runners)) == len(set(learners)) == 2, "no two of a kind on one"
        assert set(runners) == set(learners), "one of each on both, and 14 left alone"
        assert algorithm.env_runner is None, "no third copy of the model in the main process"

        algorithm.restore_from_path(uninterrupted["checkpoint"])
        assert distance(weights_of(algorithm), uninterrupted["weights"][1]) == 0.0

        # The runners answer questions in order, greedily or by a seed.
        expected = uninterrupted["solved"]
        records = algorithm.solve(questions, temperature=1.0, seed=7)
        assert [r.trajectories[0].ids for r in records] == [r.trajectories[0].ids for r in expected]
        records, again = algorithm.solve(questions), algorithm.solve(questions, seed=7)
        assert [record.question for record in records] == [question.text for question in questions]
        assert {(record.origin, len(record.trajectories)) for record in records} == {("given", 1)}
        greedy = [[record.trajectories for record in answered] for answered in (records, again)]
        assert greedy[0] == greedy[1]

        # One dies in mid-rollout; the other plays its games as well.
        uninterrupted["trigger"].touch()
        result = algorithm.train()
        assert not uninterrupted["trigger"].exists()
        assert algorithm.env_runner_group.num_healthy_remote_env_runners() == 1
        slept = algorithm.env_runner_group.foreach_env_runner(lambda runner: runner.slept)
        assert slept == [2], "until the first weights came, and while the learners worked"
        assert algorithm.last_games == uninterrupted["games"][2]
        slots = [game.index for game in algorithm.last_games]
        assert slots == list(range(len(slots))), "numbered over all batches"

        expected = uninterrupted["results"][2]
        np.testing.assert_equal(result["env_runners"], expected["env_runners"])
        assert result["evaluation"]["env_runners"] == expected["evaluation"]["env_runners"]
        # Adam and clipping would hide a gradient of the wrong size, but not these figures.
        figures, of_one = (found["ssp"]["figures"] for found in (result, expected))
        assert figures == pytest.approx(of_one, rel=1e-3, abs=1e-6, nan_ok=True)
        weights = weights_of(algorithm)
        assert share_apart(weights, uninterrupted["weights"][2]) < 1e-3
        assert distance(weights, uninterrupted["weights"][2]) <= 2 * 2 * config.lr
        algorithm.save_policy(tmp_path / "policy")
        saved = load_file(tmp_path / "policy" / "model.safetensors")
        assert all(np.array_equal(saved[name], weight) for name, weight in weights.items())

        # The pool of questions outlives all runners.
        state = algorithm.get_state(components="none")["self_play"]
        assert state["strategy"]["strategy"]["pool"]
        assert state["strategy"]["asked"]
        uninterrupted["trigger"].touch()
        with pytest.raises(ServiceError, match="all env runners died"):
            algorithm.train()
        assert algorithm.get_state(components="none")["self_play"] == state

        for actor in algorithm.learner_group._worker_manager.actors().values():
            ray.kill(actor)
        with pytest.raises(LearnerDied, match="a learner died; go on from the last checkpoint"):
            algorithm.save_to_path(tmp_path / "dead")


def test_an_engine_that_fails_voids_games_and_one_that_loses_weights_ends_the_run(
    algorithm_config: SSPConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ServiceError("engine", "gone")

    def lose(state: Any, version: int) -> None:
        engine.weights_version = version

    monkeypatch.setattr("ssp_agents.rllib.algorithm.CHECK_EVERY", 2)
    monkeypatch.setattr("ssp_agents.engines.gap.MOST_NATS", 0.02)
    algorithm_config.training(lr=0.03, strategy="dummy")
    with running(algorithm_config) as algorithm:
        engine, before = algorithm.env_runner.engine, weights_of(algorithm)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "step", fail)
            figures = algorithm.train()["ssp"]["figures"]
        assert figures["void_games"] == figures["games"] == 8
        assert figures["learner_updates"] == 0
        assert distance(weights_of(algorithm), before) == 0.0

        monkeypatch.setattr(engine, "update_weights", lose)
        figures = algorithm.train()["ssp"]["figures"]
        assert (figures["void_games"], figures["learner_updates"]) == (0, 1)
        assert distance(weights_of(algorithm), before) > 0.0
        assert algorithm.last_gap.mean < 1e-4
        with pytest.raises(ServiceError, match="samples from another policy"):
            algorithm.train()


class StopOnce(tune.Callback):
    """Ends Tune after the second step of its first life."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        if result["training_iteration"] == 2 and not self.mark.exists():
            self.mark.touch()
            raise KeyboardInterrupt


@pytest.mark.slow
def test_tune_goes_on_with_a_run_that_was_stopped(model_dir: Path, tmp_path: Path) -> None:
    env = {"world": "mini", "world_options": WORLD, "game": GAME}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    config.training(**{**LEARNING, "model_dir": model_dir, "lr": tune.grid_search([1e-4])})
    run = tune.RunConfig(
        name="tuned",
        storage_path=str(tmp_path),
        stop={"training_iteration": 3},
        callbacks=[StopOnce(tmp_path / "stopped")],
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        verbose=0,
    )
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner("SSP", param_space=config, run_config=run).fit()
    restored = tune.Tuner.restore(str(tmp_path / "tuned"), "SSP")
    (result,) = restored.fit()
    assert (result.error, result.metrics["training_iteration"]) == (None, 3)
