"""Results under RLlib's names: an episode is a game, a step a token of the policy's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from statistics import fmean
from typing import Any

from ray.rllib.core import ALL_MODULES
from ray.rllib.utils import metrics as names
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from agents.metrics import FIGURES
from agents.rllib.module import MODULE_ID
from ssp_env.game.record import GameRecord

AGENTS = ("proposer", "solver")


def episode_figures(games: Sequence[GameRecord]) -> dict[str, Any]:
    """Returns and lengths of games, as any of RLlib's env runners reports its episodes.

    The return of a game is what both roles earned in it. A void game is no episode. Where nothing
    was played, figures are not a number: the names are the same at every step.
    """
    played = [game for game in games if game.outcome != "void"]
    lengths = [float(sum(t.policy_tokens for t in game.trajectories)) for game in played]
    returns = [(game.proposer_reward or 0.0) + (game.solver_reward or 0.0) for game in played]
    paid = {
        "proposer": [game.proposer_reward for game in played],
        "solver": [game.solver_reward for game in played],
    }
    agents = {who: _mean([r for r in rewards if r is not None]) for who, rewards in paid.items()}
    return {
        names.EPISODE_RETURN_MEAN: _mean(returns),
        names.EPISODE_RETURN_MIN: min(returns, default=nan),
        names.EPISODE_RETURN_MAX: max(returns, default=nan),
        names.EPISODE_LEN_MEAN: _mean(lengths),
        names.EPISODE_LEN_MIN: min(lengths, default=nan),
        names.EPISODE_LEN_MAX: max(lengths, default=nan),
        names.EPISODE_AGENT_RETURN_MEAN: agents,
        names.EPISODE_MODULE_RETURN_MEAN: {MODULE_ID: _mean(returns)},
    }


def evaluation_figures(games: Sequence[GameRecord], groups: Iterable[str]) -> dict[str, Any]:
    """Figures of an evaluation: as of any episodes, and the share of right answers by group, those
    without a game included."""
    accuracy = {
        group: episode_figures([g for g in games if g.question_group == group])[
            names.EPISODE_RETURN_MEAN
        ]
        for group in sorted(groups)
    }
    episodes = sum(game.outcome != "void" for game in games)
    return {**episode_figures(games), names.NUM_EPISODES: episodes, "accuracy": accuracy}


def complete(figures: Mapping[str, float | None], reasons: Iterable[str]) -> dict[str, float]:
    """A step's figures with the names that they could have had: not a number, or a share of 0 for
    each reason code that a game can end with."""
    share = nan if figures.get("valid_rate") is None else 0.0
    missing = {
        **{f"invalid_{reason}": share for reason in reasons},
        **{f"learner_{name}": nan for name in FIGURES},
    }
    known = {name: nan if value is None else value for name, value in figures.items()}
    return {**missing, **known}


def log_played(metrics: MetricsLogger, games: Sequence[GameRecord]) -> None:
    """Enters a step's games under ``env_runners``, lifetime counters included."""
    metrics.log_dict(episode_figures(games), key=names.ENV_RUNNER_RESULTS, reduce="item")

    episodes = sum(game.outcome != "void" for game in games)
    by_agent = dict.fromkeys(AGENTS, 0)
    for game in games:
        for trajectory in game.trajectories:
            agent = "proposer" if trajectory.role == "proposer" else "solver"
            by_agent[agent] += trajectory.policy_tokens

    tokens = sum(by_agent.values())
    for name, lifetime, value in (
        (names.NUM_EPISODES, names.NUM_EPISODES_LIFETIME, episodes),
        (names.NUM_ENV_STEPS_SAMPLED, names.NUM_ENV_STEPS_SAMPLED_LIFETIME, tokens),
        (names.NUM_AGENT_STEPS_SAMPLED, names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, by_agent),
        (
            names.NUM_MODULE_STEPS_SAMPLED,
            names.NUM_MODULE_STEPS_SAMPLED_LIFETIME,
            {MODULE_ID: tokens},
        ),
    ):
        _count(metrics, (names.ENV_RUNNER_RESULTS,), name, lifetime, value)


def log_learnt(metrics: MetricsLogger, updates: Sequence[dict[str, float]]) -> None:
    """Enters a step's optimizer updates under ``learners``; their means, by figure."""
    means = {
        name: _mean([update[name] for update in updates if name in update]) for name in FIGURES
    }
    metrics.log_dict(means, key=(names.LEARNER_RESULTS, MODULE_ID), reduce="item")

    tokens = int(sum(update["trained_tokens"] for update in updates))
    for module, name, lifetime in (
        (MODULE_ID, names.NUM_MODULE_STEPS_TRAINED, names.NUM_MODULE_STEPS_TRAINED_LIFETIME),
        (ALL_MODULES, names.NUM_ENV_STEPS_TRAINED, names.NUM_ENV_STEPS_TRAINED_LIFETIME),
    ):
        _count(metrics, (names.LEARNER_RESULTS, module), name, lifetime, tokens)


def _count(
    metrics: MetricsLogger, key: tuple[str, ...], name: str, lifetime: str, value: Any
) -> None:
    """A counter of this iteration, and one that never falls."""
    values = value if isinstance(value, dict) else {"": value}
    for part, number in values.items():
        below = (part,) if part else ()
        metrics.log_value((*key, name, *below), number, reduce="sum")
        metrics.log_value((*key, lifetime, *below), number, reduce="lifetime_sum")


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan
