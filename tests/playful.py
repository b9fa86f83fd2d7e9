"""A policy of random weights that plays: it likes tags and names, so games of all outcomes come
about by chance."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

from ssp_agents.engines.base import Engine, Generation
from ssp_agents.rollout import play
from ssp_agents.shipped.tiny.bootstrap import save_policy, tiny_config, tiny_tokenizer
from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World
from ssp_env.worlds.mini import MiniWorld

WORLD = {"seed": 0, "entities": 50}
GAME = {
    "attempts": 4,
    "max_searches": 3,
    "top_k": 1,
    "max_prompt_tokens": 64,
    "max_response_tokens": 96,
    "max_document_tokens": 24,
    "question_chars": (0, 1000),
    "asked_searches": (1, 1),
    "filters": (),
    "verifier": "none",
    "noise_documents": 1,
    "prompts": "mini",
}
"""Rules under which about half of the games are valid."""

LEARNING: dict[str, Any] = {
    "batch_size": 8,
    "minibatches": 1,
    "lr": 1e-3,
    "warmup_steps": 0,
}


class LengthJudge:
    """Calls an answer right when it has an even number of characters: rewards differ within a
    group."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        return [Verdict(len(task.prediction) % 2 == 0) for task in tasks]


def make_rules(world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The rules with that judge."""
    return Rules.build(world, tokenizer, game, judge=LengthJudge())


class LethalJudge(LengthJudge):
    """Kills the process that it works in, as ``kill -9`` would, each time that a file is there."""

    def __init__(self, trigger: Path) -> None:
        self._trigger = trigger

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        try:
            self._trigger.unlink()
        except FileNotFoundError:  # or another process was first
            return super().judge(tasks)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody comes here")


def lethal_rules(trigger: Path, world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The rules with that judge, which is asked when a batch's attempts are done."""
    return Rules.build(world, tokenizer, game, judge=LethalJudge(trigger))


def new_batch(rules: Rules, num_games: int = 16) -> GameBatch:
    """A batch of games that nobody has played yet; always the same."""
    answers = rules.world.answers
    return GameBatch(
        rules,
        lambda rng, count: [answers[i] for i in rng.integers(len(answers), size=count)],
        num_games,
        [4],
    )


def play_watched(rules: Rules, engine: Engine, temperature: float = 0.8) -> GameBatch:
    """Plays a batch of games, whose loss masks are 1 on precisely the tokens that the engine gave
    out."""
    given, step = defaultdict[int, list[int]](list), engine.step

    def watched() -> list[tuple[int, Generation]]:
        finished = step()
        for key, generation in finished:
            given[key] += generation.ids
        return finished

    with patch.object(engine, "step", watched):
        played = play(new_batch(rules), engine, temperature=temperature)
    written = [t for game in played.games for t in game.trajectories() if sum(t.mask)]
    masked = [[i for i, own in zip(t.ids, t.mask, strict=True) if own] for t in written]
    assert sorted(masked) == sorted(given.values())
    return played


def small_config(vocab_size: int) -> Lfm2Config:
    """One convolution and one attention layer of width 32, output layer of its own."""
    values = tiny_config(vocab_size).to_dict() | {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "layer_types": ["conv", "full_attention"],
        "tie_word_embeddings": False,
        "block_dim": 32,
        "conv_dim": 32,
    }
    return Lfm2Config(**values)


def playful_model(seed: int = 0) -> Lfm2ForCausalLM:
    """Random weights, tilted towards the tags of actions and some names of the world."""
    config = small_config(len(tiny_tokenizer()))
    return tilted(Lfm2ForCausalLM._from_config(config, attn_implementation="eager"), seed)


def tilted(model: Any, seed: int) -> Any:
    """A model of the tiny policy's tokens, with weights of that kind."""
    tokenizer = tiny_tokenizer()
    generator = torch.Generator().manual_seed(seed)
    tags = [
        tag for tag in Tags().all() if not tag.strip("</>").startswith(("think", "information"))
    ]
    names = list(MiniWorld(**WORLD).train_graph.entities)[:20]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.2, generator=generator)
        # The first channel is the same for every token, so the output layer's first column is a
        # bias.
        model.model.embed_tokens.weight[:, 0] = 4.0
        model.lm_head.weight[:, 0] = -1.0
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(tags), 0] = 1.0
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(names), 0] = 0.4
    return model


def damage(file: Path) -> None:
    """Turns over a bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def save_playful(directory: Path, seed: int = 0) -> Path:
    """Writes such a policy as a model directory."""
    save_policy(playful_model(seed), directory)
    return directory


def quicken_connectors() -> None:
    """Lets RLlib build learners and env runners in a fifth of the time that it takes in pytest.

    Each of the dozen connectors of a learner takes ``inspect.stack()[1].frame``, which looks up the
    source of every frame; the stacks of pytest are deep.
    """
    from ray.rllib.connectors import connector_v2

    def stack() -> list[SimpleNamespace]:
        frames = sys._getframe(1), sys._getframe(2)
        return [SimpleNamespace(frame=frame) for frame in frames]

    connector_v2.inspect = SimpleNamespace(**{**vars(inspect), "stack": stack})
