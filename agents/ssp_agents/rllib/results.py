"""Results under RLlib's names: an episode is a game, a step a token of the policy's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import nan
from statistics import fmean
from typing import Any

from ray.rllib.core import ALL_MODULES
from ray.rllib.utils import metrics as names
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from ssp_agents.metrics import FIGURES, accuracies, merge_figures
from ssp_agents.rllib.learner import UpdateFigures
from ssp_env.game.record import GameRecord
from ssp_env.types import Question

Roles = Mapping[str, Sequence[str]]
"""The roles that each policy plays."""


def episode_figures(games: Sequence[GameRecord], roles: Roles) -> dict[str, Any]:
    """Returns and lengths of games, as any of RLlib's env runners reports its episodes.

    The return of a game is what both roles earned in it, that of a policy what its roles earned. A
    void game is no episode. Where nothing was played, figures are not a number: the names are the
    same at every step.
    """
    played = [game for game in games if game.outcome != "void"]
    lengths = [float(sum(t.policy_tokens for t in game.trajectories)) for game in played]
    returns = [(game.proposer_reward or 0.0) + (game.solver_reward or 0.0) for game in played]
    earned = {
        "proposer": [g.proposer_reward for g in played if g.proposer_reward is not None],
        "solver": [g.solver_reward for g in played if g.solver_reward is not None],
    }
    by_agent = {role: _mean(rewards) for role, rewards in earned.items()}
    return {
        **_spread("episode_return", returns),
        **_spread("episode_len", lengths),
        names.EPISODE_AGENT_RETURN_MEAN: by_agent,
        names.EPISODE_MODULE_RETURN_MEAN: {
            # A policy of both roles earns what both earned, which is the game's return.
            policy: by_agent[plays[0]] if len(plays) == 1 else _mean(returns)
            for policy, plays in roles.items()
        },
    }


def evaluation_figures(
    games: Sequence[GameRecord], questions: Iterable[Question], roles: Roles
) -> dict[str, Any]:
    """Figures of an evaluation: as of any episodes, and the share of right answers by group of the
    questions, those without a game included."""
    accuracy = {
        group: one.right / one.asked if one.asked else nan
        for group, one in accuracies(games, questions).items()
    }
    played = sum(game.outcome != "void" for game in games)
    return {**episode_figures(games, roles), names.NUM_EPISODES: played, "accuracy": accuracy}


def log_step(
    metrics: MetricsLogger,
    figures: Mapping[str, float | None],
    games: Sequence[GameRecord],
    roles: Roles,
    reasons: Iterable[str],
) -> None:
    """Enters a step's figures under ``ssp`` and its games under ``env_runners``, lifetime counters
    included.

    A figure that is missing is not a number, or a share of 0 for each of the ``reasons`` that a
    game can end with: the names are the same at every step."""
    # Where nothing was proposed, a share of it is unknown; else a reason that is missing is 0.
    share = nan if figures.get("valid_rate") is None else 0.0
    complete = {f"invalid_{reason}": share for reason in reasons}
    complete |= {f"learner_{name}": nan for name in FIGURES}
    # Figures that are known take the place of what stands for them.
    complete |= {name: nan if value is None else value for name, value in figures.items()}
    metrics.log_dict(complete, key=("ssp", "figures"), reduce="item")

    metrics.log_dict(episode_figures(games, roles), key=names.ENV_RUNNER_RESULTS, reduce="item")
    by_agent = {"proposer": 0, "solver": 0}
    for trajectory in chain.from_iterable(game.trajectories for game in games):
        agent = "proposer" if trajectory.role == "proposer" else "solver"
        by_agent[agent] += trajectory.policy_tokens
    written = sum(by_agent.values())
    counts = {
        names.NUM_EPISODES: sum(game.outcome != "void" for game in games),
        names.NUM_ENV_STEPS_SAMPLED: written,
        names.NUM_AGENT_STEPS_SAMPLED: by_agent,
        names.NUM_MODULE_STEPS_SAMPLED: {
            policy: sum(by_agent[role] for role in plays) for policy, plays in roles.items()
        },
    }
    _count(metrics, counts, names.ENV_RUNNER_RESULTS)


def log_learners(
    metrics: MetricsLogger,
    updates: Sequence[UpdateFigures],
    policies: Sequence[str],
) -> None:
    """Enters a step's optimizer updates under ``learners``."""
    learnt = 0
    for policy in policies:
        of_policy = [merge_figures(update[policy]) for update in updates if policy in update]
        means = {
            name: _mean([each[name] for each in of_policy if name in each]) for name in FIGURES
        }
        metrics.log_dict(means, key=(names.LEARNER_RESULTS, policy), reduce="item")
        tokens = int(sum(update["trained_tokens"] for update in of_policy))
        _count(metrics, {names.NUM_MODULE_STEPS_TRAINED: tokens}, names.LEARNER_RESULTS, policy)
        learnt += tokens
    _count(metrics, {names.NUM_ENV_STEPS_TRAINED: learnt}, names.LEARNER_RESULTS, ALL_MODULES)


def _count(metrics: MetricsLogger, counts: dict[str, Any], *key: str) -> None:
    """Counters of this iteration, and those that never fall, which RLlib calls the lifetime's."""
    metrics.log_dict(counts, key=key, reduce="sum")
    lifetime = {f"{name}_lifetime": count for name, count in counts.items()}
    metrics.log_dict(lifetime, key=key, reduce="lifetime_sum")


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, minimum and maximum under RLlib's names."""
    least, most = min(values, default=nan), max(values, default=nan)
    return {f"{name}_mean": _mean(values), f"{name}_min": least, f"{name}_max": most}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan
