"""The same games in four trainers: advantages, loss mask, loss and gradient of each, side by side.

One seeded round of the tiny policy, whose weights are then moved, so that importance ratios leave 1
and clipping stops gradients. Our update and those of TRL, verl and SkyRL get the same tokens,
masks, log-probabilities and rewards: once each with its own defaults, then set alike. Weights and
passes are in float64, so that what differs is the formulas. A partner that is not installed is left
out.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.harness import headline, origin, parser, write
from benchmarks.partners import PARTNERS, Batch, Measured, gradient
from ssp_agents.columns import Columns, columns_of
from ssp_agents.config import ROLES, LearningConfig, TrainedRole
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.losses import ALGORITHMS, Tokens, grpo_loss
from ssp_agents.models import load_model, tiny_directory
from ssp_agents.rollout import answers_of, play
from ssp_agents.rows import credited, rows_of, with_loss_weights
from ssp_agents.scoring import TokenScorer
from ssp_agents.update import Update
from ssp_env.game.config import MINI_GAME
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds import open_world

GAME = MINI_GAME.replace(attempts=5)
SLOTS = 16
STEP = 0.2
"""Distance from the weights that played to those that learn, in deviations of each tensor."""
LENGTH = GAME.max_response_tokens


# -- what settings of ours do not say: algorithms of one's own ------------------------------------


def sample_normalised(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig, epsilon: float
) -> np.ndarray:
    """Equation 4's advantages, divided by the *sample* deviation of the group (n - 1)."""
    advantages = ALGORITHMS["grpo"].advantage(rewards, groups, learning)
    for group in np.unique(groups):
        advantages[groups == group] /= rewards[groups == group].std(ddof=1) + epsilon
    return advantages


def dual_clipped(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """GRPO's loss, held at 3 |A| where A < 0."""
    return torch.minimum(grpo_loss(tokens, learning), 3.0 * tokens.advantages.abs())


OF_TRL = replace(ALGORITHMS["grpo"], advantage=partial(sample_normalised, epsilon=1e-4))
OF_SKYRL = replace(ALGORITHMS["grpo"], advantage=partial(sample_normalised, epsilon=1e-6))
OF_VERL = replace(OF_SKYRL, loss=dual_clipped)


# -- objectives, in each trainer's words ----------------------------------------------------------


class Objective(NamedTuple):
    """One loss: settings of ours, and of each partner that has it."""

    ours: Mapping[str, Any]
    partners: Mapping[str, Mapping[str, Any]]
    role: TrainedRole = "solver"


PLAIN: dict[str, Any] = {"kl_coeff": 0.0, "importance_cap": None}
"""What none of the partners has by default is off."""
CENTRED: dict[str, dict[str, Any]] = {
    "trl": {"scale_rewards": "none", "epsilon_high": 0.28},
    "verl": {"std": False, "clip_ratio_high": 0.28, "clip_ratio_c": 1e9},
    "skyrl": {"grpo_norm_by_std": False, "eps_clip_high": 0.28, "use_kl_loss": False},
}
"""Settings that make a partner's advantages and clipping ours."""


def alike(ours: Mapping[str, Any], **partners: Mapping[str, Any]) -> Objective:
    """An objective of the solver, with centred advantages and our clipping where not said."""
    return Objective({**PLAIN, **ours}, {n: {**CENTRED[n], **s} for n, s in partners.items()})


def as_shipped(partner: str, algorithm: str, **settings: Any) -> Objective:
    """A partner's own defaults, by settings of ours and an algorithm of one's own."""
    own = f"benchmarks.trainers:{algorithm}"
    token = {"solver_algorithm": own, "solver_aggregation": "token", "clip": (0.2, 0.2)}
    return Objective({**PLAIN, **token}, {partner: settings})


REINFORCE = "REINFORCE of the proposer"
OBJECTIVES = {
    "sequence": alike(
        {},
        trl={"loss_type": "grpo"},
        verl={"loss_agg_mode": "seq-mean-token-mean"},
        skyrl={"loss_reduction": "sequence_mean"},
    ),
    "token (DAPO)": alike(
        {"solver_aggregation": "token"},
        trl={"loss_type": "dapo"},
        verl={"loss_agg_mode": "token-mean"},
        skyrl={"loss_reduction": "token_mean"},
    ),
    "constant (Dr. GRPO)": alike(
        {"solver_algorithm": "dr_grpo"},
        trl={"loss_type": "dr_grpo", "max_completion_length": LENGTH},
        verl={"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": LENGTH},
        skyrl={"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": LENGTH},
    ),
    "sequence, with KL": alike(
        {"kl_coeff": 0.1},
        trl={"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": False},
        verl={"loss_agg_mode": "seq-mean-token-mean", "use_kl_loss": True, "kl_loss_coef": 0.1},
        skyrl={"loss_reduction": "sequence_mean", "use_kl_loss": True, "kl_loss_coef": 0.1},
    ),
    "GSPO": alike(
        {"solver_algorithm": "gspo", "clip": (0.02, 0.02)},
        trl={
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.02,
            "epsilon_high": 0.02,
        },
        verl={
            "loss": "gspo",
            "loss_agg_mode": "seq-mean-token-mean",
            "clip_ratio_low": 0.02,
            "clip_ratio_high": 0.02,
        },
        skyrl={
            "policy_loss_type": "gspo",
            "loss_reduction": "sequence_mean",
            "eps_clip_low": 0.02,
            "eps_clip_high": 0.02,
        },
    ),
    "CISPO": alike(
        {"solver_algorithm": "cispo", "clip": (1.0, 1.0)},
        trl={"loss_type": "cispo", "epsilon_high": 2.0},
        verl={"loss": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 1.0},
        skyrl={"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_high": 1.0}},
    ),
    "TRL as it ships": as_shipped("trl", "OF_TRL"),
    "verl as it ships": as_shipped("verl", "OF_VERL"),
    "SkyRL as it ships, no KL": as_shipped("skyrl", "OF_SKYRL", use_kl_loss=False),
    REINFORCE: Objective(
        {"proposer_algorithm": "reinforce", "importance_cap": 1.5},
        {
            "verl": {
                "std": False,
                "loss": "bypass_mode",
                "cap": 1.5,
                "loss_agg_mode": "seq-mean-token-sum",
            },
            "skyrl": {
                "grpo_norm_by_std": False,
                "policy_loss_type": "cispo",
                "cispo": {"cispo_eps_clip_high": 0.5},
                "loss_reduction": "seq_mean_token_sum_norm",
                "max_seq_len": 1,
                "use_kl_loss": False,
            },
        },
        "proposer",
    ),
}
"""By name; TRL has no groups of one, and so no REINFORCE of single proposals."""


