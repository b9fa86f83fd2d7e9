"""Settings that cannot have any effect beside the others: a run says so when it begins."""

from __future__ import annotations

from collections.abc import Iterator

from ssp_env.game.noise import NOISE
from ssp_env.game.rules import Rules
from ssp_env.judge.world import NoVerifier, WorldVerifier


def idle_settings(rules: Rules) -> list[str]:
    """One line for each setting of these rules that changes nothing, with the reason."""
    return [*_idle_noise(rules), *_idle_prompt(rules), *_idle_budget(rules)]


def _idle_noise(rules: Rules) -> Iterator[str]:
    config = rules.config
    count, kind = config.noise_documents, config.noise_kind

    # Noise is read by the verifier alone.
    if count and isinstance(rules.verifier, NoVerifier):
        yield f"game.noise_documents = {count} has no effect: nobody verifies (game.verifier: none)"
    elif (
        count
        and isinstance(rules.verifier, WorldVerifier)
        and not getattr(rules.world, "one_to_many", True)
    ):
        yield (
            f"game.noise_documents = {count} has no effect: every fact of this world has one "
            f"value, so no document misleads its reader (world_options.one_to_many: false)"
        )

    if kind != "batch" and not count:
        yield f"game.noise_kind = {kind} has no effect: game.noise_documents is 0"
    elif kind != "batch" and rules.noise is not NOISE[kind]:
        yield f"game.noise_kind = {kind} has no effect: noise comes from a source of your own"


def _idle_prompt(rules: Rules) -> Iterator[str]:
    asked = rules.config.asked_searches
    if asked != (1, 1) and "{searches}" not in rules.prompts.texts["proposer"]:
        yield (
            f"game.asked_searches = {asked} has no effect: the proposer's prompt "
            f"(game.prompts: {rules.config.prompts}) does not name a number of searches"
        )


def _idle_budget(rules: Rules) -> Iterator[str]:
    budget = rules.config.max_verification_tokens
    if budget is not None and rules.config.verifies_by_attempt:
        yield (
            f"game.max_verification_tokens = {budget} has no effect: an attempt "
            f"(game.verification_prompt: attempt) has the solver's budgets"
        )
