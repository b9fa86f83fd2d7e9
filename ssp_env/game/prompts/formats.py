"""Formats of other projects' checkpoints: the tags, budgets and prompts they were trained on.

Facts of format are the projects' own, read from their released code: which tags there are, what
surrounds the documents and how each is written, whether the instructions are a system message. The
sentences of the prompts are ours. A checkpoint was trained on other ones, which a file can give in
their place (:class:`~ssp_env.game.prompts.sets.PromptSet`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ssp_env.game.protocol import Tags


@dataclass(frozen=True)
class Format:
    """Settings that a project's checkpoints expect besides the texts of its prompt set."""

    top_k: int
    """Documents per search."""
    max_searches: int
    """Searches per attempt."""
    tags: Tags = field(default_factory=Tags)
    """Names of the tags."""
    instructions: str = "solver"
    """The prompt of the set that holds its sentences; the others hold facts of format."""


FORMATS: Mapping[str, Format] = {
    # github.com/PeterGriffinJin/Search-R1: search_r1/llm_agent/generation.py, scripts/data_process
    "search-r1": Format(top_k=3, max_searches=4),
    # github.com/Alibaba-NLP/ZeroSearch: llm_agent/generation.py
    "zerosearch": Format(top_k=5, max_searches=5),
    # github.com/QingFei1/R-Search: src/eval/main.py (which sets no limit of searches) and
    # src/train/generation.py
    "r-search": Format(
        top_k=5,
        max_searches=10,
        tags=Tags(information="observation", also=("original_evidence",)),
        instructions="solver_system",
    ),
}
"""By the name of the prompt set."""


def format_settings(prompts: str) -> dict[str, Any]:
    """The settings of a game that a prompt set asks for, as plain data.

    Args:
        prompts: what ``game.prompts`` takes. If it names a project's set, ``tags``, ``top_k`` and
            ``max_searches`` come with it.
    """
    known = FORMATS.get(prompts.partition(":")[0])
    if known is None:
        return {"prompts": prompts}
    return {
        "prompts": prompts,
        "tags": known.tags.model_dump(),
        "top_k": known.top_k,
        "max_searches": known.max_searches,
    }
