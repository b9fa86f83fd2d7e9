"""Settings of a run: presets, overrides, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import ssp

from agents.config import EngineConfig
from experiments.config import (
    ComputeConfig,
    RunConfig,
    load_preset,
    make_config,
    presets,
)
from experiments.run.checks import check_learning
from experiments.run.cluster import algorithm_config
from ssp_env.config import Settings, section_of, setting_docs
from ssp_env.errors import ConfigError
from ssp_env.game.config import DEFAULT_FILTERS, MINI_GAME


def config_of(*assignments: str, preset: str = "tiny") -> RunConfig:
    return make_config(load_preset(preset), set=assignments)


# -- presets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_preset_can_be_trained_with(name: str, policy: Path) -> None:
    config = make_config({**load_preset(name), "model": str(policy)})
    assert config.preset == name
    check_learning(config)
    algorithm_config(config).validate()


def test_paper_preset_is_the_paper_s_table() -> None:
    config = config_of(preset="paper-7b")
    table = {
        "batch size": config.learning.batch_size,
        "mini-batch size": config.learning.batch_size // config.learning.minibatches,
        "learning rate": config.learning.lr,
        "warm-up steps": config.learning.warmup_steps,
        "prompt tokens": config.game.max_prompt_tokens,
        "response tokens": config.game.max_response_tokens,
        "KL coefficient": config.learning.kl_coeff,
        "solver trajectories": config.game.attempts,
        "proposer trajectories": config.game.proposals,
        "documents a search": config.game.top_k,
        "searches": config.game.max_searches,
        "noise documents": config.game.noise_documents,
        "batch strategy": config.learning.strategy,
        "training temperature": config.learning.temperature,
        "evaluation temperature": config.evaluation.temperature,
        "algorithms": (config.learning.proposer_algorithm, config.learning.solver_algorithm),
        "proposer reward": (config.game.proposer_reward, config.game.invalid_reward),
        "both losses weigh the same": config.learning.proposer_weight,
        "clipping (veRL's default)": (config.learning.clip_low, config.learning.clip_high),
        "advantage of equation 4": (
            config.learning.std_normalise,
            config.learning.solver_aggregation,
        ),
        "a scale for both losses (not equation 5)": config.learning.proposer_aggregation,
        "verifier and judge": (config.game.verifier, config.openai.model, config.openai.judge),
        "prompts": config.game.prompts,
        "questions of a benchmark": config.evaluation.per_group,
    }
    assert table == {
        "batch size": 256,
        "mini-batch size": 128,
        "learning rate": 1e-6,
        "warm-up steps": 5,
        "prompt tokens": 4096,
        "response tokens": 8192,
        "KL coefficient": 0.01,
        "solver trajectories": 5,
        "proposer trajectories": 1,
        "documents a search": 3,
        "searches": 10,
        "noise documents": 4,
        "batch strategy": "periodic_reset",
        "training temperature": 1.0,
        "evaluation temperature": 0.0,
        "algorithms": ("reinforce", "grpo"),
        "proposer reward": ("1-p", 0.0),
        "both losses weigh the same": 1.0,
        "clipping (veRL's default)": (0.2, 0.2),
        "advantage of equation 4": (False, "sequence"),
        "a scale for both losses (not equation 5)": "sequence",
        "verifier and judge": ("openai", "Qwen/Qwen2.5-32B-Instruct", True),
        "prompts": "paper",
        "questions of a benchmark": 500,
    }


CODE = {
    "preset": ("paper-7b", "paper-7b-code"),
    "checkpoint_every": (10, 5),
    "game.max_searches": (10, 9),
    "game.noise_documents": (4, 24),
    "game.min_question_words": (0, 10),
    "game.min_searches": (1, 2),
    "game.filters": (DEFAULT_FILTERS, (*DEFAULT_FILTERS, "repeated_query")),
    "game.verification_prompt": ("solver", "documents"),
    "learning.clip_high": (0.2, 0.285),
    "learning.std_normalise": (False, True),
    "learning.proposer_aggregation": ("sequence", "token"),
    "learning.solver_aggregation": ("sequence", "token"),
    "evaluation.every": (10, 5),
}
"""What the paper's text has, and its released code."""


def test_preset_of_the_paper_s_code_differs_from_that_of_its_text_in_these_points() -> None:
    def flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
        found = {}
        for name, value in values.items():
            found |= (
                flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
            )
        return found

    text, code = (
        flat(config_of(preset=name).model_dump()) for name in ("paper-7b", "paper-7b-code")
    )
    assert {name: (text[name], code[name]) for name in text if text[name] != code[name]} == CODE


def test_tiny_preset_plays_the_mini_game() -> None:
    # The policy that ships was made for exactly this game.
    assert config_of().game == MINI_GAME


def test_search_is_named_in_one_text_and_told_more_of() -> None:
    config = config_of("search=http://127.0.0.1:9", "search.server.token_env=TOKEN")
    assert config.search.server is not None
    assert (config.search.server.url, config.search.server.token_env) == (
        "http://127.0.0.1:9",
        "TOKEN",
    )
    moved = make_config(config.model_dump(mode="json"), search="http://127.0.0.1:10").search.server
    assert moved is not None
    assert (moved.url, moved.token_env) == ("http://127.0.0.1:10", "TOKEN")
    elsewhere = make_config(config.model_dump(mode="json"), search="some/where").search
    assert (elsewhere.index, elsewhere.server) == ("some/where", None)


