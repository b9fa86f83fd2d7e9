"""Settings as RLlib's users give them: what works, what is refused and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from playful import WORLD, make_rules
from ray import tune
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.policy import PolicySpec
from ray.tune.search.variant_generator import generate_variants

from ssp_agents.config import SHARED
from ssp_agents.models import shipped_directory
from ssp_agents.rllib import SSPConfig, SSPLearner
from ssp_agents.rllib.env_runner import SSPEnvRunner
from ssp_agents.rllib.module import LLMModule
from ssp_env.errors import ConfigError
from ssp_env.types import Question
from ssp_env.worlds.mini import MiniWorld

Change = Callable[[SSPConfig], object]


class Own(LLMModule):
    """A module of the user's."""


class Episodic(RLlibCallback):
    """Waits for what never comes."""

    def on_episode_end(self, **kwargs: Any) -> None: ...


class Clipping(SSPLearner):
    """Overrides a hook that an update does without."""

    def postprocess_gradients(self, gradients_dict: Any) -> Any:
        return {name: gradient * 0 for name, gradient in gradients_dict.items()}


def gpus(runners: int, learners: int, *of_each: float) -> Change:
    """Env runners and learners, and the GPUs of each."""

    def change(config: SSPConfig) -> None:
        config.env_runners(num_env_runners=runners, num_gpus_per_env_runner=of_each[0])
        config.learners(num_learners=learners, num_gpus_per_learner=of_each[1])

    return change


def mapped_to(solver: str, **besides: Any) -> Change:
    """Two policies, of which this one plays the solver."""

    def change(config: SSPConfig) -> None:
        names = {"proposer": "proposer", "solver": solver}
        config.multi_agent(
            policies={"proposer", "solver"},
            policy_mapping_fn=lambda agent_id, episode, **kwargs: names[agent_id],
            **besides,
        )

    return change


def overriding(policy: str, **settings: Any) -> Change:
    """Two policies, of which this one has settings of its own."""

    def change(config: SSPConfig) -> None:
        config.training(policies="separate")
        config.rl_module(algorithm_config_overrides_per_module={policy: settings})

    return change


def frozen_proposer(config: SSPConfig) -> None:
    """Two policies, of which the solver's alone learns."""
    mapped_to("solver", policies_to_train=["solver"])(config)


def named_for(policy: str) -> Change:
    """Two policies, and a module of this name."""

    def change(config: SSPConfig) -> None:
        config.training(policies="separate")
        spec = MultiRLModuleSpec(rl_module_specs={policy: RLModuleSpec(module_class=LLMModule)})
        config.rl_module(rl_module_spec=spec)

    return change


def overriding_both_ways(config: SSPConfig) -> None:
    overriding("proposer", lr=1e-4)(config)
    config.training(proposer_lr=1e-3)


def overriding_the_frozen(config: SSPConfig) -> None:
    overriding("proposer", lr=1e-4)(config)
    config.multi_agent(policies_to_train=["solver"])


def names_of_my_own(config: SSPConfig) -> None:
    names = {"proposer": "asks", "solver": "answers"}
    config.multi_agent(
        policies={"asks", "answers"}, policy_mapping_fn=lambda agent_id, *_, **__: names[agent_id]
    )


