"""Checks of settings that have to fit together."""

from __future__ import annotations

from ssp_agents.config import (
    WITHOUT_RATIO,
    ComputeConfig,
    EngineConfig,
    LearningConfig,
    compares,
    given_per_step,
)
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.schedule import all_rules, from_step


def check_settings(
    game: GameConfig, learning: LearningConfig, engine: EngineConfig, compute: ComputeConfig
) -> None:
    """Makes sure that settings of several sections fit together."""
    _check_layout(engine.kind, compute)
    unscheduled = learning.replace(schedules={})
    for step, scheduled in all_rules(game, learning.schedules):
        with from_step(step, learning.schedules):
            check_settings(scheduled, unscheduled, engine, compute)
    # All but REINFORCE need something to compare; one of your own may.
    for role, name in (("solver", "attempts"), ("proposer", "proposals")):
        if role in learning.learning_roles and getattr(game, name) < 2 and compares(learning, role):
            fix = f"{learning.algorithm(role)} compares {name}: give at least 2"
            raise ConfigError(f"game.{name}", getattr(game, name), fix)

    # A step is game batches of whole groups, one at least per env runner.
    batch, size = learning.batch_size, learning.round_size
    for name, value in (("batch_size", batch), ("round_size", min(size, batch))):
        if value % game.proposals:
            raise ConfigError(f"learning.{name}", value, "must be a multiple of game.proposals")
    game_batches, runners = -(-batch // size), compute.env_runners
    if runners > game_batches:
        what = (
            f"of {runners} env runners, only {game_batches} would play a step of {batch} questions"
        )
        # The largest game batch of whole groups of which a step has one per runner.
        most = batch // runners // game.proposals * game.proposals
        fix = f"give at most {most}" if most else "there have to be fewer runners"
        raise ConfigError("learning.round_size", size, f"{what}; {fix}")

    # A share that comes to nothing, or to all, is not what was asked for.
    share, given = learning.share_given, given_per_step(learning, game)
    if 0 < share < 1 and given in (0, batch):
        # Shares are rounded to whole groups, so it takes more than half of one.
        least = 0.5 * game.proposals / batch
        fix = f"none; give more than {least:.3g}" if not given else f"all; give {1 - least:.3g}"
        fix = f"of {batch} questions a step it comes to {fix}, or a larger learning.batch_size"
        raise ConfigError("learning.given_share", share, fix)

    _check_verifier(game, learning)
    # REINFORCE, RAE and RLOO must not take games of one update ago for their own.
    without = {learning.algorithm(role) for role in learning.learning_roles} & WITHOUT_RATIO
    if compute.overlap and without and learning.importance_cap is None:
        fix = "games are one update old then: give learning.importance_cap, such as 2.0"
        raise ConfigError("compute.overlap", True, fix)
    several: dict[str, object] = dict(learning.other_models)
    if learning.policies == "separate" and not learning.lora_rank:
        several["learning.policies"] = learning.policies
    if game.verifier == "frozen" and not learning.lora_rank:
        several["game.verifier"] = game.verifier
    for name, model in several.items() if engine.kind == "vllm" else ():
        fix = "vLLM fills a GPU's memory for one model: let the engine transformers play"
        raise ConfigError(name, model, fix)


def _check_verifier(game: GameConfig, learning: LearningConfig) -> None:
    """Makes sure that a frozen verifier has something to read, and comes from one place."""
    for name in ("verifier_model", "verifier_refresh") if game.verifier != "frozen" else ():
        if value := getattr(learning, name):
            fix = f"nobody reads it with game.verifier={game.verifier}: set that to frozen"
            raise ConfigError(f"learning.{name}", value, fix)
    if game.verifier == "frozen" and learning.share_given == 1:
        fix = "all questions are given, so nothing is verified: leave it out"
        raise ConfigError("game.verifier", game.verifier, fix)
    if learning.verifier_model and learning.verifier_refresh:
        fix = "a refresh puts the solver's policy in its place: leave one of them out"
        raise ConfigError("learning.verifier_model", learning.verifier_model, fix)


def _check_layout(engine: str, compute: ComputeConfig) -> None:
    """Makes sure that no two env runners, and no two learners, meet on one GPU."""
    gpus, runners, learners = compute.gpus, compute.env_runners, compute.learners
    if gpus == "own" and not (runners and learners):
        what = "the main process would work on a GPU that Ray gives to others"
        fix = f"{what}: give at least one env runner and one learner, or share a GPU with 0 of each"
        raise ConfigError("compute.gpus", gpus, fix)
    if gpus == "shared" and runners != learners:
        what = f"{runners} env runners and {learners} learners cannot share GPUs one to one"
        fix = f"{what}: give {max(runners, learners)} of each, or GPUs of their own"
        raise ConfigError("compute.gpus", gpus, fix)
    if gpus == "shared" and compute.overlap:
        fix = "engines sleep while learners work on the same GPUs: set it to false, or gpus=own"
        raise ConfigError("compute.overlap", True, fix)
    if compute.tensor_parallel > 1 and (gpus, engine) != ("own", "vllm"):
        fix = "only vLLM on GPUs of its own spreads a policy: engine.kind=vllm, compute.gpus=own"
        raise ConfigError("compute.tensor_parallel", compute.tensor_parallel, fix)
    if compute.sharding == "fsdp2" and learners < 2:
        fix = f"give two learners or more to share the policy among (there are {learners}), or ddp"
        raise ConfigError("compute.sharding", "fsdp2", fix)


def check_processors(compute: ComputeConfig, processors: int) -> None:
    """Makes sure that no more env runners, or learners, compute on CPUs than there are."""
    for name in ("env_runners", "learners") if compute.gpus == "none" else ():
        if (count := getattr(compute, name)) > processors:
            what = f"there are {processors} CPUs, and each of these processes keeps one busy"
            raise ConfigError(f"compute.{name}", count, f"{what}: give at most {processors}")
