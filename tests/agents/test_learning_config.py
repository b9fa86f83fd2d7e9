"""Every setting of learning does something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from learning import learner_for, some_rows, update, weights_of
from playful import GAME, LEARNING

from ssp_agents.config import LearningConfig
from ssp_agents.models import tiny_directory
from ssp_agents.precision import passes_dtype
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.env_runner import SSPEnvRunner, game_batches_of
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.rows import rows_of, split_updates, with_advantages, with_loss_weights
from ssp_env.game.batch import GameBatch
from ssp_env.game.strategies import update_strategy
from ssp_env.types import Question

Settings = dict[str, Any]
ASKED = tuple(Question(name, f"what is the twin of {name} ?", ("Arra",)) for name in "abc")
Probe = Callable[[SSPConfig, GameBatch, Settings], Any]


def learnt(config: SSPConfig, played: GameBatch, settings: Settings) -> Any:
    """Two updates on rows whose behaviour was another policy's: weights, figures, and how many
    passes through a layer they took."""
    learner, passes = learner_for(config.model_dir, **settings), []
    inner = learner.module[MODULE_ID].lm.model.layers[0].feed_forward
    inner.register_forward_pre_hook(lambda *_: passes.append(1))
    rows = some_rows(config.model_dir, 6, noise=0.5)
    figures = [update(learner, rows, step) for step in range(2)]
    total = sum(float(tensor.double().abs().sum()) for tensor in weights_of(learner).values())
    return total, [(f["loss"], f["kl"]) for f in figures], len(passes)


def learnt_by_each(config: SSPConfig, played: GameBatch, settings: Settings) -> Any:
    """An update of each policy: its weights."""
    learner = learner_for(config.model_dir, **settings)
    (batch,) = learner.policies.batches(some_rows(config.model_dir))
    learner.update(batch=batch, timesteps={"training_step": 0})
    tensors = {name: learner.policy(name).state_dict().values() for name in learner.updates}
    return {n: sum(float(t.double().abs().sum()) for t in held) for n, held in tensors.items()}


def dealt(config: SSPConfig, played: GameBatch, settings: Settings) -> Any:
    """The rows of each update of a batch of games that was played."""
    learning = config.training(**settings).learning()
    rows = with_advantages(rows_of(played.games, learning), learning)
    updates = []
    for part, size in split_updates(rows, learning):
        weighted = with_loss_weights(part, learning, size, config.game())
        updates.append(
            [(r.role, r.game, r.advantage, r.weight, r.credit is None) for r in weighted]
        )
    return updates


def played_on(config: SSPConfig, played: GameBatch, settings: Settings) -> Any:
    """The games of two steps, with all tokens."""
    learning = config.training(**{"batch_size": 3, **settings}).learning()
    runner, strategy, games = SSPEnvRunner(config=config), config.batch_strategy(), []
    for step in range(2):
        state = strategy.get_state()
        tasks = game_batches_of(step, learning, config.game(), config.given().of_step(step))
        samples = [runner.sample(**task, strategy=state) for task in tasks]
        games += [
            (record.origin, record.question, [t.ids for t in record.trajectories])
            for sample in samples
            for record in sample.records
        ]
        update_strategy(strategy, [sample.verified for sample in samples])
    return games


def verified_by(config: SSPConfig, played: GameBatch, settings: Settings) -> Any:
    """Weights of a frozen verifier after a step."""
    config.env_config["game"] = {**GAME, "verifier": "frozen"}
    algorithm = config.training(**settings).build_algo()
    algorithm.train()
    weights = algorithm.env_runner.engine.engines["verifier"].model.state_dict().values()
    algorithm.stop()
    return sum(float(tensor.double().abs().sum()) for tensor in weights)


KNOBS: dict[str, tuple[Any, Probe] | tuple[Any, Probe, Settings]] = {
    "batch_size": (2, played_on),
    "round_size": (2, played_on),
    "minibatches": (2, dealt),
    "questions": (ASKED, played_on),
    "given_share": (1 / 3, played_on, {"questions": ASKED}),
    "learning_roles": (("solver",), dealt),
    "policies": ("separate", learnt_by_each),
    "proposer_model": (str(tiny_directory()), learnt_by_each, {"policies": "separate"}),
    "proposer_lr": (1e-4, learnt_by_each, {"policies": "separate"}),
    "partner": (str(tiny_directory()), played_on, {"learning_roles": ("proposer",)}),
    "verifier_model": (str(tiny_directory()), verified_by),
    "verifier_refresh": (1, verified_by),
    "proposer_algorithm": ("grpo", learnt),
    "solver_algorithm": ("reinforce", learnt),
    "credit": (lambda game, trajectory, turns: [0.5] * turns, dealt),
    "proposer_weight": (0.5, dealt),
    "lr": (2e-3, learnt),
    "warmup_steps": (5, learnt),
    "decay_steps": (4, learnt),
    "beta2": (0.5, learnt),
    "kl_coeff": (1.0, learnt),
    "kl_cap": (1e-9, learnt, {"kl_coeff": 1.0}),
    "clip": ((0.02, 0.02), learnt),
    "std_normalise": (True, dealt),
    "proposer_aggregation": ("sequence", dealt),
    "solver_aggregation": ("token", dealt),
    "importance_cap": (1.2, learnt),
    "drop_uniform_groups": (True, dealt),
    "temperature": (0.8, played_on),
    "strategy": ("dummy", played_on),
    "lora_rank": (2, learnt),
    "schedules": ({"attempts": ((1, 2),)}, played_on),
    "microbatch_tokens": (40, learnt),
    "dtype": ("bfloat16", learnt),
    "gradient_checkpointing": (True, learnt),
}
"""For each setting another value, where the difference shows, and what else has to be set."""

UNCHANGED: dict[str, Any] = {}
"""What each probe finds with the usual settings."""


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("name", LearningConfig.model_fields)
def test_a_setting_changes_something(
    name: str, algorithm_config: SSPConfig, played: GameBatch
) -> None:
    value, probe, *besides = KNOBS[name]
    given = besides[0] if besides else {}
    if name == "dtype" and passes_dtype(value, torch.device("cpu"), small=True) is None:
        pytest.skip("this machine does not multiply in bfloat16")
    assert LEARNING.get(name, getattr(LearningConfig(), name)) != value

    key = f"{probe.__name__} {given}"
    if key not in UNCHANGED:
        UNCHANGED[key] = probe(algorithm_config.copy(copy_frozen=False), played, given)
    changed = probe(algorithm_config, played, {**given, name: value})
    assert changed != UNCHANGED[key]
