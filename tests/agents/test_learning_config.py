"""Every setting of learning does something, and none takes nonsense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning import learner_for, some_rows, update, weights_of
from playful import LEARNING

from agents import rows as rows_module
from agents.config import LearningConfig
from agents.models import tiny_directory
from agents.rllib.config import SSPConfig
from agents.rllib.env_runner import SSPEnvRunner, rounds_of
from agents.rllib.module import MODULE_ID
from agents.rows import Row, deal, rows_of, with_loss_weights
from ssp_env.game.round import Round
from ssp_env.game.strategies import update_strategy


@dataclass(frozen=True)
class Setup:
    """What the probes work with."""

    model_dir: Path
    config: SSPConfig
    round: Round


def learnt(setup: Setup, changes: dict[str, Any]) -> Any:
    """Two updates on rows whose behaviour was another policy's: weights and figures."""
    learner = learner_for(setup.model_dir, **changes)
    rows = some_rows(setup.model_dir, 6, noise=0.5)
    figures = [update(learner, rows, step) for step in range(2)]
    total = sum(float(tensor.double().abs().sum()) for tensor in weights_of(learner).values())
    return total, [(f["loss"], f["kl"]) for f in figures]


def passes(setup: Setup, changes: dict[str, Any]) -> Any:
    """How many passes through a layer an update takes."""
    learner = learner_for(setup.model_dir, **changes)
    counted: list[int] = []
    inner = learner.module[MODULE_ID].lm.model.layers[0].feed_forward
    inner.register_forward_pre_hook(lambda *_: counted.append(1))
    update(learner, some_rows(setup.model_dir, 6))
    return len(counted)


def credited(setup: Setup, changes: dict[str, Any]) -> Any:
    """The rows of a round that was played."""
    learning = setup.config.training(**changes).learning()
    rows = rows_module.credited(rows_of(setup.round.games, learning), learning)
    rows = with_loss_weights(rows, learning, 16, setup.config.game())
    return [(r.role, r.game, r.advantage, r.weight) for r in rows]


def played_on(setup: Setup, changes: dict[str, Any]) -> Any:
    """The games of two steps."""
    config = setup.config.training(**{"batch_size": 5, **changes})
    learning, runner = config.learning(), SSPEnvRunner(config=config)
    strategy = config.batch_strategy()
    games = []
    for step in range(2):
        state, tasks = strategy.get_state(), rounds_of(step, learning)
        samples = [runner.sample(**task, strategy=state) for task in tasks]
        games += [(r.origin, r.question) for sample in samples for r in sample.records]
        update_strategy(strategy, [sample.verified for sample in samples])
    return games


def tried(setup: Setup, changes: dict[str, Any]) -> Any:
    """Who wrote what in a round, by the tokens."""
    config = setup.config.training(**changes)
    state = config.batch_strategy().get_state()
    sample = SSPEnvRunner(config=config).sample(
        **rounds_of(0, config.learning())[0], strategy=state
    )
    return [t.ids for record in sample.records for t in record.trajectories]


def dealt(setup: Setup, changes: dict[str, Any]) -> Any:
    """Sizes of the updates of a step."""
    rows = [Row(np.zeros(3), np.ones(3), np.zeros(3), "solver", game, 1.0) for game in range(8)]
    return [
        (len(part), size) for part, size in deal(rows, setup.config.training(**changes).learning())
    ]


Probe = Callable[[Setup, dict[str, Any]], Any]
KNOBS: dict[str, tuple[Any, Probe] | tuple[Any, Probe, dict[str, Any]]] = {
    "batch_size": (4, played_on),
    "round_size": (2, played_on),
    "minibatches": (2, dealt),
    "learning_roles": (("solver",), credited),
    "partner": (str(tiny_directory()), tried, {"learning_roles": ("proposer",)}),
    "proposer_algorithm": ("grpo", learnt),
    "solver_algorithm": ("reinforce", learnt),
    "proposer_weight": (0.5, credited),
    "lr": (2e-3, learnt),
    "warmup_steps": (5, learnt),
    "decay_steps": (4, learnt),
    "beta2": (0.5, learnt),
    "kl_coeff": (1.0, learnt),
    "kl_cap": (1e-9, learnt, {"kl_coeff": 1.0}),
    "clip_low": (0.02, learnt),
    "clip_high": (0.02, learnt),
    "std_normalise": (True, credited),
    "proposer_aggregation": ("sequence", credited),
    "solver_aggregation": ("token", credited),
    "importance_cap": (1.2, learnt),
    "drop_uniform_groups": (True, credited),
    "temperature": (0.8, played_on),
    "strategy": ("dummy", played_on),
    "lora_rank": (2, learnt),
    "microbatch_tokens": (40, passes),
    "gradient_checkpointing": (True, passes),
}
"""For each setting another value, where the difference shows, and what else has to be set."""


UNCHANGED: dict[str, Any] = {}
"""What each probe finds with the usual settings."""


@pytest.mark.parametrize("name", LearningConfig.model_fields)
def test_a_setting_changes_something(
    name: str, model_dir: Path, algorithm_config: SSPConfig, played: Round
) -> None:
    value, probe, *besides = KNOBS[name]
    given = besides[0] if besides else {}
    assert LEARNING.get(name, getattr(LearningConfig(), name)) != value

    key = f"{probe.__name__} {given}"
    if key not in UNCHANGED:
        setup = Setup(model_dir, algorithm_config.copy(copy_frozen=False), played)
        UNCHANGED[key] = probe(setup, given)
    changed = probe(Setup(model_dir, algorithm_config, played), {**given, name: value})
    assert changed != UNCHANGED[key]
