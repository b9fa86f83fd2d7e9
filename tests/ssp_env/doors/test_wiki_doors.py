"""The policy that ships for real text, behind every door: the same games, to the last token."""

from __future__ import annotations

from pathlib import Path

import all_doors as doors
import torch
from tests.ssp_env.worlds.few import few_passages

from ssp_agents.models import load_model, shipped_directory
from ssp_env.game.config import WIKI_GAME
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.wiki import WikiSentences

few_passages = few_passages


def test_wiki_small_plays_the_same_games_behind_every_door(few_passages: Path) -> None:
    folder = shipped_directory("wiki-sentences")
    tokenizer, model = HuggingFaceTokenizer.load(folder), load_model(folder)
    stops = [tokenizer.encode(Tags().closing(tag))[0] for tag in ("search", "answer", "question")]
    turns: dict[tuple[int, ...], list[int]] = {}

    def write(trajectory: Trajectory) -> list[int]:
        read = tuple(trajectory.ids)
        if read not in turns:
            ids = torch.tensor([read])
            most = {"max_new_tokens": trajectory.tokens_left, "eos_token_id": stops}
            attends = {"attention_mask": torch.ones_like(ids)}
            whole = model.generate(ids, do_sample=False, **attends, **most)
            # A turn that is no action ends the game.
            turns[read] = [*whole[0, len(read) :].tolist(), tokenizer.eos_id]
        return turns[read]

    game = WIKI_GAME.model_copy(
        update={"attempts": 1, "verifier": "policy", "verifications": (1, 1)}
    )
    setup = {"world": WikiSentences(), "tokenizer": tokenizer, "game": game}
    played = doors.through_all_doors(write, texts=False, **setup)
    assert "valid" in {told.record.outcome for told in played}