# -- overrides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "read"),
    [
        ("steps=7", lambda c: c.steps == 7),
        ("model=some/where", lambda c: c.model_dir == Path("some/where")),
        ("learning.lr=1e-4", lambda c: c.learning.lr == 1e-4),
        ("learning.learning_roles=[solver]", lambda c: c.learning.learning_roles == ("solver",)),
        ("game.filters=[spoiler, no_search]", lambda c: c.game.filters == ("spoiler", "no_search")),
        ("game.tags.search=find", lambda c: c.game.tags.search == "find"),
        ("world_options.one_to_many=true", lambda c: c.world_options == {"one_to_many": True}),
    ],
)
def test_override_reaches_its_setting(assignment: str, read: Any) -> None:
    assert read(config_of(assignment))


@pytest.mark.parametrize(
    ("assignment", "field", "fix"),
    [
        ("stpes=3", "stpes", "did you mean 'steps'"),
        ("lr=1", "lr", "did you mean learning.lr?"),
        ("game.tags.serch=find", "game.tags.serch", "did you mean 'search' or 'answer'?"),
        ("preset=h200", "preset", "--preset"),
        ("steps", "--set", "section.field=value"),
        ("learning.lr=[1", "learning.lr", "not YAML"),
        ("game=3", "game", "dictionary"),
        ("learning.lr=fast", "learning.lr", "number"),
        ("game.verifier=wrld", "game.verifier", "did you mean 'world'?"),
        ("learning.decay_steps=79", "learning.decay_steps", "at least 80"),
        ("evaluation.temperature=.inf", "evaluation.temperature", "finite"),
    ],
)
def test_mistake_is_named_with_its_fix(assignment: str, field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(assignment)
    assert raised.value.field == field
    assert fix in raised.value.fix


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        load_preset("tniy")


def test_mistake_is_one_line_to_the_user(tmp_path: Path) -> None:
    result = ssp("train", "--set", "learning.lrr=1", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr
        == "ssp: learning.lrr = 1: no such setting; did you mean 'lr' or 'lora_rank'?\n"
    )
    assert not list(tmp_path.iterdir())


# -- the model behind an API -------------------------------------------------------------------

SERVED = {"base_url": "http://127.0.0.1:8000/v1", "model": "m"}


@pytest.mark.parametrize(
    ("assignment", "field"),
    [
        ("openai.base_url=localhost", "openai.base_url"),
        ("openai.api_key_env=sk-123", "openai.api_key_env"),
    ],
)
def test_api_s_mistakes_are_named_as_the_user_wrote_them(assignment: str, field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(
            "openai.judge=true",
            *(f"openai.{name}={value}" for name, value in SERVED.items()),
            assignment,
        )
    assert raised.value.field == field


# -- what RLlib gets ---------------------------------------------------------------------------


def test_every_setting_of_compute_reaches_rllib() -> None:
    compute = ComputeConfig(
        env_runners=2, learners=4, gpus_per_env_runner=0.5, gpus_per_learner=0.25, threads=3
    )
    made = algorithm_config(RunConfig(compute=compute))
    assert (made.num_env_runners, made.num_gpus_per_env_runner, made.num_cpus_per_env_runner) == (
        2,
        0.5,
        3,
    )
    # RLlib refuses a learner with both GPUs and several CPUs.
    assert (made.num_learners, made.num_gpus_per_learner, made.num_cpus_per_learner) == (4, 0.25, 1)
    assert algorithm_config(RunConfig(compute=ComputeConfig(threads=3))).num_cpus_per_learner == 3
    assert not made.is_sharded
    assert algorithm_config(RunConfig(compute=compute.replace(sharding="fsdp2"))).is_sharded

    engine = EngineConfig(kind="vllm", memory=0.6, max_gap=0.2)
    assert algorithm_config(RunConfig(engine=engine)).engine_config() == engine


def test_every_setting_of_learning_and_game_reaches_rllib() -> None:
    config = config_of(
        "learning.lr=0.5",
        "game.noise_documents=2",
        "world_options.seed=4",
        "compute.overlap=true",
    )
    made = algorithm_config(config)
    assert made.overlap
    assert made.learning() == config.learning
    assert made.game() == config.game
    assert (made.env_config["world"], made.env_config["world_options"]) == ("mini", {"seed": 4})
    assert made.seed == config.seed


def test_settings_that_do_not_go_together_are_named_as_ours(policy: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        check_learning(
            config_of("learning.batch_size=9", "compute.env_runners=2", f"model={policy}")
        )
    assert raised.value.field == "learning.round_size"

    with pytest.raises(ConfigError, match="importance_cap") as raised:
        check_learning(config_of("compute.overlap=true", "learning.importance_cap=null"))
    assert raised.value.field == "compute.overlap"

    with pytest.raises(ConfigError, match="give two learners or more"):
        check_learning(config_of("compute.sharding=fsdp2"))


def test_every_setting_is_documented() -> None:
    def check(kind: type[Settings]) -> None:
        assert setting_docs(kind).keys() >= kind.model_fields.keys() - inherited(kind), kind
        for field in kind.model_fields.values():
            if (section := section_of(field)) is not None:
                check(section)

    def inherited(kind: type[Settings]) -> set[str]:
        return {n for base in kind.__mro__[1:] for n in getattr(base, "model_fields", ())}

    check(RunConfig)
