"""The same games in four trainers: advantages, loss mask, loss and gradient of each, side by side.

    python -m benchmarks.trainers --seed 2 --out FILE
    python -m benchmarks.trainers --model DIR --seed 0 --out FILE

One seeded batch of a policy, whose weights are then moved, so that importance ratios leave 1 and
clipping stops gradients. Our update and those of TRL, verl and SkyRL get the same tokens, masks,
log-probabilities and rewards: once each with its own defaults, then set alike. A partner that is
not installed is left out.

The tiny policy has weights and passes in float64, so that what differs is the formulas. A model of
``--model`` answers questions of wiki-mini, and has adapters and passes in bfloat16, as a user
trains it. Its solver's games alone are compared.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor

from benchmarks.harness import parser, write
from benchmarks.partners import PARTNERS, Batch, Measured, gradient, multiplying_as_rounded
from ssp_agents.batches import Columns, columns_of
from ssp_agents.config import ROLES, LearningConfig, TrainedRole
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.losses import ALGORITHMS, Tokens, grpo_loss
from ssp_agents.models import (
    adapt,
    load_model,
    round_parameters,
    tiny_directory,
    without_adapters,
)
from ssp_agents.precision import is_small, round_frozen
from ssp_agents.rollout import play
from ssp_agents.rows import Row, rows_of, with_advantages, with_loss_weights
from ssp_agents.scoring import Scores, TokenScorer
from ssp_agents.update import Update
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds import open_world

GAME = MINI_GAME.replace(attempts=5)
REAL_GAME = GameConfig(
    attempts=4,
    max_searches=2,
    asked_searches=(1, 1),
    top_k=1,
    max_prompt_tokens=1536,
    max_response_tokens=GAME.max_response_tokens,
    max_document_tokens=100,
    prompts="few-shot",
    verifier="none",
    closed_book=False,
)
RANK = 4
SLOTS = 16
STEP = 0.2
"""Distance from the weights that played to those that learn, in deviations of each tensor."""


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


class Objective(NamedTuple):
    """One loss: settings of ours, and of each partner that has it."""

    ours: dict[str, Any]
    partners: dict[str, dict[str, Any]]
    role: TrainedRole


def objectives() -> dict[str, Objective]:
    """All losses of the data file, by name."""
    file = Path(__file__).with_name("data") / "objectives.yaml"
    found = {}
    for kind, losses in yaml.safe_load(file.read_text(encoding="utf-8")).items():
        shared = losses.pop("all")
        for name, settings in losses.items():
            each = {who: {**shared.get(who, {}), **own} for who, own in settings.items()}
            role: TrainedRole = "proposer" if kind == "proposer" else "solver"
            found[name] = Objective(each.pop("ours"), each, role)
    return found


OBJECTIVES = objectives()
REINFORCE = "REINFORCE of the proposer"


Scorer = Callable[[Columns], Scores]


class Played:
    """Games of a policy, the policy that learns from them, and what each role is trained on."""

    def __init__(
        self,
        rows: Callable[[LearningConfig], list[Row]],
        learner: Any,
        scorers: tuple[Scorer, Scorer],
        model: Path,
        game: GameConfig,
        num_games: int,
        roles: tuple[TrainedRole, ...] = ROLES,
    ) -> None:
        """``rows`` picks a role's rows out of the games; ``scorers`` are the learner's, and that of
        the policy that has played; ``model`` is the directory of both; ``num_games`` games were
        begun."""
        self._rows, self._learner, self._scorers, self._model = rows, learner, scorers, model
        self._game, self.num_games, self.roles = game, num_games, roles

    @classmethod
    def tiny(cls, seed: int) -> Played:
        """Games of the tiny policy, in float64."""
        rules, engine = table("mini", GAME, tiny_directory())
        begun = GameBatch(rules, answers_of(rules.world), SLOTS, [seed])
        games = play(begun, engine, temperature=1.0).games

        sampler, learner = (load_model(tiny_directory()).double() for _ in range(2))
        moved(learner.named_parameters(), seed)
        size = rules.tokenizer.vocab_size
        scorers = scorer(learner, size), scorer(sampler, size)
        return cls(partial(rows_of, games), learner, scorers, tiny_directory(), GAME, SLOTS)

    @classmethod
    def real(cls, seed: int, directory: Path) -> Played:
        """Attempts of a model at questions of wiki-mini, in bfloat16, two groups of which some were
        right and some not; adapters learn."""
        rules, engine = table("wiki-mini", REAL_GAME, directory, torch.bfloat16)
        asked = rules.world.questions(seed, 2)
        begun = GameBatch.of_questions(rules, asked, [seed] * len(asked))
        games = play(begun, engine, temperature=1.0).games

        learner = load_model(directory)
        adapt(learner, RANK, seed)
        round_frozen(learner, torch.bfloat16)
        adapters = [pair for pair in learner.named_parameters() if pair[1].requires_grad]
        # B is 0 at first, so that its scale is A's.
        moved(adapters, seed, scale=adapters[0][1].std().item())
        size = rules.tokenizer.vocab_size
        scorers = scorer(learner, size), scorer(learner, size, without_adapters)
        mixed = [g for g in games if len({attempt.reward for attempt in g.attempts}) > 1][:2]
        rows = partial(rows_of, mixed)
        return cls(rows, learner, scorers, directory, REAL_GAME, len(asked), ("solver",))

    def batch(self, role: TrainedRole) -> Batch:
        """A role's rows, as partners get them."""
        rows = self._rows(LearningConfig(learning_roles=(role,)))
        columns = tensors(columns_of(rows))
        learner, sampler = (score(columns).logprobs for score in self._scorers)
        return Batch(rows, self._learner, self._model, learner, sampler.detach())

    def ours(self, learning: LearningConfig, num_games: int) -> Measured:
        """What our update makes of the rows; ``num_games`` is B."""
        rows = with_advantages(self._rows(learning), learning)
        columns = tensors(columns_of(with_loss_weights(rows, learning, num_games, self._game)))
        learner, sampler = self._scorers
        optimizer = torch.optim.SGD(self._learner.parameters())
        update = Update(learner, optimizer, learning, reference=sampler)
        loss, _ = update.objective(columns, learner(columns).logprobs)
        found = gradient(loss, self._learner)
        tokens = int(columns["loss_mask"].sum())
        return Measured(columns["advantages"], tokens, float(loss.detach()), found)


