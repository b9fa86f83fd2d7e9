"""From a round that an engine has played to the gradient: only tokens that it sampled teach.

`make vllm-check` runs this file with vLLM too; where vLLM is not installed, that case is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from playful import GAME, WORLD, make_rules, new_round

from agents.config import EngineConfig, LearningConfig
from agents.engines.base import Engine, StopRule
from agents.engines.opening import open_engine
from agents.models import load_model, tiny_directory
from agents.rollout import play
from agents.rows import Columns, Row, columns_of, rows_of
from agents.scoring import Scores, token_scores
from agents.update import Update, adam
from ssp_env.game.config import GameConfig
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini import MiniWorld

LEARNING = LearningConfig(
    proposer_algorithm="reinforce", solver_algorithm="reinforce", kl_coeff=0.0
)
ENGINES = [
    "transformers",
    pytest.param(
        "vllm", marks=pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
    ),
]


def played(engine: Engine, rules: Any) -> tuple[list[Row], set[tuple[int, ...]]]:
    """The rows of a round, and all turns that the engine gave out."""
    turns: set[tuple[int, ...]] = set()
    step = engine.step

    def watched() -> Any:
        finished = step()
        turns.update(tuple(generation.ids) for _, generation in finished)
        return finished

    engine.step = watched  # type: ignore[method-assign]
    return rows_of(play(new_round(rules), engine, temperature=1.0).games, LEARNING), turns


def own_stretches(row: Row) -> Iterator[tuple[int, ...]]:
    """The stretches of a row that are the policy's."""
    for own, tokens in groupby(zip(row.mask, row.ids, strict=True), lambda pair: bool(pair[0])):
        if own:
            yield tuple(int(token) for _, token in tokens)


def consists_of(turns: set[tuple[int, ...]], stretch: tuple[int, ...]) -> bool:
    """Whether a stretch is one turn or several: after one that ends with a tag in a thought, where
    nothing is searched, the next begins at once."""
    return stretch in turns or any(
        stretch[:end] in turns and consists_of(turns, stretch[end:])
        for end in range(1, len(stretch))
    )


def taught(rows: Sequence[Row]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of each pass of an update that rewards all rows: where gradients arrive, and the mask of the
    tokens that are predicted there; both bool (rows, tokens - 1)."""
    lm = load_model(tiny_directory())
    passes: list[tuple[torch.Tensor, torch.Tensor]] = []

    def score(part: Columns) -> Scores:
        found = token_scores(lm, part["ids"], part["loss_mask"], 1.0, lm.config.vocab_size)
        passes.append((hidden.pop(), part["loss_mask"]))
        return found

    def keep(module: Any, inputs: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        hidden.append(output.last_hidden_state)

    hidden: list[torch.Tensor] = []
    lm.base_model.register_forward_hook(keep)
    paid = [replace(row, advantage=1.0, weight=1.0) for row in rows]
    columns = {name: torch.as_tensor(column) for name, column in columns_of(paid).items()}
    Update(score, adam(lm.parameters(), LEARNING), LEARNING)(columns, 1)
    for states, mask in passes:
        assert states.grad is not None
        yield (states.grad != 0).any(dim=-1), mask[:, 1:] > 0


@pytest.mark.parametrize("kind", ENGINES)
def test_only_what_the_engine_sampled_teaches(
    kind: str, tokenizer: HuggingFaceTokenizer, tmp_path: Path
) -> None:
    rules = make_rules(MiniWorld(**WORLD), tokenizer, GameConfig(**GAME))
    stop = StopRule.of(rules.config, tokenizer)
    engine = open_engine(
        EngineConfig(kind=kind), tiny_directory(), tokenizer, stop, longest=rules.longest_trajectory
    )

    rows, turns = played(engine, rules)
    assert {row.role for row in rows} == {"proposer", "solver"}
    assert all(consists_of(turns, stretch) for row in rows for stretch in own_stretches(row))

    for reached, own in taught(rows):
        assert own.any()
        assert torch.equal(reached, own)
