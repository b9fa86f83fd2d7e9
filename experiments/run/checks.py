"""Checks of what can be known to fail before a run starts.

:func:`check_early` needs neither PyTorch nor Ray, which take seconds to load; :func:`check` opens
all that a run needs, except the weights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agents.config import check_packages
from experiments.config import ComputeConfig, EvaluationConfig, RunConfig
from experiments.run.rules import MakeRules, chat_client
from experiments.run.rundir import RunDirectory
from ssp_env.errors import ConfigError, ModelError, ServiceError
from ssp_env.game.rules import Rules
from ssp_env.search.index import check_search
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question, World
from ssp_env.worlds import check_world, open_world

TINY_WORLDS = ("mini", "small")
"""Worlds whose words the tiny policy knows."""


def check_early(config: RunConfig, out: Path, resume: bool) -> None:
    """Looks at settings, packages, model, world, run directory, search; leaves nothing behind."""
    check_learning(config)
    lacking = not config.model and config.world not in TINY_WORLDS
    try:
        check_world(config.world, **config.world_options)
    except ConfigError as error:
        # All that is missing is named at once.
        asks = config.world != "files" or "questions_path" in config.world_options
        also = "" if asks else ", and questions_path for evaluation"
        also += "; name a causal LM by --model DIR as well" if lacking else ""
        raise ConfigError(error.field, error.value, error.fix + also) from None
    if config.model:  # the shipped one is found by a module that loads PyTorch
        check_model_directory(Path(config.model))
    elif lacking:
        fix = f"name a causal LM by --model DIR: the tiny policy cannot read {config.world!r}"
        raise ConfigError("model", None, fix)
    if config.learning.partner:
        check_model_directory(Path(config.learning.partner))
    RunDirectory(out).check(config, resume)
    check_search(config.search)


def check_learning(config: RunConfig) -> None:
    """Makes sure that settings fit together, and that the packages that they need are there."""
    config.check()
    # On a cluster, engines may be on other machines, which have packages of their own.
    elsewhere = config.compute.env_runners and os.environ.get("RAY_ADDRESS")
    check_packages(config.learning, "" if elsewhere else config.engine.kind)


def check(
    config: RunConfig, questions: list[Question] | None = None
) -> tuple[Rules, list[Question]]:
    """Opens all that a run needs, except the weights.

    Args:
        config: all settings.
        questions: what the policy is measured by, in place of the world's own.

    Returns:
        The rules that it is played by, and the questions that the policy is measured by.

    Raises:
        SSPError: model, tokenizer, world, answers, prompts, questions, services or devices cannot
            work.
    """
    from agents.engines.opening import check_same_tokens
    from experiments.planner import check_memory

    check_devices(config.compute)
    model = check_model(config.model_dir)
    tokenizer = HuggingFaceTokenizer.load(config.model_dir)
    if tokenizer.vocab_size > model.vocab_size:
        what = f"its tokenizer has {tokenizer.vocab_size} tokens, its model {model.vocab_size}"
        raise ModelError(f"{config.model_dir} does not fit together: {what}")
    check_memory(config)
    if config.learning.partner:
        check_model(Path(config.learning.partner))
        check_same_tokens(config.learning.partner, config.model_dir)

    check_search(config.search)
    world = open_world(config.world, **config.world_options)
    rules = MakeRules(config)(world, tokenizer, config.game)
    if questions is None:
        questions = evaluation_questions(rules.world, config.evaluation)
    check_lengths(rules, questions[0], getattr(model, "max_position_embeddings", None))
    check_service(config)
    return rules, questions


def evaluation_questions(world: World, settings: EvaluationConfig) -> list[Question]:
    """The questions that a policy is measured by.

    Raises:
        ConfigError: the world has none, or not as many.
    """
    try:
        return world.questions(settings.seed, settings.per_group)
    except ConfigError as error:
        # Worlds name their own arguments; the settings have other names.
        name = error.field.rpartition(".")[2]
        field = f"evaluation.{name}" if name in ("seed", "per_group") else f"world_options.{name}"
        raise ConfigError(field, error.value, error.fix) from None


def check_devices(compute: ComputeConfig) -> None:
    """Makes sure that the GPUs asked for are there. A Ray cluster (``RAY_ADDRESS``) knows its own.

    Raises:
        ConfigError: this machine has fewer.
    """
    import torch

    players = max(1, compute.env_runners) * compute.gpus_per_env_runner
    learners = max(1, compute.learners) * compute.gpus_per_learner
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if players + learners > there and not os.environ.get("RAY_ADDRESS"):
        name = "gpus_per_env_runner" if players > there else "gpus_per_learner"
        wanted = f"{players + learners:g} GPUs are asked for in all and {there} are here"
        fix = f"{wanted}; ask for fewer, or set RAY_ADDRESS to a cluster"
        raise ConfigError(f"compute.{name}", getattr(compute, name), fix)


def check_model_directory(directory: Path) -> None:
    """
    Raises:
        ModelError: there is no such directory, or it holds no model.
    """
    if not directory.is_dir():
        raise ModelError(f"there is no model directory {directory}")
    if not (directory / "config.json").is_file():
        # A run, or a checkpoint, has a policy within.
        inside = [*directory.glob("checkpoints/step_*/policy"), *directory.glob("policy")]
        hint = f"; did you mean {max(inside)}?" if inside else ""
        raise ModelError(f"{directory} is not a model directory (config.json is missing){hint}")


def check_model(directory: Path) -> Any:
    """Makes sure that a model directory holds a causal LM that can be served.

    Its weights are not loaded, but the headers of their files are read.

    Returns:
        The model's `transformers` config.

    Raises:
        ModelError: there is no such directory, its config or its weights are missing or broken, or
            the engine cannot serve its architecture.
    """
    import torch
    from safetensors import SafetensorError, safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    from agents.engines.transformers_engine import check_architecture

    check_model_directory(directory)
    try:
        config = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{directory / 'config.json'} cannot be used: {str(error).splitlines()[0]}"
        ) from error
    check_architecture(model)

    files = sorted(directory.glob("*.safetensors"))
    if not files and not any(directory.glob("pytorch_model*.bin")):
        raise ModelError(f"{directory} holds no weights (model.safetensors is missing)")
    for file in files:
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
    return config


def check_lengths(rules: Rules, question: Question, positions: int | None) -> None:
    """Makes sure that prompts fit into their budget, and trajectories into the model.

    Args:
        rules: what is played by.
        question: stands for all of them.
        positions: tokens that the model can read; ``None`` if it has no limit.

    Raises:
        ConfigError: otherwise every game would be invalid, or the model would read past its end.
    """
    config = rules.config
    longest = {
        "the prompt": config.max_prompt_tokens + config.max_response_tokens,
        "prompt and verification": rules.longest_trajectory,
    }
    for what, total in longest.items():
        if positions is not None and total > positions:
            fix = f"with {what} it makes {total}, and the model reads at most {positions} tokens"
            raise ConfigError("game.max_response_tokens", config.max_response_tokens, fix)

    answer = min((truth.answer for truth in rules.world.answers), key=len)
    lengths = {
        "proposer": len(rules.prompts.proposer(answer, config.asked_searches[0])),
        "solver": len(rules.prompts.solver(question.text, config.max_searches)),
    }
    role = max(lengths, key=lambda name: lengths[name])
    if lengths[role] > config.max_prompt_tokens:
        fix = f"the {role}'s prompt alone takes {lengths[role]} tokens (prompts: {config.prompts})"
        raise ConfigError("game.max_prompt_tokens", config.max_prompt_tokens, fix)


def check_service(config: RunConfig) -> None:
    """Calls the judge's or verifier's model once, where a run is to use one.

    Raises:
        ServiceError: it does not answer.
    """
    client = chat_client(config)
    if client is None:
        return
    with client:
        (reply,) = client.ask(["Answer with the word: ready"], str, "openai")
    if isinstance(reply, ServiceError):
        raise reply