def scorer(
    lm: Any,
    vocab_size: int,
    within: Callable[[Any], AbstractContextManager[Any]] = lambda lm: nullcontext(),
) -> Scorer:
    """Scores tokens under a model, within a context."""
    share = not is_small(lm)  # a real model's prompts begin with the same worked examples
    score = TokenScorer(lm, 1.0, vocab_size, entropies=False, share_prefix=share)

    def scored(columns: Columns) -> Scores:
        with within(lm), multiplying_as_rounded(lm):
            return score(columns)

    return scored


def table(
    world: str, game: GameConfig, model: Path, dtype: torch.dtype = torch.float32
) -> tuple[Rules, TransformersEngine]:
    """The rules of a game, and an engine that plays it."""
    tokenizer = HuggingFaceTokenizer.load(model)
    lm = load_model(model)
    round_parameters(lm, dtype)
    engine = TransformersEngine(lm, tokenizer, StopRule.of(game, tokenizer))
    return Rules.build(open_world(world), tokenizer, game), engine


def moved(parameters: Iterable[tuple[str, Tensor]], seed: int, scale: float = 0.0) -> None:
    """Moves weights at random, by :data:`STEP` of each one's deviation, or of ``scale``."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in parameters:
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight += STEP * (scale or weight.std()) * noise


def tensors(columns: Mapping[str, np.ndarray]) -> Columns:
    """Columns as an update takes them."""
    return {name: torch.as_tensor(column) for name, column in columns.items()}


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
    batch = played.batch("solver")
    paid = {name: {r.reward for r in batch.rows if r.group == name} for name in batch.groups}
    mixed = next(name for name, rewards in paid.items() if len(rewards) > 1)

    ours = played.ours(LearningConfig(learning_roles=("solver",)), played.num_games)
    made = {"ours": ours} | {name: PARTNERS[name](batch) for name in partners}
    table: dict[str, dict[str, Any]] = {}
    for name, one in made.items():
        advantages = zip(batch.rows, one.advantages.tolist(), strict=True)
        table[name] = {
            "advantages": {str(r.reward): round(a, 6) for r, a in advantages if r.group == mixed},
            "proposal": None,
            "tokens": one.tokens,
            "loss": one.loss,
            "gradient_norm": float(one.gradient.norm()),
            "cosine": cosine(one, ours),
        }
    if "proposer" in played.roles:
        proposals = played.batch("proposer")
        best = int(np.argmax([row.reward for row in proposals.rows]))
        table["ours"]["proposal"] = proposals.rows[best].reward
        for name in OBJECTIVES[REINFORCE].partners & table.keys():
            table[name]["proposal"] = float(PARTNERS[name](proposals).advantages[best])
    return table


def set_alike(played: Played, partners: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Ours and the distance of each partner from it, by objective."""
    batches = {role: played.batch(role) for role in played.roles}
    table: dict[str, dict[str, Any]] = {}
    for name, objective in OBJECTIVES.items():
        if objective.role not in batches:
            continue
        batch = batches[objective.role]
        # B is the questions that were played: with partners, no game is missing.
        learning = LearningConfig(learning_roles=(objective.role,), **objective.ours)
        ours = played.ours(learning, len(set(batch.groups)))
        table[name] = {
            "settings": objective.ours,
            "loss": ours.loss,
            "gradient_norm": float(ours.gradient.norm()),
            "distances": {
                partner: {"settings": given, **distances(PARTNERS[partner](batch, **given), ours)}
                for partner, given in objective.partners.items()
                if partner in partners
            },
        }
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


def measure(seed: int, model: Path | None = None) -> dict[str, Any]:
    """Both tables, and the games that they are of."""
    torch.set_num_threads(1)
    versions = installed()
    played = Played.real(seed, model) if model else Played.tiny(seed)
    batch = played.batch("solver")
    ratios = (batch.logprobs.detach() - batch.behaviour[batch.mask > 0]).exp()
    return {
        "seed": seed,
        "versions": versions,
        "games": played.num_games,
        "questions": len(set(batch.groups)),
        "attempts": len(batch.rows),
        "tokens": len(ratios),
        "ratios": {"least": float(ratios.min()), "most": float(ratios.max())},
        "outside_clipping": float(((ratios < 0.8) | (ratios > 1.28)).float().mean()),
        "by_default": by_default(played, versions),
        "set_alike": set_alike(played, versions),
    }


def main() -> None:
    """Measures, and writes the result."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="a real model's directory; the tiny policy")
    settings = options.parse_args()
    write(settings.out, measure(settings.seed, settings.model))


if __name__ == "__main__":
    main()
