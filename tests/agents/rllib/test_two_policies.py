"""Two policies that learn: each as it would alone, whatever number of learners there is; saved,
resumed and seen as RLlib's users see policies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from learning import Weights, distance, learner_for, some_rows
from playful import GAME, LEARNING, WORLD, make_rules, small_config, tilted
from ray import tune
from ray.rllib.core.rl_module.rl_module import RLModule
from safetensors.torch import load_file
from transformers import Lfm2Config, Lfm2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from ssp_agents import precision
from ssp_agents.models import load_model, state_of
from ssp_agents.precision import passes_dtype
from ssp_agents.rllib import SSP, SSPConfig, SSPLearner
from ssp_agents.rllib.learner import ask_learners
from ssp_agents.rllib.module import MODULE_ID, LLMModule
from ssp_agents.rows import Row
from ssp_agents.shipped.tiny.bootstrap import save_policy, tiny_tokenizer
from ssp_env.errors import ConfigError, RunError

ROLES = ("proposer", "solver")
RATES = {"proposer": 2e-4, "solver": 1e-4}
KINDS = ("full", "adapters")
Updates = list[list[Row]]


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of another size, with the same tokens."""
    config = Lfm2Config(**small_config(len(tiny_tokenizer())).to_dict() | {"intermediate_size": 64})
    directory = tmp_path_factory.mktemp("larger")
    model = Lfm2ForCausalLM._from_config(config, attn_implementation="eager")
    save_policy(tilted(model, 1), directory)
    return directory


@pytest.fixture(scope="module")
def updates(model_dir: Path) -> Updates:
    """Rows of three updates. The second has no proposals, the third only one."""
    first, second, third = (some_rows(model_dir, 6, noise=0.3, seed=seed) for seed in (1, 2, 3))
    return [first, [row for row in second if row.role == "solver"], third[2:]]


def settings(kind: str, larger: Path) -> dict[str, Any]:
    """Two full models of unequal size, or two adapters on one."""
    of_kind = {"proposer_model": str(larger)} if kind == "full" else {"lora_rank": 2}
    return {"policies": "separate", "kl_coeff": 0.1, "proposer_algorithm": "learning:GROUPED"} | {
        "lr": RATES["solver"],
        "proposer_lr": RATES["proposer"],
        **of_kind,
    }


def together(learner: SSPLearner, updates: Updates) -> list[dict[str, Any]]:
    """Updates of both policies; the figures of each."""
    return [
        learner.update(batch=learner.policies.batches(rows)[0], timesteps={"training_step": step})
        for step, rows in enumerate(updates)
    ]


def alone(role: str, model_dir: Path, updates: Updates, **changes: Any) -> SSPLearner:
    """A learner of one role, after the updates that have rows of it."""
    changes = {**changes, "lr": RATES[role], "learning_roles": (role,), "policies": "shared"}
    changes |= {"proposer_lr": None, "proposer_model": ""}
    learner = learner_for(model_dir, **changes)
    for step, rows in enumerate(updates):
        if own := [row for row in rows if row.role == role]:
            (batch,), about = learner.policies.batches(own), {"training_step": step}
            learner.norm = learner.update(batch=batch, timesteps=about)
    return learner


@pytest.mark.parametrize("kind", KINDS)
def test_each_policy_learns_as_it_would_alone(
    kind: str, model_dir: Path, larger: Path, updates: Updates
) -> None:
    changes = settings(kind, larger)
    both = learner_for(model_dir, **changes)
    before = {role: clone(both.policy(role)) for role in ROLES}
    figures = together(both, updates)
    for role in ROLES:
        own = larger if (kind, role) == ("full", "proposer") else model_dir
        one = alone(role, own, updates, **changes)
        assert distance(clone(both.policy(role)), clone(one.policy(MODULE_ID))) == 0.0
        assert distance(clone(both.policy(role)), before[role]) > 5e-5
        assert figures[2][role]["grad_norm"] == one.norm[MODULE_ID]["grad_norm"]
    if kind == "adapters":
        one, other = (both.policy(role).lm.get_input_embeddings().weight for role in ROLES)
        assert one is other, "the base is there once"
        assert torch.equal(one, load_model(model_dir).get_input_embeddings().weight)


