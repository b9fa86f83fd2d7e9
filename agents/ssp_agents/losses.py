"""Advantages of trajectories and losses of tokens, as pure functions; the table of algorithms.

Equations 4 and 5 are those of the paper, section "Search Self-play Implementation". In the
formulas, y_i is what the policy wrote in trajectory i, r_it = pi(y_it) / mu(y_it) the importance
ratio of its token t, and sg[...] is held fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from ssp_agents.config import Aggregation, LearningConfig
from ssp_env.config import load, own_code
from ssp_env.errors import ConfigError

VETO = 1e-4
"""A trajectory with a token whose importance ratio is below this is not learnt from: the learner
all but rules out what the engine sampled, so one of the two is wrong there, or the trajectory
belongs to another policy. The value that SkyRL suggests."""


MAX_LOG_RATIO = 20.0
"""Logarithm beyond which a ratio without a cap no longer grows, as in veRL."""


class Tokens(NamedTuple):
    """Tokens that the policy wrote in some rows, row by row; all tensors are (tokens,)."""

    logprobs: Tensor
    """Log-probabilities under the policy that learns; they carry the gradient."""
    behaviour: Tensor
    """Log-probabilities under the policy that sampled."""
    advantages: Tensor
    """Advantage of each token's trajectory, times its turn's share (``learning.credit``)."""
    rows: Tensor
    """int64: that trajectory's place in the micro-batch, from 0."""


Advantage = Callable[[np.ndarray, np.ndarray, LearningConfig], np.ndarray]
"""From rewards (trajectories,) and their groups' numbers (trajectories,) to advantages
(trajectories,), over a whole step of one role."""
Loss = Callable[[Tokens, LearningConfig], Tensor]
"""From tokens to their losses (tokens,), which are weighted and summed by the update."""


@dataclass(frozen=True)
class Algorithm:
    """A way to train a role."""

    advantage: Advantage
    loss: Loss
    grouped: bool
    """Rewards are compared within groups, which need two trajectories or more."""
    kl: bool
    """The KL to the frozen reference is added: rows with zero advantage still have a gradient."""
    aggregation: Aggregation = "sequence"
    """Sum or mean of its token losses, where the settings do not name another one."""
    clips: Callable[[Tokens], Tensor] | None = None
    """Log ratios (tokens,) beyond which the loss stops gradients, for the figure
    ``clipped_share``; ``None``: it stops none."""
    baseline: float | None = None
    """Decay, in [0, 1), of the moving average of the role's rewards that is taken from them before
    ``advantage`` gets them, see :func:`less_average`; ``None``: nothing is."""

    def __post_init__(self) -> None:
        if self.baseline is not None and not 0 <= self.baseline < 1:
            raise ConfigError("baseline", self.baseline, "a decay is at least 0, and below 1")
        if self.aggregation not in get_args(Aggregation):
            fix = f"choose one of {', '.join(get_args(Aggregation))}"
            raise ConfigError("aggregation", self.aggregation, fix)


# -- advantages --------------------------------------------------------------------------------

# The paper's gradients, of which the losses below are the negatives: tau_i is the proposal of the
# i-th of B questions, and rho_ij the j-th of n attempts at it.
#
# (4)  1/B sum_i (1/n sum_j 1/|rho_ij| sum_t grad log pi(rho_ijt) A_ij - beta grad KL(pi, pi_ref)),
#      A_ij = r_ij - 1/n sum_k r_ik
#
# (5)  1/B sum_i R_i sum_t grad log pi(tau_it),
#      R_i = 1 - 1/n sum_j r_ij
#
# The sums are the update's (update.py); their denominators are weights of rows, see
# rows.py:with_loss_weights.


def grpo_advantages(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig
) -> np.ndarray:
    """Equation 4: A_j = r_j - mean(r) over the group; with ``std_normalise``, divided by the
    group's deviation, as in the original GRPO."""

    def compared(of_group: np.ndarray) -> np.ndarray:
        centred: np.ndarray = of_group - of_group.mean()
        # Of rewards 0 and 1 with mean p, the deviation is sqrt(p (1 - p)): questions that nearly
        # all attempts solve, or nearly none, come to weigh as much as the others.
        if learning.std_normalise:
            centred /= of_group.std() + 1e-6
        return centred

    return _within_groups(rewards, groups, compared)


