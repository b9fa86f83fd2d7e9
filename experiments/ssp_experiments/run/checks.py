"""Checks of what can be known to fail before a run starts, and the rules that it is played by.

:func:`check_early` needs neither PyTorch nor Ray, which take seconds to load; :func:`open_run`
opens all that a run needs, except the weights, and :func:`open_training` what it learns from, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from ssp_agents.checks import check_processors
from ssp_agents.given import check_given, check_unseen, open_given
from ssp_env.config import load
from ssp_env.disk import check_file
from ssp_env.errors import ConfigError, DataError, MissingExtra, ModelError
from ssp_env.game.batch import check_questions
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import tags_of
from ssp_env.game.rules import Rules
from ssp_env.game.schedule import all_rules, from_step
from ssp_env.judge.openai import OpenAIJudge, OpenAIVerifier
from ssp_env.search.index import SearchConfig, check_search
from ssp_env.tokenizers import BPETokenizer, HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Question
from ssp_env.wording.normal import normalise
from ssp_env.worlds import check_world
from ssp_env.worlds.questions import check_first_question
from ssp_experiments.config import (
    RunConfig,
    check_model_directory,
    check_policy,
    code_named,
    is_gguf,
)
from ssp_experiments.options import Chosen
from ssp_experiments.run.address import check_ray
from ssp_experiments.run.rules import build_rules, keep_rules, world_of
from ssp_experiments.run.rundir import RunDirectory


def check_early(config: RunConfig, out: Path, resume: bool) -> None:
    """Looks at settings, packages, model, world, run directory, search; leaves nothing behind."""
    check_settings(config)
    check_ray()
    if not os.environ.get("RAY_ADDRESS"):
        check_processors(config.compute, os.cpu_count() or 1)
    if config.world == "files":  # it may take long to read
        check_world(config.world, **config.world_options)
    else:
        world_of(config)
    tags_of(config.game.prompts, config.game.tools)
    for name, value in code_named(config).items():
        load(name, value)
    check_policy(config)
    for field, other in config.learning.other_models.items():
        try:
            check_model_directory(Path(other))
        except ModelError as error:
            raise ConfigError(field, other, str(error)) from None
    if config.learning.share_given:
        open_given(config.learning)
    directory = RunDirectory(out)
    if resume:
        directory.check_state()
    directory.check(config, resume)
    check_search(config.search, config.game.tools)


def check_places(
    chosen: Chosen,
    policies: Sequence[str] = (),
    files: Sequence[str] = (),
    questions: str | None = None,
) -> None:
    """Looks whether what a command names is there: policies, files, and the settings' own; and
    whether a file of questions begins with one.

    What loads PyTorch takes many seconds, and some commands do before they look."""
    changes = chosen.changes()
    for policy in [*policies, changes.get("model", "")]:
        place = Path(policy)
        if policy and not place.exists() and is_gguf(policy):
            raise ModelError(f"{place} cannot be read: there is no such file")
        if policy and (place.is_dir() or not place.exists()):
            check_model_directory(place)
    for file in [*files, *([questions] if questions else [])]:
        if not Path(file).exists():
            raise DataError(file, "cannot be read: there is no such file")
    if questions:
        check_first_question(questions)
    for name, value in changes.items():
        if name.startswith("world_options.") and name.endswith("_path") and value:
            check_file(name, value)
    source = SearchConfig.of(changes.get("search.source", ""))
    if not source.is_server:
        check_search(source)


def check_settings(config: RunConfig) -> None:
    """Makes sure that settings fit together, and that the packages that they need are there."""
    config.check()
    # On a cluster, engines may be on other machines, which have packages of their own.
    elsewhere = config.compute.env_runners and os.environ.get("RAY_ADDRESS")
    if config.engine.kind == "vllm" and not elsewhere and find_spec("vllm") is None:
        raise MissingExtra("engine.kind=vllm", "gpu")
    if config.tracker != "tensorboard" and find_spec(config.tracker) is None:
        raise MissingExtra(f"tracker={config.tracker}", "track")


def open_policy(config: RunConfig) -> tuple[Any, Tokenizer]:
    """The policy's config and tokenizer; makes sure that it, the other one if there are two, and
    the algorithms by which they learn can be used."""
    from ssp_agents.engines.opening import check_same_tokens
    from ssp_agents.losses import find_algorithm
    from ssp_agents.rows import find_credit

    check_policy(config)
    model = check_model(config.model_dir)
    tokenizer = HuggingFaceTokenizer.load(config.model_dir)
    if tokenizer.vocab_size > model.vocab_size:
        what = f"its tokenizer has {tokenizer.vocab_size} tokens, its model {model.vocab_size}"
        raise ModelError(f"{config.model_dir} does not fit together: {what}")
    for role in config.learning.learning_roles:
        find_algorithm(config.learning, role)
    find_credit(config.learning)
    for field, other in config.learning.other_models.items():
        check_model(Path(other))
        check_same_tokens(field, other, config.model_dir)
    return model, tokenizer


def open_run(
    config: RunConfig,
    questions: list[Question] | None = None,
    seed: int = 0,
    *,
    is_served: bool = False,
) -> tuple[Rules, list[Question]]:
    """The rules of a run, and the questions that its policy is measured by: those given, or of the
    world's own, which ``seed`` draws. All that a run needs is opened, except the weights.

    Where the policy ``is_served``, none has to be named, and the packaged tokenizer counts."""
    model: Any = None
    tokenizer: Tokenizer = BPETokenizer()
    if config.has_policy or not is_served:
        model, tokenizer = open_policy(config)

    check_search(config.search, config.game.tools)
    rules = build_rules(config, world_of(config), tokenizer, config.game)
    answers = [truth.answer for truth in islice(rules.world.answers, 100)]
    check_spelling(config.model, tokenizer, answers, "answers of the world")
    try:
        if questions is None:
            questions = rules.world.questions(seed, config.per_group)
    except ConfigError as error:
        # Worlds name their own arguments.
        name = error.field.rpartition(".")[2]
        name = name if name == "per_group" else f"world_options.{name}"
        raise ConfigError(name, error.value, error.fix) from None
    if (strange := rules.prompts.unspelled()) is not None:
        fix = f"the model's vocabulary has no words for its {strange}.txt; take prompts in its own"
        raise ConfigError("game.prompts", config.game.prompts, fix)
    check_questions(rules, questions)
    if config.search.source:
        (found,) = rules.retriever.search([questions[0].text], 10)
        heads = [document.title or document.text[:50] for document in found]
        check_spelling(config.model, tokenizer, heads, "passages that search finds")
    check_lengths(rules, questions[0], getattr(model, "max_position_embeddings", None))
    for part in (rules.judge, rules.verifier):
        if isinstance(part, OpenAIJudge | OpenAIVerifier):
            part.check()
    return rules, questions


def open_training(config: RunConfig) -> tuple[Rules, list[Question]]:
    """As :func:`open_run`; the policy has to be able to read the questions that it is given to
    learn from, and is measured by none of them."""
    rules, questions = open_run(config)
    keep_rules(config, rules)
    if config.learning.share_given < 1:
        check_answers(rules)
    if config.learning.share_given:
        check_given(rules, open_given(config.learning))
        check_unseen(config.learning, questions)
    schedules = config.learning.schedules
    for step, scheduled in all_rules(rules.config, schedules):
        with from_step(step, schedules):
            check_prompts(rules, scheduled, questions[0])
    return rules, questions


def check_answers(rules: Rules) -> None:
    """Makes sure that there is something to propose questions for."""
    if not rules.world.answers:
        fix = "proposers write questions for its answers: name the file of them, or train on given "
        fix += "questions alone (ssp train --questions)"
        raise ConfigError("world_options.answers_path", None, fix)


def check_model(directory: Path) -> Any:
    """Makes sure that a model directory holds a causal LM; returns its config. Of its weights, the
    headers are read: whoever loads them checks that it can be played or learnt from."""
    from safetensors import SafetensorError, safe_open

    from ssp_agents.architecture import check_causal
    from ssp_agents.models import meta_model

    check_model_directory(directory)
    model = meta_model(directory)

    if not any([*directory.glob("*.safetensors"), *directory.glob("pytorch_model*.bin")]):
        raise ModelError(f"{directory} holds no weights (model.safetensors is missing)")
    for file in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
    check_causal(model.config)
    return model.config


def check_spelling(model: str, tokenizer: Tokenizer, texts: Sequence[str], what: str) -> None:
    """Makes sure that a model's vocabulary has the words of most of these texts."""
    spelled = [tokenizer.decode(tokenizer.encode(text)) for text in texts]
    garbled = [t for t, s in zip(texts, spelled, strict=True) if normalise(t) != normalise(s)]
    if len(garbled) > len(texts) / 2:
        what = f"its tokenizer cannot spell {len(garbled)} of {len(texts)} {what}"
        fix = f"{what}, such as {garbled[0]!r}; take a model with a vocabulary for any text"
        raise ConfigError("model", model or "(the policy that ships)", fix)


