"""Decides whether a model can be played and learnt from: by comparison with its own plain forward
pass, not by a list of architectures."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssp_agents.causal_lm import keeps_every_token, plain_logits
from ssp_agents.precision import is_small
from ssp_agents.scoring import token_scores
from ssp_env.errors import ModelError

TOKENS = 8
"""Tokens of each of the two texts that are compared."""
_WORDS, _WIDEST = 64, 1024
"""Words, and most width, of the model that :func:`check_causal` makes."""
ROUNDING = {torch.float32: 3e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
"""How far apart log-probabilities may be by rounding, as a share of how far apart the model's own
likeliest and least likely token are."""


@dataclass(frozen=True)
class Plain:
    """What a model says of two texts by its own forward pass, without cache or padding."""

    kind: str
    """The architecture, as its config names it."""
    ids: Tensor
    """int64 (2, TOKENS)."""
    logprobs: Tensor
    """float32 (2, TOKENS, vocabulary)."""
    spread: float
    """Distance in nats of the likeliest from the least likely token."""
    bound: float
    """Distance in nats that rounding explains."""

    @classmethod
    @torch.no_grad()
    def of(cls, lm: Any, vocab_size: int) -> Plain:
        """Reads the texts; a ModelError where a beginning changes with what follows it."""
        weight = next(lm.parameters())
        # Any tokens will do: a cache must not change what the model says, sense or not.
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(vocab_size, (2, TOKENS), generator=generator).to(weight.device)
        logprobs = _logprobs(plain_logits(lm, ids), vocab_size)
        # Models differ in how far apart their logits are, and rounding grows with that.
        spread = float(logprobs.amax() - logprobs.amin())
        bound = ROUNDING[weight.dtype] * spread
        plain = cls(lm.config.model_type, ids, logprobs, spread, bound)

        # Of a causal model, log p(y_t | y_<t) is the same whether or not anything follows y_t.
        begun = TOKENS // 2
        beginning = _logprobs(plain_logits(lm, ids[:, :begun]), vocab_size)
        apart = plain.distance(beginning, logprobs[:, :begun])
        if not apart <= plain.bound:
            raise ModelError(
                f"{plain.kind} is no causal language model: what it says of a text's beginning "
                f"changes by {apart:.2g} nats with the text that follows, so it has no causal mask "
                "and no engine can play it (an encoder; is_decoder=true in config.json gives "
                "some a causal mask, if they were trained with one)"
            )
        return plain

    @staticmethod
    def distance(computed: Tensor, expected: Tensor) -> float:
        """Largest distance of two tensors of log-probabilities, in nats; NaN counts as infinite."""
        return float((computed - expected).abs().nan_to_num(nan=torch.inf).amax())

    def refusal(self, apart: float, error: str) -> ModelError:
        """Of an engine whose passes with a cache are so far apart, or end in an error."""
        figure = "" if math.isinf(apart) else self.figure(apart)
        # Where nothing was kept, all that was read before is missing.
        slightly = apart < 0.01 * self.spread
        cause = (
            "it goes on by single tokens otherwise than it reads a whole text"
            if slightly
            else f"it keeps what it has read outside of the cache that it is given{error}"
        )
        what = f"the transformers engine cannot play {self.kind}"
        return ModelError(f"{what}: {figure}{cause}; engine.kind=vllm may play it")

    def figure(self, apart: float) -> str:
        """The distance in words."""
        return (
            f"its log-probabilities are {apart:.2g} nats from those of its own forward pass, of "
            f"which rounding explains {self.bound:.1g}; "
        )


def check_causal(config: Any) -> None:
    """Refuses an architecture whose smallest model of random weights, of one layer and a few words,
    lets a text's beginning change with what follows it; a ModelError then. That takes a moment,
    and loads no weights; what cannot be made so small is found out when the model is loaded."""
    from transformers import AutoModelForCausalLM

    small = copy.deepcopy(config)
    small.num_hidden_layers, small.vocab_size = 1, _WORDS
    if getattr(config, "hidden_size", _WIDEST + 1) > _WIDEST:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            lm = AutoModelForCausalLM.from_config(small, dtype=torch.float32)
            Plain.of(lm.eval(), _WORDS)
        except ModelError:
            raise
        except Exception:  # each architecture has its own way to fail
            return


def check_scoring(lm: Any, vocab_size: int) -> float:
    """Compares how the learner scores two rows of unequal length with a causal LM's own forward
    pass; returns their distance in nats, and raises a ModelError where it is beyond rounding.

    ``vocab_size`` is the tokenizer's; logits beyond it are left out on both sides."""
    plain = Plain.of(lm, vocab_size)
    lengths = torch.tensor([TOKENS, TOKENS - 3], device=plain.ids.device)
    places = torch.arange(TOKENS, device=plain.ids.device)
    mask = ((places > 0) & (places < lengths[:, None])).float()  # (2, TOKENS)
    # Padding is token 0, as in ``columns_of``.
    padded = plain.ids * (places < lengths[:, None])
    with torch.no_grad():
        scores = token_scores(lm, padded, mask, 1.0, vocab_size, entropies=False)

    # The distribution at t is about the token at t + 1.
    # (2, TOKENS - 1), of which the mask chooses what is compared.
    expected = plain.logprobs[:, :-1].gather(2, plain.ids[:, 1:, None]).squeeze(2)
    apart = plain.distance(scores.logprobs, expected[mask[:, 1:] > 0])
    if not apart <= plain.bound:
        raise ModelError(
            f"the learner cannot score {plain.kind}: {plain.figure(apart)}it can be played by "
            "engine.kind=vllm, and not be trained"
        )
    return apart


def shares_prefix(lm: Any, vocab_size: int, *, checkpointed: bool) -> bool:
    """True if a learner reads what rows begin with once. Layers that are computed again keep no
    keys and values, and small policies keep their bits."""
    return not is_small(lm) and not checkpointed and can_share_prefix(lm, vocab_size)


@torch.no_grad()
def can_share_prefix(lm: Any, vocab_size: int) -> bool:
    """True if two rows that share one reading of their common prefix are scored as by the
    model's own forward pass; not so with windows, and with states of any other kind."""
    if not keeps_every_token(lm):
        return False
    plain = Plain.of(lm, vocab_size)
    ids = plain.ids.clone()
    # Two rows with one first half, which counts as their prompt; the second half is scored.
    ids[1, : TOKENS // 2] = ids[0, : TOKENS // 2]
    mask = (torch.arange(TOKENS, device=ids.device) >= TOKENS // 2).float().expand(2, -1)
    scores = token_scores(lm, ids, mask, 1.0, vocab_size, entropies=False, share_prefix=True)
    expected = _logprobs(plain_logits(lm, ids)[:, :-1], vocab_size)
    expected = expected.gather(2, ids[:, 1:, None]).squeeze(2)[mask[:, 1:] > 0]
    return plain.distance(scores.logprobs, expected) <= plain.bound


def _logprobs(logits: Tensor, vocab_size: int) -> Tensor:
    return torch.log_softmax(logits[..., :vocab_size].float(), dim=-1)