# -- games, and our update ------------------------------------------------------------------------


class Played:
    """A round of the tiny policy, and what each role is trained on."""

    def __init__(self, seed: int) -> None:
        tokenizer = HuggingFaceTokenizer.load(tiny_directory())
        rules = Rules.build(open_world("mini"), tokenizer, GAME)
        stop = StopRule.of(GAME, tokenizer)
        engine = TransformersEngine(load_model(tiny_directory()), tokenizer, stop)
        begun = Round(rules, answers_of(rules.world), SLOTS, [seed])
        self.games = play(begun, engine, temperature=1.0).games

        self.sampler, self.learner = (load_model(tiny_directory()).double() for _ in range(2))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.learner.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight += STEP * weight.std() * noise
        self._scorers = [
            TokenScorer(model, 1.0, tokenizer.vocab_size, entropies=False)
            for model in (self.learner, self.sampler)
        ]

    def batch(self, role: TrainedRole) -> Batch:
        """A role's rows, as partners get them."""
        rows = rows_of(self.games, LearningConfig(learning_roles=(role,)))
        columns = tensors(columns_of(rows))
        learner, sampler = (scorer(columns).logprobs for scorer in self._scorers)
        return Batch(rows, self.learner, learner, sampler.detach())

    def ours(self, learning: LearningConfig, slots: int) -> Measured:
        """What our update makes of the rows; ``slots`` is B."""
        rows = credited(rows_of(self.games, learning), learning)
        columns = tensors(columns_of(with_loss_weights(rows, learning, slots, GAME)))
        learner, sampler = self._scorers
        optimizer = torch.optim.SGD(self.learner.parameters())
        update = Update(learner, optimizer, learning, reference=sampler)
        loss, _ = update.objective(columns, learner(columns).logprobs)
        found = gradient(loss, self.learner)
        tokens = int(columns["loss_mask"].sum())
        return Measured(columns["advantages"], tokens, float(loss.detach()), found)


def tensors(columns: Mapping[str, np.ndarray]) -> Columns:
    """Columns as an update takes them."""
    return {name: torch.as_tensor(column) for name, column in columns.items()}


# -- side by side ---------------------------------------------------------------------------------