def _within_groups(
    rewards: np.ndarray, groups: np.ndarray, compared: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = groups == group
        # Else exactly 0, whatever rounding makes of a mean of equal numbers.
        if np.ptp(rewards[members]) > 0:
            advantages[members] = compared(rewards[members])
    return advantages


def reinforce_advantages(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig
) -> np.ndarray:
    """Equation 5: A = R, without a baseline."""
    # R_i is what the game has paid: 1 - mean r, or game.invalid_reward (ssp_env/game/game.py).
    return rewards


def less_average(rewards: np.ndarray, average: float, decay: float) -> tuple[np.ndarray, float]:
    """Rewards (trajectories,) of a role, each less the average b of those before it, and the
    average after them: A_i = R_i - b, then b <- decay b + (1 - decay) R_i (RAE, 2506.24119)."""
    # As in SPIRAL's code, a reward is no part of its own baseline.
    less = np.empty(len(rewards), dtype=np.float64)
    for i, reward in enumerate(rewards.tolist()):
        less[i] = reward - average
        average = decay * average + (1.0 - decay) * reward
    return less, average


def rloo_advantages(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig
) -> np.ndarray:
    """A_j = r_j - mean of the *other* rewards of its group, 0 for a lone one (RLOO, 2402.14740)."""
    # A sample is no part of its own baseline, which thus stays independent of it.
    return _within_groups(
        rewards,
        groups,
        # (sum r - r_j) / (n - 1), where n > 1: a lone reward does not get here, as its range is 0.
        lambda r: r - (r.sum() - r) / (len(r) - 1),
    )


# -- losses ------------------------------------------------------------------------------------


def importance_ratio(log_ratios: Tensor, cap: float | None) -> Tensor:
    """Ratios of the policy that learns to the one that sampled, from their logarithms: (tokens,).

    Above ``cap``, ratio and gradient are scaled down to it (truncated importance sampling, Ionides
    2008): bounded variance at the price of a small bias.
    """
    if cap is None:
        # exp overflows at 89: a clipped ratio of infinity has a loss, and a gradient of NaN.
        return torch.exp(log_ratios.clamp(max=MAX_LOG_RATIO))

    # min(ratio, cap), and its gradient min(ratio, cap) grad log pi rather than 0.
    excess = (log_ratios.detach() - math.log(cap)).clamp(min=0.0)
    return torch.exp(log_ratios - excess)


def token_log_ratios(tokens: Tokens) -> Tensor:
    """log r_it: (tokens,)."""
    return tokens.logprobs - tokens.behaviour


def _surrogate(log_ratios: Tensor, advantages: Tensor, learning: LearningConfig) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A): (tokens,)."""
    ratio = importance_ratio(log_ratios, learning.importance_cap)
    low, high = learning.clip
    clipped = ratio.clamp(1.0 - low, 1.0 + high)
    # The smaller of the two gains, so that clipping never makes an update look better than it is.
    return -torch.minimum(ratio * advantages, clipped * advantages)


def grpo_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-min(r_it A_i, clip(r_it, 1 - low, 1 + high) A_i): (tokens,).

    At ratio 1 its gradient is that of equation 4, -A grad log pi. Clipping bounds how far an update
    moves from the policy that sampled; there is more room upwards (DAPO's clip-higher).
    """
    return _surrogate(token_log_ratios(tokens), tokens.advantages, learning)


def sequence_log_ratios(tokens: Tokens) -> Tensor:
    """log s_i = log (pi(y_i) / mu(y_i))^(1/|y_i|) = 1/|y_i| sum_t log r_it, at each token of i:
    (tokens,)."""
    log_ratios = token_log_ratios(tokens)
    # Numbers of rows have gaps, for these tokens are of one role: each row's place among those that
    # are there, int64 (tokens,).
    trajectories, place = torch.unique(tokens.rows, return_inverse=True)
    # means: (trajectories,), which ``place`` spreads over the tokens again.
    means = log_ratios.new_zeros(len(trajectories))
    means = means.scatter_reduce(0, place, log_ratios, "mean", include_self=False)
    return means[place]


def gspo_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i) (GSPO, 2507.18071, equation 5): (tokens,).

    A trajectory is clipped as a whole. Its s_i is a geometric mean and hardly leaves 1, so the
    paper clips at 1 - 3e-4 and 1 + 4e-4.
    """
    # The same at all |y_i| tokens, so their mean (aggregation ``sequence``) is the paper's loss:
    # grad s_i = s_i 1/|y_i| sum_t grad log pi(y_it).
    return _surrogate(sequence_log_ratios(tokens), tokens.advantages, learning)


def cispo_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-sg[clip(r_it, 1 - low, 1 + high)] A_i log pi(y_it) (CISPO, 2506.13585, equation 4):
    (tokens,).

    The weight is clipped, not the token, so that rare tokens that turn an argument keep their
    gradient. The paper has no lower bound: ``low`` 1.
    """
    # Detached: at each token, the gradient is -weight A grad log pi, clipped or not.
    ratio = importance_ratio(token_log_ratios(tokens).detach(), learning.importance_cap)
    low, high = learning.clip
    weights = ratio.clamp(1.0 - low, 1.0 + high)
    return -weights * tokens.advantages * tokens.logprobs


def is_clipped(log_ratios: Tensor, advantages: Tensor, learning: LearningConfig) -> Tensor:
    """Tokens whose gradient is stopped by clipping: bool (tokens,)."""
    # The minimum picks the clipped branch, which is constant, where that is the smaller one: above
    # 1 + high for A > 0, below 1 - low for A < 0.
    ratio = torch.exp(log_ratios)
    low, high = learning.clip
    risen = (ratio > 1.0 + high) & (advantages > 0)
    fallen = (ratio < 1.0 - low) & (advantages < 0)
    return risen | fallen


