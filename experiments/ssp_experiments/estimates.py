"""Memory and seconds of a training step, by closed formulas: nothing is loaded or computed.

Weights, gradients, moments and caches are exact. What passes of the learner keep (activations) is
an estimate whose factors were fitted to 180 counts with fake tensors, of policies of .1M to 32B
parameters (`benchmarks/results/plans.json`, whose script its commit has). For Qwen2.5's shapes at
12,288 tokens it is within 20% of them, and the learner's total within 5%, as it was on an H200
(`benchmarks/results/gpu.json`). On a CPU, processes hold their libraries and what the allocator
keeps as well: `benchmarks/results/plan_memory.json` has what was resident. Seconds serve to compare
layouts with each other: most of their rates are taken, not measured here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ssp_agents.config import LearningConfig, given_per_step, played_at_once, vllm_share
from ssp_agents.losses import find_algorithm
from ssp_agents.precision import SMALL, passes_dtype
from ssp_agents.scoring import LOGITS_PER_CHUNK
from ssp_agents.sharding import layers_of
from ssp_env.game.config import GameConfig
from ssp_experiments.config import RunConfig

FLOAT, HALF = 4, 2
"""Bytes of float32 and of bfloat16."""
_SAMPLED = 32
"""Bytes per logit while a token is sampled: logits, log-probabilities, and their running sum in
double precision."""

LIBRARIES = 620 * 2**20
"""Bytes of Python and its libraries in each process on a CPU, which has no memory but its own
(measured)."""
KEPT_APART = {True: 1.3, False: 2.0}
"""Resident bytes per byte that a pass keeps on a CPU, in bfloat16 and in float32: the C library
puts short-lived tensors among those that are kept, and cannot give their room back (measured)."""

PEAK = 989e12
"""FLOP per second of an H100 in bfloat16, from its data sheet."""
MFU = 0.4
"""Share of it that learners reach; 38% to 43% were published of Llama 3 on H100s
(https://arxiv.org/abs/2407.21783, table 4). Here, beside other work, 1.5B reached 30%, .5B 22%."""
RATE, OF_PARAMETERS, OF_ROWS = 5_000, 7.6e9, 160
"""Tokens per second that vLLM samples on an H100, of a policy of so many parameters, with so many
rows of some thousand tokens at once (assumed). It falls with larger policies and fewer rows."""
FASTEST = 10_000
"""Tokens per second that one process hands through, whatever the policy (measured on a CPU)."""
TRANSFORMERS = 0.1
"""Share of vLLM's rate that the engine of `transformers` reaches (an H200, 1.5B, 160 rows)."""
MEAN_ROW, SAMPLED = 0.285, 0.2
"""Share of the longest row that a mean row has, and of its tokens that the policy wrote (assumed).
"""
HANDED_OVER = 1.5e9
"""Bytes of weights per second from learners through the object store to engines (measured on a
CPU)."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a causal LM: numbers of parameters, of layers and heads, and widths."""

    parameters: int
    """All of them; tied ones once."""
    layer: int
    """Parameters of the largest layer."""
    outside: int
    """Parameters that are in no layer: embedding, output layer, last norm."""
    adapted: int
    """Parameters of an adapter of rank 1: rows and columns of all linear maps in the layers."""
    layers: int
    width: int
    inner: int
    """Width of the MLP."""
    heads: int
    head_size: int
    cached: int
    """Numbers that the KV cache keeps of one token."""
    vocabulary: int
    tied: bool


def shape_of(lm: Any) -> Shape:
    """Sizes of a causal LM of `transformers`, which may be on the meta device."""
    layers = layers_of(lm)
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    maps = [m for layer in layers for m in layer.modules() if isinstance(m, torch.nn.Linear)]
    parameters = sum(p.numel() for p in lm.parameters())

    # What an architecture has no name for is taken as it is in most of them.
    config = lm.config.get_text_config()
    vocabulary, width = lm.get_input_embeddings().weight.shape
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(layers)
    heads = getattr(config, "num_attention_heads", None) or 1
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_size = getattr(config, "head_dim", None) or width // heads

    return Shape(
        parameters=parameters,
        layer=max(sizes, default=0),
        outside=parameters - sum(sizes),
        # At rank 1, A has a number for each input of a linear map, and B one for each output.
        adapted=sum(m.in_features + m.out_features for m in maps),
        layers=len(layers),
        width=width,
        inner=getattr(config, "intermediate_size", None) or 4 * width,
        heads=heads,
        head_size=head_size,
        # Keys and values of all layers but convolutions, whose state does not grow.
        cached=2 * sum(kind != "conv" for kind in kinds) * kv_heads * head_size,
        vocabulary=vocabulary,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
    )


def longest_row(game: GameConfig) -> int:
    return game.max_prompt_tokens + game.max_response_tokens


def rows_per_pass(game: GameConfig, learning: LearningConfig) -> int:
    """Rows of that length in one micro-batch."""
    return max(1, learning.microbatch_tokens // longest_row(game))


# -- memory ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """Memory of one kind of device at its peak."""

    name: str
    count: int
    parts: dict[str, int]
    """Bytes by what they hold."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def plan(shape: Shape, config: RunConfig, memory: float = 0) -> tuple[Device, ...]:
    """Memory that a run of a policy of this shape needs on each kind of device. ``memory`` is the
    bytes of each GPU, of which vLLM fills its share; 0 counts what it must have."""
    compute = config.compute
    kept, passing = _learner(shape, config)
    weights, playing = _engine(shape, config, memory)
    learners, runners = max(1, compute.learners), max(1, compute.env_runners)
    shared = compute.gpus == "shared"

    if shared or (compute.gpus, compute.env_runners, compute.learners) == ("none", 0, 0):
        # Engine and learner take turns: caches are dropped before an update, activations after it.
        if shared and config.engine.kind == "vllm":
            weights, playing = {}, {**weights, **playing}  # it sleeps without its weights
        larger = passing if sum(passing.values()) >= sum(playing.values()) else playing
        return (Device("learner and engine", learners, {**kept, **weights, **larger}),)

    return (
        Device("learner", learners, {**kept, **passing}),
        Device("engine", runners * compute.tensor_parallel, {**weights, **playing}),
    )


def least_share(shape: Shape, config: RunConfig, memory: float) -> float:
    """Share of a GPU that vLLM needs for the weights and the longest row, in twentieths; one of
    them is for its own passes, which are not counted."""
    least = sum(sum(part.values()) for part in _engine(shape, config, 0))
    return (math.ceil(20 * least / memory) + 1) / 20


def _learner(shape: Shape, config: RunConfig) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of each learner: always, and during an update."""
    learning, compute = config.learning, config.compute
    sharded = compute.sharding == "fsdp2" and compute.learners > 1
    half = learns_in_half(shape, config)
    trained = learning.lora_rank * shape.adapted or shape.parameters
    algorithms = [find_algorithm(learning, role) for role in learning.learning_roles]
    with_kl = sum(algorithm.kl for algorithm in algorithms) if learning.kl_coeff > 0 else 0
    # Separate policies have optimizers of their own; a proposer is taken for one of this size.
    separate = learning.policies == "separate"
    policies = len(algorithms) if separate else 1
    # Adapters of both roles lie over one model, unless it is spread or the proposer has another.
    bases = 1 if learning.lora_rank and not (sharded or learning.proposer_model) else policies
    size, shares = HALF if half else FLOAT, compute.learners if sharded else 1

    # Weights and gradients are float32, as are Adam's two moments of each trained weight.
    weights, gradients = FLOAT * shape.parameters // shares, FLOAT * trained // shares
    rounded = half and learning.lora_rank and not sharded
    if rounded:  # beneath adapters, layers are kept as passes read them
        weights -= HALF * (shape.parameters - shape.outside)
    kept = {"weights": bases * weights, "Adam's moments": policies * 2 * gradients}
    if compute.gpus == "none":
        kept["libraries"] = LIBRARIES
    if learning.lora_rank:
        kept["adapters"] = policies * gradients  # without them, the policy is its own reference
    elif with_kl:
        kept["reference"] = min(policies, with_kl) * weights

    passing = {"gradients": gradients}
    if len(algorithms) > 1 and not separate:
        # Every tenth step, the proposer's are kept apart from the others.
        passing["one role's gradients"] = gradients
    if sharded:
        # One layer computes while the next one arrives; what is in no layer stays whole.
        models = 2 if "reference" in kept else 1
        passing["gathered layers"] = models * size * (2 * shape.layer + shape.outside)
        passing["gradients to deal"] = (size + FLOAT) * min(trained, shape.layer + shape.outside)
    elif half and not rounded:
        # Autocast keeps a copy of all linear maps until the micro-batch is done.
        lookup = 0 if shape.tied else shape.vocabulary * shape.width
        passing["weights in bfloat16"] = HALF * (shape.parameters - lookup)
    passing["activations"] = _activations(shape, config, half, sharded)
    return kept, passing


def learns_in_half(shape: Shape, config: RunConfig) -> bool:
    """True where a learner's passes are computed in bfloat16: on GPUs, unless it is told otherwise,
    and where this machine's CPU would."""
    dtype = config.learning.dtype
    if config.compute.gpus != "none":
        return dtype != "float32"
    return passes_dtype(dtype, torch.device("cpu"), small=shape.parameters < SMALL) is not None


def _activations(shape: Shape, config: RunConfig, half: bool, sharded: bool) -> int:
    """Bytes that passes over one micro-batch of the longest rows hold at their peak."""
    game, learning = config.game, config.learning
    # The last token of a row is predicted, and not read.
    rows, read = rows_per_pass(game, learning), longest_row(game) - 1
    tokens, written = rows * read, rows * game.max_response_tokens
    # Attention that is written out, of small policies, keeps its scores.
    scores = rows * shape.heads * read**2 if shape.parameters < SMALL else 0
    vocabulary, on_cpu = shape.vocabulary * shape.width, config.compute.gpus == "none"

    # Bytes per number, as fitted: norms, queries, keys, values and the residual stream; the MLP;
    # scores. Under autocast some are kept in both precisions. Beneath adapters, norms keep less.
    of_width, of_inner, of_scores = (15.3, 8.2, 7.5) if half else (18, 16, 4.8)
    if learning.lora_rank:
        of_width -= 4
    width = shape.width + shape.heads * shape.head_size
    layer: float = tokens * (of_width * width + of_inner * shape.inner) + of_scores * scores
    kept, again = shape.layers * layer, 0.0
    if learning.gradient_checkpointing:
        # Only each layer's input is kept; one layer at a time is computed again.
        stream = HALF if sharded and half else FLOAT
        kept, again = float(shape.layers * tokens * shape.width * stream), layer
    if on_cpu:
        kept, again = KEPT_APART[half] * kept, KEPT_APART[half] * again

    # The peak is in the backward pass of the output layer (a chunk of logits, with entropies), of a
    # layer, or of the embedding, whose gradient comes in addition to that of a tied output layer.
    logits = min(written * shape.vocabulary, LOGITS_PER_CHUNK)
    # Beneath adapters it has no gradient; in bfloat16 it is rounded, and laid out anew, twice.
    of_head = (6 if half else 0) if learning.lora_rank else (2 if half else 8)
    head = 16 * logits + 8 * written * shape.width + of_head * vocabulary
    backward = again + (5.5 if half else 12) * tokens * shape.inner + 3 * scores
    of_embedding = 0 if learning.lora_rank else (12 if shape.tied else 7) * vocabulary
    return int(max(kept + max(head, backward), of_embedding))


def _engine(
    shape: Shape, config: RunConfig, memory: float
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of each GPU of an env runner's engine: always, and while it plays."""
    game, learning, compute = config.game, config.learning, config.compute
    size = HALF if config.engine.in_half(compute.gpus != "none") else FLOAT
    longest, played = longest_row(game), played_at_once(game, learning)
    questions = played // game.attempts
    proposes = given_per_step(learning, game) < learning.batch_size
    # ``auto`` may come to be the policy, so it is counted as such.
    by_policy = proposes and game.verifier in ("policy", "frozen", "auto")
    verifies = by_policy and not game.verifies_by_attempt
    verification = longest + game.verification_tokens if verifies else 0

    spread = compute.tensor_parallel
    weights = {"engine's weights": size * shape.parameters // spread}
    if learning.partner:
        weights["partner's weights"] = weights["engine's weights"]  # taken for one of that size
    if learning.policies == "separate" and not (learning.lora_rank and not learning.proposer_model):
        weights["proposer's weights"] = weights["engine's weights"]
    if game.verifier == "frozen":
        apart = learning.verifier_model or not learning.lora_rank
        own = size * (shape.parameters if apart else learning.lora_rank * shape.adapted)
        weights["verifier's weights"] = own
        if learning.verifier_refresh and compute.gpus == "none":
            weights["copy of the verifier"] = own  # for env runners that come back
    if config.engine.kind == "vllm":
        # vLLM fills its share with the cache, and has to have room for the longest row.
        row = size * shape.cached * max(longest, verification) // spread
        share = vllm_share(config.engine, compute.gpus == "shared")
        filled = int(share * memory) - weights["engine's weights"]
        return weights, {"KV cache": max(row, filled)}

    # All trajectories of a phase, each at its longest.
    resident = max(played * longest, questions * game.verifications[1] * verification)
    cache = size * shape.cached * resident
    # The largest pass reads all prompts, or the documents of all searches, with a mask over all
    # that each token may see. Over its tokens, one layer's numbers exist at a time.
    shown = min(game.top_k * game.max_document_tokens, game.max_response_tokens)
    # Bytes of one layer's numbers per token that is read.
    read = size * (4.6 * shape.heads * shape.head_size + 2.9 * shape.inner)
    prompts = questions * game.max_prompt_tokens * (read + (size + 1) * game.max_prompt_tokens)
    documents = played * shown * (read + (size + 1) * longest)
    # A layer's keys and values are copied for each of the query heads that share them.
    copied = 2 * shape.heads * shape.head_size * size * resident
    passes = copied + max(prompts, documents) + _SAMPLED * shape.vocabulary * played
    return weights, {
        "KV cache": cache,
        "KV cache, while rows join": cache,  # a second one, into which both are copied
        "the engine's passes": int(passes),
    }


# -- seconds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step's parts."""

    play: float
    learn: float
    weights: float
    overlap: bool

    @property
    def step(self) -> float:
        both = self.play, self.learn
        return (max(both) if self.overlap else sum(both)) + self.weights

    def __str__(self) -> str:
        parts = f"play {self.play:.0f}, learn {self.learn:.0f}, weights {self.weights:.0f}"
        at_once = ", playing while learning" if self.overlap else ""
        return f"{self.step:.0f} s a step on H100s ({parts}{at_once}), estimated"


def estimate(shape: Shape, config: RunConfig, memory: float) -> Estimate:
    """Seconds of a step of a run on GPUs of ``memory`` bytes each."""
    compute, game, learning = config.compute, config.game, config.learning
    runners, learners = max(1, compute.env_runners), max(1, compute.learners)
    # B proposals and B n attempts, each as long as a mean row.
    row = MEAN_ROW * longest_row(game)
    proposed = learning.batch_size - given_per_step(learning, game)
    tokens = (proposed + learning.batch_size * game.attempts) * row

    # Rows that an engine samples at once: those of a batch of games, or as many as its cache holds.
    at_once = played_at_once(game, learning)
    # Tokens per second of one engine: more with its GPUs, fewer with the policy's parameters.
    rate = RATE * compute.tensor_parallel * OF_PARAMETERS / shape.parameters
    if config.engine.kind == "vllm":
        share = vllm_share(config.engine, compute.gpus == "shared")
        # Bytes that its share of all its GPUs leaves beside the weights, and rows that they hold.
        cache = share * memory * compute.tensor_parallel - HALF * shape.parameters
        rate *= min(1, min(at_once, cache / (HALF * shape.cached * row)) / OF_ROWS)
    else:
        rate *= TRANSFORMERS * min(1, at_once / OF_ROWS)
    # Runners play whole game batches, so the last ones may leave some of them without work.
    game_batches = math.ceil(learning.batch_size / learning.round_size)
    # Share of the step that the busiest runner plays.
    busiest = math.ceil(game_batches / runners) / game_batches
    # Tokens / (tokens per second). Where weights leave no room for a cache, the rate is below 0.
    play = SAMPLED * tokens * busiest / max(1.0, min(rate, FASTEST))

    # Per token and parameter: 2 forward and 4 backward, 2 to compute layers again, 2 of the KL.
    factor = 6 + 2 * bool(learning.gradient_checkpointing) + 2 * (learning.kl_coeff > 0)
    # FLOP / (FLOP per second).
    learn = factor * shape.parameters * tokens / (learners * PEAK * MFU)
    sent = learning.lora_rank * shape.adapted or shape.parameters
    weights = HALF * sent / HANDED_OVER
    return Estimate(play, learn, weights, compute.overlap)