def check_lengths(rules: Rules, question: Question, positions: int | None) -> None:
    """Makes sure that trajectories fit into the tokens that the model can read (``positions``), and
    prompts into their budget."""
    config = rules.config
    longest, budget = rules.longest_trajectory, config.max_response_tokens
    if positions is not None and longest > positions:
        room = positions - longest + budget
        less = "less, and less of game.max_prompt_tokens or game.max_document_tokens"
        fix = f"with the prompt it makes {longest}, verification included, and the model reads at "
        fix += f"most {positions} tokens; give {f'at most {room}' if room > 0 else less}"
        raise ConfigError("game.max_response_tokens", budget, fix)

    check_prompts(rules, config, question)


def check_prompts(rules: Rules, config: GameConfig, question: Question) -> None:
    """Makes sure that prompts fit into their budget; one question stands for all of them."""
    answer = min((truth.answer for truth in rules.world.answers), key=len, default="")
    lengths = {
        "proposer": len(rules.prompts.proposer(answer, config.asked_searches[0])),
        "solver": len(rules.prompts.solver(question.text, config.max_searches)),
    }
    role = max(lengths, key=lambda name: lengths[name])
    if lengths[role] > config.max_prompt_tokens:
        fix = f"the {role}'s prompt alone takes {lengths[role]} tokens (prompts: {config.prompts})"
        raise ConfigError("game.max_prompt_tokens", config.max_prompt_tokens, fix)