OWN = RLModuleSpec(module_class=Own)
WIKI = "wiki-sentences"
ASKED = Question("a", "what is the twin of a ?", ("Arra",))
REFUSED: list[tuple[str, Change, str]] = [
    ("env_config.wurld", lambda c: c.environment(env_config={"wurld": 1}), "'world'"),
    (
        "game.attempts",
        lambda c: c.environment(env_config={"game": {"attempts": 1}}).training(
            solver_algorithm="learning:GROUPED"
        ),
        "learning:GROUPED compares attempts",
    ),
    ("model_dir", lambda c: c.environment(env_config={"world": "wiki-mini"}), "no policy ships"),
    ("training.lrr", lambda c: c.training(lrr=1), "'lr'"),
    (
        "training.noise_documents",
        lambda c: c.training(noise_documents=0),
        r"env_config=\{'game': \{'noise_documents': 0\}\}",
    ),
    (
        "env_config.noise_documents",
        lambda c: c.environment(env_config={"noise_documents": 0}),
        r"env_config=\{'game': \{'noise_documents': 0\}\}",
    ),
    ("training.lr", lambda c: c.training(lr=-1), "RLlib takes this one for"),
    ("compute.overlap", lambda c: c.training(overlap=True, importance_cap=None), "update old"),
    ("rl_module_spec", lambda c: c.training(engine="vllm").rl_module(rl_module_spec=OWN), "plays"),
    ("learner_class", lambda c: c.learners(learner_class=Clipping), "never calls postprocess_grad"),
    ("callbacks_class", lambda c: c.callbacks(Episodic), "never calls on_episode_end"),
    (
        "num_gpus_per_env_runner, num_gpus_per_learner",
        gpus(2, 2, 1, 0.5),
        "give 1 and 1 for GPUs of their own, or 0.6 and 0.4",
    ),
    ("compute.gpus", gpus(2, 1, *SHARED), "give 2 of each, or GPUs of their own"),
    ("compute.gpus", gpus(0, 2, 1, 1), "give at least one env runner and one learner"),
    ("compute.tensor_parallel", gpus(2, 2, 2, 1), "only vLLM on GPUs of its own"),
    ("training.policies", lambda c: c.training(policies="seperate"), "'separate'"),
    (
        "policies.solver",
        lambda c: c.multi_agent(policies={"solver": PolicySpec(config={"lr": 1.0})}),
        "give names alone",
    ),
    ("policy_mapping_fn", mapped_to("solvr"), "nobody plays the solver; did you mean 'solver'"),
    ("policies", mapped_to("proposer"), "gives it no role"),
    (
        "policy_mapping_fn",
        lambda c: c.multi_agent(policies={"asks", "answers"}),
        "give a function from proposer and solver to answers or asks",
    ),
    (
        "policies",
        lambda c: c.multi_agent(policies="separate"),
        r"or set training\(policies='separate'\)",
    ),
    (
        "training.policies",
        lambda c: (names_of_my_own(c), c.training(policies="separate")),
        r"multi_agent\(\) has named answers and asks",
    ),
    ("policies_to_train", mapped_to("solver", policies_to_train=["solvr"]), "mean 'solver'"),
    ("policies_to_train", mapped_to("solver", policies_to_train="solver"), r"list: \['solver'\]"),
    (
        "policies_to_train",
        mapped_to("solver", policies_to_train=[]),
        "nothing would learn: name proposer or solver",
    ),
    (
        "learning.proposer_lr",
        lambda c: (frozen_proposer(c), c.training(proposer_lr=1e-3)),
        "the proposer does not learn",
    ),
    ("rl_module_spec", named_for("solvr"), "mean 'solver'"),
    ("algorithm_config_overrides_per_module.proposer.lr", overriding_both_ways, "leave one of the"),
    ("algorithm_config_overrides_per_module.proposer", overriding_the_frozen, "only solver learns"),
    (
        "algorithm_config_overrides_per_module.solver.learning_rate",
        overriding("solver", learning_rate=1e-4),
        "did you mean 'lr'",
    ),
    (
        "algorithm_config_overrides_per_module.solver.lr",
        overriding("solver", lr=-1e-4),
        "greater than or equal to 0",
    ),
    ("algorithm_config_overrides_per_module", overriding("solvr", lr=1.0), "mean 'solver'"),
    (
        "algorithm_config_overrides_per_module.solver.batch_size",
        overriding("solver", batch_size=1),
        "a policy alone may have lr,",
    ),
    (
        "learning.proposer_model",
        lambda c: c.training(policies="separate", proposer_model=shipped_directory(WIKI)),
        "its tokenizer is not that of",
    ),
    ("learning.proposer_lr", lambda c: c.training(proposer_lr=1e-3), "both roles share a policy"),
    ("learning.policies", lambda c: c.training(policies="separate", engine="vllm"), "one model"),
    (
        "learning.partner",
        lambda c: c.training(policies="separate", partner="p", learning_roles=("solver",)),
        "both roles have a policy already",
    ),
    (
        "learning.policies",
        lambda c: c.training(policies="separate", questions=[ASKED]),
        "no proposer plays",
    ),
]
"""Field that is refused, a change that makes it so, and words of the fix."""


@pytest.mark.parametrize(("field", "change", "says"), REFUSED)
def test_settings_that_cannot_work_are_named(field: str, change: Change, says: str) -> None:
    def use() -> None:
        config = SSPConfig()
        change(config)
        config.validate()

    with pytest.raises(ConfigError, match=says) as caught:
        use()
    assert caught.value.field == field


