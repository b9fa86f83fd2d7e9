"""The policy wiki-small that ships: a stock Lfm2 of 1.8 million parameters, trained from nothing on
demonstrations over real sentences, in an hour of one core.

    python -m benchmarks.wiki_small --out DIR

After Ctrl-C, the same command goes on where it was stopped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, Lfm2ForCausalLM, PreTrainedTokenizerFast

from benchmarks.harness import origin, parser
from ssp_agents.checksums import sha256_of
from ssp_agents.shipped.tiny import bootstrap as tiny
from ssp_agents.shipped.tiny.traces import Trace
from ssp_agents.shipped.wiki_small.traces import TraceWriter
from ssp_env.disk import new_folder, replacing
from ssp_env.errors import RunError
from ssp_env.game.config import WIKI_GAME, GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.wiki import WikiSentences

WORDS = 8192
"""Entries of the vocabulary."""


def wiki_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-pair encoding fitted to the sentences. Every word begins with its space, wherever it
    stands, so that a name has the same tokens in a prompt, a document and an answer."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    raw.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>", *Tags().all()]
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    raw.train_from_iterator((d.text for d in WikiSentences().corpus), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>")


def wiki_model(vocab_size: int, generator: torch.Generator) -> Lfm2ForCausalLM:
    """A fresh model whose attention copies from the start: each layer hands on what it attends to
    (V and O are a rotation and its transpose), and a token attends to its like (Q and K)."""
    config = tiny.tiny_config(vocab_size)
    model: Lfm2ForCausalLM = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_tokens" in name:
                weight.normal_(0.0, 1.0, generator=generator)
            elif name.endswith("conv.conv.weight"):
                weight.uniform_(-0.5, 0.5, generator=generator)
            elif weight.ndim >= 2:
                size = 0.25 if name.endswith(("out_proj.weight", "w2.weight")) else 1.0
                weight.normal_(0.0, size * weight.shape[1] ** -0.5, generator=generator)
        for attention in _attentions(model):
            rotation, _ = torch.linalg.qr(torch.randn(tiny.WIDTH, tiny.WIDTH, generator=generator))
            attention.v_proj.weight.copy_(rotation)
            attention.out_proj.weight.copy_(rotation.T)
            noise = torch.randn(tiny.WIDTH, tiny.WIDTH, generator=generator) * tiny.WIDTH**-0.5
            attention.k_proj.weight.copy_(0.7 * attention.q_proj.weight + 0.714 * noise)
        _attentions(model)[-1].out_proj.weight.mul_(4.0)
        model.model.embedding_norm.weight.fill_(0.2)
    model.tie_weights()
    return model


def _attentions(model: Lfm2ForCausalLM) -> list[Any]:
    return [layer.self_attn for layer in model.model.layers if hasattr(layer, "self_attn")]


STEPS = 3000
"""Optimizer steps of the policy that ships."""
EMBEDDINGS_LR = 0.05
"""Share of it for the embeddings."""
FROZEN = 0.08
"""First share of the steps, in which embeddings and the last layer's V and O stay as they are:
copying is learnt first."""
ATTENTION_WEIGHT = 0.5
"""Weight of the loss on attention."""
_TRACES = 0x3171
"""Second number of the seeds that demonstrations are drawn by."""
_SAVED_EVERY = 200
STATE = "state.pt"
"""File with the state of training."""


def bootstrap(
    game: GameConfig,
    folder: Path,
    seed: int = 0,
    steps: int = STEPS,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[Lfm2ForCausalLM, PreTrainedTokenizerFast]:
    """Trains a fresh policy, in float32; resumes from the state in ``folder``.

    The same seed gives the same weights on one kind of processor, however often it was stopped.

    Args:
        game: format that it will play in.
        folder: keeps the tokenizer, and every 200 steps the state of training.
        report: called after each step with its number and its loss in nats a token.
    """
    if not (folder / "tokenizer.json").exists():
        wiki_tokenizer().save_pretrained(folder)
    tokenizer = HuggingFaceTokenizer.load(folder)
    writer = TraceWriter(game, tokenizer)
    model = wiki_model(tokenizer.vocab_size, torch.Generator().manual_seed(seed)).train()

    # Groups of parameters: embeddings and the last copying layer wait, all others learn at once.
    last, embeddings = _attentions(model)[-1], model.model.embed_tokens.weight
    copies = last.v_proj.weight, last.out_proj.weight
    waiting = {id(weight) for weight in (embeddings, *copies)}
    groups = [
        {"params": [w for w in model.parameters() if id(w) not in waiting], "share": 1.0},
        {"params": [embeddings], "share": EMBEDDINGS_LR},
        {"params": [*copies], "share": 1.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=tiny.LR, betas=(0.9, 0.98), weight_decay=0.01)

    step, pool, state = 0, 0, folder / STATE
    if state.exists():
        saved = torch.load(state, weights_only=True)
        if (saved["seed"], saved["steps"]) != (seed, steps):
            begun = f"--seed {saved['seed']} --steps {saved['steps']}"
            raise RunError(f"{folder} was begun with {begun}: give the same, or delete it")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, pool = saved["step"], saved["pool"]

    saved_at = step
    while step < steps:
        # A pool of demonstrations follows from its number alone, so training can go on from it.
        rng = np.random.default_rng([seed, _TRACES, pool])
        for batch in tiny.batches(list(islice(writer.stream(rng), tiny.POOL)), rng):
            step += 1
            for number, group in enumerate(optimizer.param_groups):
                waits = number > 0 and step < FROZEN * steps
                group["lr"] = 0.0 if waits else tiny.LR * group["share"] * tiny.rate(step, steps)
            token_loss, attention = losses(model, batch)
            tiny.descend(optimizer, token_loss + ATTENTION_WEIGHT * attention, model)
            report(step, float(token_loss.detach()))
            if step == steps:
                break
        pool += 1
        if step - saved_at >= _SAVED_EVERY:
            saved_at = step
            weights = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with replacing(state, "wb") as file:
                torch.save(
                    {**weights, "step": step, "pool": pool, "seed": seed, "steps": steps}, file
                )
    return model.eval(), PreTrainedTokenizerFast.from_pretrained(folder)


def losses(model: Lfm2ForCausalLM, batch: list[Trace]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of the player's own tokens, in nats a token; and of the places that they are
    copied from, under the mean attention of the last layer's heads."""
    token_loss, result = tiny.token_loss(model, batch, output_attentions=True)
    source = tiny.padded(batch, "source", -1)[:, 1:]  # (rows, length - 1)

    # Attention of the token before, from which the copied one is predicted: (copied, heads).
    rows, places = torch.nonzero(source >= 0, as_tuple=True)
    looked = result.attentions[-1][rows, :, places, source[rows, places]]
    return token_loss, -torch.log(looked.mean(-1) + 1e-6).mean()


def main() -> int:
    """Writes the model directory, with its origin."""
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=STEPS)
    settings = options.parse_args()
    torch.set_num_threads(1)

    def report(step: int, loss: float) -> None:
        if step % 100 == 0:
            print(f"step {step}/{settings.steps}, loss {loss:.3f}", file=sys.stderr)

    with new_folder(settings.out, resume=True) as folder:
        model, tokenizer = bootstrap(WIKI_GAME, folder, settings.seed, settings.steps, report)
        tiny.save_policy(model, folder, tokenizer)
        (folder / STATE).unlink(missing_ok=True)
        (digest,) = sha256_of([folder / "model.safetensors"])
        text = json.dumps({**origin(), "sha256": digest}, indent=2) + "\n"
        (folder / "origin.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
