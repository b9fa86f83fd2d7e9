"""Settings of a run: presets, overrides, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssp_agents.config import ComputeConfig, EngineConfig
from ssp_env.errors import ConfigError
from ssp_env.game.prompts import tags_of
from ssp_env.judge.judges import BY_RULES, name_of
from ssp_env.tokenizers import WordTokenizer
from ssp_experiments.config import RunConfig, flat, shipped
from ssp_experiments.options import Chosen, Verified
from ssp_experiments.run.checks import check_settings
from ssp_experiments.run.cluster import algorithm_config
from ssp_experiments.run.rules import build_rules, world_of


def config_of(*assignments: str, preset: str = "tiny") -> RunConfig:
    return Chosen(preset=preset, set=list(assignments)).config()


# -- presets -----------------------------------------------------------------------------------


def test_the_preset_suits_the_world() -> None:
    """Rules of the mini world cut documents of real text off."""
    suited = {"mini": "tiny", "small": "tiny", "wiki-sentences": "wiki-small", "files": "wiki"}
    assert {world: Chosen(world=world).named_preset() for world in suited} == suited
    by_set = Chosen(set=["world=wiki-mini"])
    assert by_set.config().game.max_document_tokens == 256
    assert Chosen(preset="tiny", world="wiki-mini").config().game.max_document_tokens == 64


def test_a_section_that_is_given_keeps_the_preset_s_other_fields() -> None:
    changed = config_of("learning={lr: 0.01}", "learning.kl_coeff=0.5").learning
    preset = config_of().learning
    assert changed == preset.replace(lr=0.01, kl_coeff=0.5)
    with pytest.raises(ConfigError, match="other options"):
        Verified(verifier="none", set=["game={verifier: policy}"]).config()


@pytest.mark.parametrize("name", shipped("presets"))
def test_preset_can_be_trained_with(
    name: str, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ssp_experiments.run.checks.find_spec", lambda _: True
    )  # vLLM, which large ones want
    config = config_of(f"model={policy}", preset=name)
    check_settings(config)
    algorithm_config(config).validate()


PAPER = {
    "learning.batch_size": 256,
    "learning.minibatches": 2,  # mini-batches of 128
    "learning.lr": 1e-6,
    "learning.warmup_steps": 5,
    "game.max_prompt_tokens": 4096,
    "game.max_response_tokens": 8192,
    "learning.kl_coeff": 0.01,
    "game.attempts": 5,
    "game.proposals": 1,
    "game.top_k": 3,
    "game.max_searches": 10,
    "game.noise_documents": 4,
    "learning.strategy": "periodic_reset",
    "learning.temperature": 1.0,
    "learning.proposer_algorithm": "reinforce",
    "learning.solver_algorithm": "grpo",
    "game.proposer_reward": "1-p",
    "game.invalid_reward": 0.0,
    "learning.proposer_weight": 1.0,  # both losses weigh the same
    "learning.clip": (0.2, 0.2),  # veRL's default
    "learning.std_normalise": False,  # equation 4
    "learning.solver_aggregation": "sequence",
    "learning.proposer_aggregation": "sequence",  # a scale for both losses, not equation 5
    "game.verifier": "openai",
    "openai.model": "Qwen/Qwen2.5-32B-Instruct",
    "judge": "openai",
    "game.prompts": "few-shot",  # the paper's own set is there by name
    "per_group": 500,
}
"""The paper's table of hyper-parameters, and what its text says besides."""


def test_paper_preset_is_the_paper_s_table() -> None:
    settings = flat(config_of(preset="paper-7b").model_dump())
    assert {name: settings[name] for name in PAPER} == PAPER


@pytest.mark.parametrize("judge", BY_RULES)
def test_a_judge_by_rules_is_chosen_by_its_name(judge: str) -> None:
    config = config_of(f"judge={judge}")
    world = world_of(config)
    tokenizer = WordTokenizer(world.vocabulary, tags_of(config.game.prompts).all())
    assert name_of(build_rules(config, world, tokenizer, config.game).judge) == judge


# -- what RLlib gets ---------------------------------------------------------------------------


def test_settings_reach_rllib() -> None:
    compute = ComputeConfig(env_runners=2, learners=4, gpus="own", tensor_parallel=2, threads=3)
    made = algorithm_config(RunConfig(compute=compute))
    assert (made.num_env_runners, made.num_gpus_per_env_runner) == (2, 2)
    assert made.num_cpus_per_env_runner == made.num_cpus_for_main_process == 3
    # RLlib refuses a learner with both GPUs and several CPUs.
    assert (made.num_learners, made.num_gpus_per_learner, made.num_cpus_per_learner) == (4, 1, 1)
    for gpus in ("none", "own", "shared"):
        assert algorithm_config(RunConfig(compute=ComputeConfig(gpus=gpus))).gpus == gpus
    assert algorithm_config(RunConfig(compute=ComputeConfig(threads=3))).num_cpus_per_learner == 3
    assert not made.is_sharded
    assert algorithm_config(RunConfig(compute=compute.replace(sharding="fsdp2"))).is_sharded

    engine = EngineConfig(kind="vllm", memory=0.6)
    made = algorithm_config(RunConfig(engine=engine, seed=3, compute={"overlap": True}))
    assert (made.engine_config(), made.overlap, made.seed) == (engine, True, 3)