def test_a_base_that_is_named_twice_is_there_once(model_dir: Path) -> None:
    again = f"{model_dir}/../{model_dir.name}"
    both = learner_for(model_dir, policies="separate", lora_rank=2, proposer_model=again)
    one, other = (both.policy(role).lm.get_input_embeddings().weight for role in ROLES)
    assert one is other


def test_in_bfloat16_the_rounded_base_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if passes_dtype("bfloat16", torch.device("cpu"), small=False) is None:
        pytest.skip("this machine does not multiply in bfloat16")
    monkeypatch.setattr(precision, "SMALL", 0)
    config = Qwen2Config(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    save_policy(tilted(Qwen2ForCausalLM(config), 0), tmp_path)
    both = learner_for(tmp_path, policies="separate", lora_rank=2, dtype="bfloat16")
    policies = [both.policy(role) for role in ROLES]
    one, other = (policy.lm.model.layers[0].mlp.up_proj.base_layer.weight for policy in policies)
    assert one is other
    assert one.dtype == torch.bfloat16
    assert all(policy.shares_prefix for policy in policies)


def clone(policy: LLMModule) -> Weights:
    return {name: tensor.clone() for name, tensor in state_of(policy).items()}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("sharding", ["ddp", "fsdp2"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_learners_take_the_steps_of_one(
    kind: str, sharding: str, model_dir: Path, larger: Path, updates: Updates
) -> None:
    """One of them has no row of the proposer's in the third update, and passes in step."""
    changes = settings(kind, larger)
    both = learner_for(model_dir, **changes)
    together(both, updates)

    config = SSPConfig().training(model_dir=model_dir, **{**LEARNING, **changes})
    config.learners(num_learners=2, sharding=sharding)
    group = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec())
    try:
        for step, rows in enumerate(updates):
            batches = both.policies.batches(rows, 2)
            group.update(batches=batches, timesteps={"training_step": step})
        published = ask_learners(group, methodcaller("publish", False))
        weights = next(ray.get(found) for found in published if found is not None)
    finally:
        group.shutdown()
    for role in ROLES:
        held = {name: torch.tensor(array) for name, array in weights[role].items()}
        assert distance(held, clone(both.policy(role))) < 1e-6


# -- the algorithm -----------------------------------------------------------------------------


@contextmanager
def running(config: SSPConfig) -> Iterator[SSP]:
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def by_name(agent_id: str, episode: Any, **kwargs: Any) -> str:
    """RLlib's mapping, to policies with names of their own."""
    return {"proposer": "asks", "solver": "answers"}[agent_id]


def two_policies(model_dir: Path, kind: str, larger: Path) -> SSPConfig:
    env = {"world": "mini", "world_options": WORLD, "game": GAME, "make_rules": make_rules}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    config.multi_agent(policies={"asks", "answers"}, policy_mapping_fn=by_name)
    of_kind = {name: value for name, value in settings(kind, larger).items() if name != "policies"}
    of_kind |= {"proposer_algorithm": "rae"}
    return config.training(**{**LEARNING, "model_dir": model_dir, **of_kind})


def weights_of(algorithm: SSP) -> dict[str, Weights]:
    return {name: clone(algorithm.get_module(name)) for name in ("asks", "answers")}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_ends_with_the_same_bits(
    kind: str, model_dir: Path, larger: Path, tmp_path: Path
) -> None:
    config = two_policies(model_dir, kind, larger)
    assert [*config.policies] == ["answers", "asks"]
    with running(config) as algorithm:
        start = weights_of(algorithm)
        algorithm.train()
        algorithm.save_to_path(tmp_path / "checkpoint")
        middle, result = weights_of(algorithm), algorithm.train()
        end, games = weights_of(algorithm), algorithm.last_games
        algorithm.save_policy(tmp_path / "asks", "asks")
        plays = clone(algorithm.env_runner.engine.engines["asks"].model)
        assert distance(plays, {n.removeprefix("lm."): w for n, w in end["asks"].items()}) == 0.0
        assert algorithm.last_gap.mean < 1e-5, "each role's tokens are its own policy's"
        assert algorithm.get_module("llm") is None
        with pytest.raises(ConfigError, match="did you mean 'asks'"):
            algorithm.set_weights({"ask": {}})
        with pytest.raises(ConfigError, match="did you mean 'asks'"):
            algorithm.save_policy(tmp_path / "ask", "ask")

    for name in ("asks", "answers"):
        assert distance(start[name], end[name]) > 5e-5
        assert result["learners"][name]["grad_norm"] > 0
    figures, learners = result["ssp"]["figures"], result["learners"]
    norms = {role: figures[f"learner_{role}_grad_norm"] for role in ROLES}
    assert norms == {
        "proposer": learners["asks"]["grad_norm"],
        "solver": learners["answers"]["grad_norm"],
    }
    assert figures["learner_grad_norm"] == pytest.approx(math.hypot(*norms.values()))
    returns = result["env_runners"]["module_episode_returns_mean"]
    assert returns["asks"] == pytest.approx(figures["proposer_reward"])

    folder = tmp_path / "checkpoint" / "learner_group" / "learner" / "rl_module" / "answers"
    assert distance(clone(RLModule.from_checkpoint(folder)), middle["answers"]) == 0.0
    if kind == "full":
        saved = load_file(tmp_path / "asks" / "model.safetensors")
        assert distance(saved, {n: end["asks"][f"lm.{n}"] for n in saved}) == 0.0

    with running(config.copy(copy_frozen=False)) as algorithm:
        algorithm.restore_from_path(tmp_path / "checkpoint")
        algorithm.train()
        assert algorithm.last_games == games
        for name, weights in weights_of(algorithm).items():
            assert distance(weights, end[name]) == 0.0


@pytest.mark.usefixtures("cluster")
def test_a_checkpoint_of_one_policy_is_not_taken_for_two(
    model_dir: Path, larger: Path, tmp_path: Path, algorithm_config: SSPConfig
) -> None:
    with running(algorithm_config) as algorithm:
        algorithm.save_to_path(tmp_path)
    config = two_policies(model_dir, "adapters", larger)
    with (
        running(config) as algorithm,
        pytest.raises(RunError, match="other policies than asks, an"),
    ):
        algorithm.restore_from_path(tmp_path)


@pytest.mark.usefixtures("cluster")
def test_a_policy_that_is_not_to_be_trained_stays(model_dir: Path, larger: Path) -> None:
    config = two_policies(model_dir, "full", larger).training(proposer_lr=None)
    config.multi_agent(policies_to_train=["answers"])
    with running(config) as algorithm:
        start = weights_of(algorithm)
        result = algorithm.train()
        assert {*result["learners"]} - {"__all_modules__"} == {"answers"}
        end = weights_of(algorithm)
        roles = {
            trajectory.role for game in algorithm.last_games for trajectory in game.trajectories
        }
    assert distance(start["asks"], end["asks"]) == 0.0
    assert distance(start["answers"], end["answers"]) > 5e-5
    assert roles == {"proposer", "solver"}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_tune_tries_both(model_dir: Path, tmp_path: Path) -> None:
    env = {"world": "mini", "world_options": WORLD, "game": GAME}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    config.training(**{**LEARNING, "model_dir": model_dir, "lora_rank": 2})
    config.training(policies=tune.grid_search(["shared", "separate"]))
    stop = tune.RunConfig(storage_path=str(tmp_path), stop={"training_iteration": 1}, verbose=0)
    shared, separate = tune.Tuner("SSP", param_space=config, run_config=stop).fit()
    assert {*shared.metrics["learners"]} - {"__all_modules__"} == {MODULE_ID}
    assert {*separate.metrics["learners"]} - {"__all_modules__"} == {*ROLES}