def test_without_a_model_the_policy_that_ships_for_the_world_learns() -> None:
    config = SSPConfig().environment(env_config={"world": "wiki-sentences"})
    config.validate()
    assert config.model_dir == str(shipped_directory("wiki-sentences"))


def test_a_policy_may_have_a_learning_rate_of_its_own(algorithm_config: SSPConfig) -> None:
    algorithm_config.training(policies="separate", lr=1e-3, proposer_lr=1e-4)
    rates = {n: s.lr for n, s in algorithm_config.resolved_policies().trained.items()}
    assert rates == {"proposer": 1e-4, "solver": 1e-3}
    own = {"solver": SSPConfig.overrides(lr=1e-2)}
    algorithm_config.rl_module(algorithm_config_overrides_per_module=own).validate()
    assert algorithm_config.resolved_policies().trained["solver"].lr == 1e-2


def test_tune_crosses_settings_of_the_game_and_of_learning() -> None:
    """As docs/sweeps.md shows it; the values of the grid come by ``update_from_dict``."""
    config = SSPConfig().environment(
        env_config={"world": "mini", "game": {"noise_documents": tune.grid_search([0, 4])}}
    )
    config.training(
        strategy=tune.grid_search(["dummy", "reuse"]),
        solver_algorithm=tune.grid_search(["grpo", "reinforce"]),
    )
    resolved = [spec for _, spec in generate_variants(config.to_dict())]
    made = [SSPConfig().update_from_dict(spec) for spec in resolved]
    for one in made:
        one.validate()
    crossed = {
        (one.game().noise_documents, one.strategy, one.learning().solver_algorithm) for one in made
    }
    assert crossed == set(product((0, 4), ("dummy", "reuse"), ("grpo", "reinforce")))


def test_tune_may_choose_policies_again(algorithm_config: SSPConfig) -> None:
    """A search space holds no names yet."""
    for kinds in (["shared"], ["shared", "separate"]):
        algorithm_config.training(policies=tune.grid_search(kinds))
    assert algorithm_config.policies == {"grid_search": ["shared", "separate"]}


def test_a_config_survives_its_dict(algorithm_config: SSPConfig) -> None:
    algorithm_config.training(kl_coeff=0.125, policies="separate", lora_rank=2)
    algorithm_config.multi_agent(policies_to_train=["solver"])
    copy = SSPConfig().update_from_dict(algorithm_config.to_dict())
    assert copy.learning() == algorithm_config.learning()
    assert copy.game() == algorithm_config.game()
    assert copy.model_dir == algorithm_config.model_dir
    copy.validate()


def test_a_config_comes_back_from_tunes_json() -> None:
    """Which has no tuples: ``Tuner.restore`` reads it."""
    held = json.loads(json.dumps({"policies": SSPConfig().policies, "clip": (0.1, 0.2)}))
    config = SSPConfig().update_from_dict({"env_config": {"world": "mini"}, **held})
    config.validate()
    assert config.learning().clip == (0.1, 0.2)


def test_what_is_played_is_the_world_of_the_rules(algorithm_config: SSPConfig) -> None:
    other = MiniWorld(seed=9, entities=50)
    env = {"make_rules": lambda world, tokenizer, game: make_rules(other, tokenizer, game)}
    algorithm_config.environment(env_config={**algorithm_config.env_config, **env})
    state = algorithm_config.batch_strategy().get_state()
    sample = SSPEnvRunner(config=algorithm_config).sample(step=0, num_games=4, strategy=state)
    asked_about = {record.answer for record in sample.records}
    assert asked_about <= {truth.answer for truth in other.answers}
    assert not asked_about <= {truth.answer for truth in MiniWorld(**WORLD).answers}

    algorithm_config.evaluation(evaluation_duration=4)
    evaluated = algorithm_config.evaluation_questions()
    assert {q.text for q in evaluated} <= {q.text for q in other.questions(0, per_group=4)}

    # Learning goes by the settings, so rules with other ones would be weighted wrongly.
    env = {"make_rules": lambda world, words, game: make_rules(world, words, game.replace(top_k=9))}
    algorithm_config.environment(env_config={**algorithm_config.env_config, **env})
    with pytest.raises(ConfigError, match="give it as game"):
        SSPEnvRunner(config=algorithm_config)