def installed() -> dict[str, str]:
    """Versions of the partners that are there."""
    found = {}
    for name in PARTNERS:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def by_default(played: Played, partners: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What each trainer makes of the solver's rows by its defaults, and of the best proposal.

    Advantages are those of the first group that has different rewards, by reward.
    """
    batch, proposals = played.batch("solver"), played.batch("proposer")
    paid = {name: {r.reward for r in batch.rows if r.group == name} for name in batch.groups}
    mixed = next(name for name, rewards in paid.items() if len(rewards) > 1)
    best = int(np.argmax([row.reward for row in proposals.rows]))

    ours = played.ours(LearningConfig(learning_roles=("solver",)), SLOTS)
    made = {"ours": ours} | {name: PARTNERS[name](batch) for name in partners}
    table: dict[str, dict[str, Any]] = {}
    for name, one in made.items():
        advantages = zip(batch.rows, one.advantages.tolist(), strict=True)
        table[name] = {
            "advantages": {str(r.reward): round(a, 6) for r, a in advantages if r.group == mixed},
            "proposal": proposals.rows[best].reward if name == "ours" else None,
            "tokens": one.tokens,
            "loss": one.loss,
            "gradient_norm": float(one.gradient.norm()),
            "cosine": cosine(one, ours),
        }
        if name in OBJECTIVES[REINFORCE].partners:
            table[name]["proposal"] = float(PARTNERS[name](proposals).advantages[best])
    return table


def set_alike(played: Played, partners: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Ours and the distance of each partner from it, by objective."""
    batches = {role: played.batch(role) for role in ROLES}
    table: dict[str, dict[str, Any]] = {}
    for name, objective in OBJECTIVES.items():
        batch = batches[objective.role]
        # B is the questions that were played: partners have no empty slots.
        learning = LearningConfig(learning_roles=(objective.role,), **objective.ours)
        ours = played.ours(learning, len(set(batch.groups)))
        norm = float(ours.gradient.norm())
        there = {n: given for n, given in objective.partners.items() if n in partners}
        apart = {
            n: {"settings": given, **distances(PARTNERS[n](batch, **given), ours)}
            for n, given in there.items()
        }
        table[name] = {"settings": dict(objective.ours), "loss": ours.loss, "gradient_norm": norm}
        table[name]["distances"] = apart
    return table


def distances(one: Measured, ours: Measured) -> dict[str, float]:
    """Distances of losses, and of gradients by the norm of ours; of advantages where both have all
    rows (ours leaves out proposals that are paid nothing)."""
    apart = float((one.gradient - ours.gradient).norm() / ours.gradient.norm())
    found = {"loss": abs(one.loss - ours.loss), "gradient": apart, "cosine": cosine(one, ours)}
    if len(one.advantages) == len(ours.advantages):
        found["advantages"] = float((one.advantages - ours.advantages).abs().max())
    if one.gap:
        found["pass"] = one.gap
    return found


def cosine(one: Measured, other: Measured) -> float:
    """Cosine of the angle between two gradients."""
    return round(float(torch.cosine_similarity(one.gradient, other.gradient, dim=0)), 6)


def measure(seed: int) -> dict[str, Any]:
    """Both tables, and the games that they are of."""
    torch.set_num_threads(1)
    versions, played = installed(), Played(seed)
    batch = played.batch("solver")
    ratios = (batch.logprobs.detach() - batch.behaviour[batch.mask > 0]).exp()
    return {
        "seed": seed,
        "versions": versions,
        "slots": SLOTS,
        "questions": len(set(batch.groups)),
        "attempts": len(batch.rows),
        "tokens": len(ratios),
        "ratios": {"least": float(ratios.min()), "most": float(ratios.max())},
        "outside_clipping": float(((ratios < 0.8) | (ratios > 1.28)).float().mean()),
        "by_default": by_default(played, versions),
        "set_alike": set_alike(played, versions),
    }


def markdown(result: Mapping[str, Any]) -> str:
    """Both tables as people read them."""
    columns = {n: f"{n} {result['versions'].get(n, '')}".strip() for n in result["by_default"]}
    first = {}
    for name, one in result["by_default"].items():
        cells = {f"advantage of reward {r[0]}": f"{a:+.4f}" for r, a in one["advantages"].items()}
        proposal = one["proposal"]
        cells["of the best proposal"] = "none" if proposal is None else f"{proposal:+.6f}"
        cells |= {"tokens in the loss": str(one["tokens"]), "loss": f"{one['loss']:+.6f}"}
        cells |= {"gradient norm": f"{one['gradient_norm']:.4f}", "cosine": f"{one['cosine']:.4f}"}
        first[columns[name]] = cells
    second = {}
    for name, one in result["set_alike"].items():
        cells = {"loss": f"{one['loss']:+.6f}", "gradient norm": f"{one['gradient_norm']:.4f}"}
        for partner, apart in one["distances"].items():
            cells[columns[partner]] = f"{apart['loss']:.0e}, {apart['gradient']:.0e}"
        second[name] = cells

    frames = pd.DataFrame(first), pd.DataFrame.from_dict(second, orient="index").fillna("")
    tables = [frame.to_markdown(disable_numparse=True) for frame in frames]
    return "\n\n".join([headline(origin()), *tables])


def main() -> int:
    """Measures, writes the result and prints the tables."""
    settings = parser(__doc__).parse_args()
    result = measure(settings.seed)
    write(settings.out, result)
    print(markdown(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
