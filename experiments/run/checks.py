"""Everything that can be known to fail before a run starts.

What needs neither PyTorch nor Ray is checked earlier still, in ``early_checks.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from agents.engines.partnered import check_same_tokens
from agents.engines.transformers_engine import check_architecture
from experiments.config import ComputeConfig, EvaluationConfig, RunConfig
from experiments.run.early_checks import check_model_directory
from experiments.run.planned import check_memory
from experiments.run.rules import MakeRules, chat_client
from ssp_env.errors import ConfigError, ModelError, ServiceError
from ssp_env.game.rules import Rules
from ssp_env.search.config import check_search
from ssp_env.settings import named
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question, World
from ssp_env.worlds import open_world

STATE_COPIES = 5
"""What a checkpoint holds for each parameter, in float32: policy, learner, Adam's two moments, and
one to spare."""


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
    check_devices(config.compute)
    model = check_model(config.model_dir)
    tokenizer = HuggingFaceTokenizer.load(config.model_dir)
    check_sizes(config, model, tokenizer.vocab_size)
    check_memory(config)
    if config.learning.partner:
        check_model(Path(config.learning.partner))
        with named("learning"):
            check_same_tokens(config.learning.partner, config.model_dir)

    check_search(config.search)
    world = open_world(config.world, **config.world_options)
    rules = MakeRules(config)(world, tokenizer, config.game)
    check_reading(rules, model)
    assert len(world.answers), "worlds refuse empty answer sets"

    if questions is None:
        questions = evaluation_questions(world, config.evaluation)
    check_prompts(rules, questions[0])
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
    players = max(1, compute.env_runners) * compute.gpus_per_env_runner
    learners = max(1, compute.learners) * compute.gpus_per_learner

    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if players + learners > there and not os.environ.get("RAY_ADDRESS"):
        name = "gpus_per_env_runner" if players > there else "gpus_per_learner"
        wanted = f"{players + learners:g} GPUs are asked for in all and {there} are here"
        fix = f"{wanted}; ask for fewer, or set RAY_ADDRESS to a cluster"
        raise ConfigError(f"compute.{name}", getattr(compute, name), fix)


def check_model(directory: Path) -> Any:
    """Makes sure that a model directory holds a causal LM that can be served.

    Its weights are not loaded.

    Returns:
        The model's `transformers` config.

    Raises:
        ModelError: there is no such directory, its config or its weights are missing or broken, or
            the engine cannot serve its architecture.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    check_model_directory(directory)

    try:
        config = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            raise ModelError(f"the model in {directory} ({config.model_type}) is not a causal LM")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'config.json'} cannot be used: {error}") from error

    check_architecture(model)
    parameters(directory)
    return config


def parameters(directory: Path) -> int:
    """The number of parameters in a model directory's weight files, from their headers.

    Raises:
        ModelError: there are no safetensors files, or one is broken.
    """
    files = sorted(directory.glob("*.safetensors"))
    pickled = sorted(directory.glob("pytorch_model*.bin"))
    if not files and not pickled:
        raise ModelError(f"{directory} holds no weights (model.safetensors is missing)")
    if not files:
        # They have no header. Fewer than two bytes per parameter would be unusual.
        return sum(file.stat().st_size for file in pickled) // 2

    count = 0
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 (not a mapping, it only has keys)
                    count += torch.Size(weights.get_slice(name).get_shape()).numel()
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
    return count


def check_sizes(config: RunConfig, model: Any, vocabulary: int) -> None:
    """Makes sure that tokenizer and budgets fit the model.

    Args:
        config: the settings.
        model: the model's `transformers` config.
        vocabulary: tokens of its tokenizer.

    Raises:
        ModelError: the tokenizer has more tokens than the model.
        ConfigError: a trajectory may grow longer than the model can read.
    """
    if vocabulary > model.vocab_size:
        what = f"its tokenizer has {vocabulary} tokens, its model only {model.vocab_size}"
        raise ModelError(f"{config.model_dir} does not fit together: {what}")

    positions = getattr(model, "max_position_embeddings", None)
    longest = config.game.max_prompt_tokens + config.game.max_response_tokens
    if positions is not None and longest > positions:
        total = f"with max_prompt_tokens it makes {longest}"
        fix = f"{total}, and the model reads at most {positions} tokens"
        raise ConfigError("game.max_response_tokens", config.game.max_response_tokens, fix)


def check_reading(rules: Rules, model: Any) -> None:
    """Makes sure that a policy that verifies can read what it is given.

    Args:
        rules: what is played by.
        model: the model's `transformers` config.

    Raises:
        ConfigError: a verification may grow longer than the model can read.
    """
    positions = getattr(model, "max_position_embeddings", None)
    longest = rules.longest_trajectory
    if positions is not None and longest > positions:
        total = f"with prompt and response it makes {longest}"
        fix = f"{total}, and the model reads at most {positions} tokens"
        raise ConfigError("game.max_verification_tokens", rules.config.verification_tokens, fix)


def check_prompts(rules: Rules, question: Question) -> None:
    """Makes sure that prompts fit into their budget; otherwise every game would be invalid.

    Raises:
        ConfigError: names the role and the tokens that it takes.
    """
    answer = min((truth.answer for truth in rules.world.answers), key=len)
    config = rules.config
    lengths = {
        "proposer": len(rules.prompts.proposer(answer, config.asked_searches[0])),
        "solver": len(rules.prompts.solver(question.text, config.max_searches)),
    }

    role = max(lengths, key=lambda name: lengths[name])
    if lengths[role] > config.max_prompt_tokens:
        takes = f"the {role}'s prompt alone takes {lengths[role]} tokens of this model"
        fix = f"{takes} (prompts: {config.prompts})"
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


def checkpoint_bytes(config: RunConfig) -> int:
    """Roughly the bytes that one checkpoint takes on disk."""
    return parameters(config.model_dir) * 4 * STATE_COPIES