def reinforce_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-R log pi (equation 5): (tokens,).

    Equation 5 is on-policy. With a cap, each token is weighted by its truncated importance ratio,
    held fixed, so that the gradient is -ratio R grad log pi.
    """
    cap = learning.importance_cap
    # Without a cap, it is taken for on-policy: mu = pi.
    ratio = 1.0 if cap is None else importance_ratio(token_log_ratios(tokens).detach(), cap)
    return -tokens.advantages * ratio * tokens.logprobs


def is_vetoed(log_ratios: Tensor, rows: Tensor, count: int) -> Tensor:
    """Trajectories with a token whose importance ratio is below ``VETO``: bool (count,); ``rows``
    are the trajectory of each token, int64 (tokens,)."""
    # min over each row's tokens of log(pi / mu), or 0 if all are above: (count,).
    lowest = torch.zeros(count, dtype=log_ratios.dtype, device=log_ratios.device)
    lowest = lowest.scatter_reduce(0, rows, log_ratios.detach(), "amin")
    return lowest < math.log(VETO)


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor, cap: float | None = None) -> Tensor:
    """KL[pi || pi_ref] of equation 4 by Schulman's k3, exp(d) - d - 1 with d = log pi_ref - log pi:
    (tokens,) nats, unbiased and never negative.

    With a ``cap``, it stops there where pi is below the reference, and pulls no more: a token 12
    nats below would weigh 160,000 and, as gradients are clipped, be all that the step learns from.
    Where pi is far above, it grows by -d alone, and the pull back stays; veRL stops it there, too.
    """
    # E_pi[exp(d) - 1] = 0, so that E_pi[k3] = -E_pi[d] = KL.
    difference = reference_logprobs - logprobs
    if cap is None:
        return torch.expm1(difference) - difference

    difference = difference.clamp(max=20.0)  # exp is finite, and so is the gradient
    k3 = torch.expm1(difference) - difference
    # d > 0: pi is below the reference, where exp(d) runs away. d < 0: k3 lies below -d, and is left
    # alone.
    return torch.where(difference > 0, k3.clamp(max=cap), k3)


# -- the table ---------------------------------------------------------------------------------

_grpo = Algorithm(grpo_advantages, grpo_loss, grouped=True, kl=True, clips=token_log_ratios)
_reinforce = Algorithm(reinforce_advantages, reinforce_loss, False, False, aggregation="sum")

ALGORITHMS = {
    # Equation 4: 1/B sum over questions, 1/n sum_i, 1/|y_i| sum_t of -r_it (R_i - mean R).
    "grpo": _grpo,
    # Equation 5: 1/B sum over proposals, sum_t of -R_i log pi(y_it).
    "reinforce": _reinforce,
    # Role-conditioned advantages (RAE), SPIRAL, 2506.24119: equation 5 with R_i - b, where b is an
    # exponential moving average of the role's rewards.
    "rae": replace(_reinforce, baseline=0.95),
    # Dr. GRPO, 2503.20783: equation 4 with 1/L in place of 1/|y_i|, L the most tokens that a
    # response may have. A mean over each trajectory favours long wrong ones.
    "dr_grpo": replace(_grpo, aggregation="constant"),
    # GSPO, 2507.18071, equation 5: 1/n sum_i -min(s_i A_i, clip(s_i) A_i).
    "gspo": Algorithm(grpo_advantages, gspo_loss, True, True, clips=sequence_log_ratios),
    # CISPO, 2506.13585, equation 4: 1/(sum_i |y_i|) sum_i sum_t -sg[clip(r_it)] A_i log pi(y_it).
    "cispo": Algorithm(grpo_advantages, cispo_loss, grouped=True, kl=True, aggregation="token"),
    # RLOO, 2402.14740: 1/n sum_i -(R_i - mean of the others' R) log pi(y_i), the whole response as
    # one action.
    "rloo": Algorithm(rloo_advantages, reinforce_loss, grouped=True, kl=True, aggregation="sum"),
}
"""Values of ``learning.solver_algorithm`` and ``learning.proposer_algorithm``."""


def find_algorithm(learning: LearningConfig, role: str) -> Algorithm:
    """A role's algorithm: of the table, or your own as ``module:NAME``, which every process
    imports."""
    name, field = learning.algorithm(role), f"learning.{role}_algorithm"
    if name in ALGORITHMS:
        return ALGORITHMS[name]

    loaded = load(field, name)
    if not isinstance(loaded, Algorithm):
        fix = f"is of type {type(loaded).__name__}, not an ssp_agents.losses.Algorithm"
        raise ConfigError(field, name, fix)
    with own_code(field, name):  # before games are played for it
        # Two rewards of one group show whether it gives one advantage each.
        given = np.zeros(2), np.zeros(2, dtype=np.int64)
        if np.shape(loaded.advantage(*given, learning)) != (2,):
            raise ValueError("advantage(rewards, groups, learning) is to return one per reward")
    return loaded
