"""Rewards of the proposer by name, each with the paper that it is from.

All are functions of a valid game whose attempts are judged: of n attempts that count, k were right,
and p = k / n. Any other function of a game will do as well (``Rules.build(proposer_reward=...)``).

======================  =============================================  =========================
name                    reward                                         from
======================  =============================================  =========================
``1-p``                 1 - p                                          SSP, equation 5
``4p(1-p)``             4 p (1 - p)                                    variance of the attempts
``min(p,1-p)``          min(p, 1 - p)                                  R-Zero, 2508.05004
``(n-k)/(n-1)``         (n - k) / (n - 1), and 0 for k = 0 or n        Dr. Zero, 2601.07055
``depth``               .2 + .8 min(h / H, 1), and .2 for k = 0 or n   SearchMaster, 2608.01822
``evidence``            p' - p, p' with the evidence at hand           after EVE-Agent, 2605.22905
``band``                1 for .2 <= p <= .8, else 0                    prime-rl's difficulty pools
======================  =============================================  =========================

>>> from types import SimpleNamespace
>>> three_of_four = SimpleNamespace(share_right=0.75, counted=[None] * 4)
>>> {name: PROPOSER_REWARDS[name](three_of_four) for name in ("1-p", "min(p,1-p)", "band")}
{'1-p': 0.25, 'min(p,1-p)': 0.25, 'band': 1.0}
"""

from __future__ import annotations

from collections.abc import Mapping

from ssp_env.game.game import Game, ProposerReward

FLOOR = 0.2
"""What ``depth`` pays for any valid question (SearchMaster's r0)."""
BAND = (0.2, 0.8)
"""Least and greatest solve rate that ``band`` pays for."""


def one_minus_p(game: Game) -> float:
    """1 - mean solve rate, as in the paper: the harder a question, the more it pays, even an
    impossible one (the paper's appendix "Rewards Design")."""
    # Equation 5: R = 1 - 1/n sum of r_solve.
    return 1.0 - game.share_right


def four_p_one_minus_p(game: Game) -> float:
    """4 p (1 - p) of the mean solve rate p: most at 1/2, nothing for what is never solved."""
    return 4.0 * game.share_right * (1.0 - game.share_right)


def least_of_p_and_one_minus_p(game: Game) -> float:
    """min(p, 1 - p): most at 1/2, and linear to both sides, as in R-Zero's code. Twice of it is the
    paper's 1 - 2 |p - 1/2|."""
    return min(game.share_right, 1.0 - game.share_right)


def hard_but_solved(game: Game) -> float:
    """(n - k) / (n - 1) for 0 < k < n: 1 where a single attempt was right, 0 where all or none
    were (Dr. Zero). Nothing with a single attempt."""
    n = len(game.counted)
    k = sum(attempt.right for attempt in game.counted)
    return (n - k) / (n - 1) if 0 < k < n else 0.0


def depth(game: Game) -> float:
    """By the fewest searches h with which an attempt was right, of the H that an attempt may make:
    .2 + .8 min(h / H, 1). A question that all or no attempts solve pays .2 (SearchMaster)."""
    right = [attempt.trajectory for attempt in game.counted if attempt.right]
    if not 0 < len(right) < len(game.counted):
        return FLOOR
    shallowest = min(right, key=lambda trajectory: len(trajectory.searches))
    share = min(len(shallowest.searches) / max(1, shallowest.limits.max_searches), 1.0)
    return FLOOR + (1.0 - FLOOR) * share


def evidence(game: Game) -> float:
    """What the proposer's evidence adds: the share of right answers with it at hand (where the
    policy verifies; 1 where another verifier accepted) less that of the attempts, which have to
    search for it (after EVE-Agent, whose proposers quote a passage)."""
    read = [attempt.right for attempt in game.verification_attempts if attempt.verdict is not None]
    return (sum(read) / len(read) if read else 1.0) - game.share_right


def band(game: Game) -> float:
    """1 where some attempts were right and some were not, within :data:`BAND`; else 0."""
    return float(BAND[0] <= game.share_right <= BAND[1])


PROPOSER_REWARDS: Mapping[str, ProposerReward] = {
    "1-p": one_minus_p,
    "4p(1-p)": four_p_one_minus_p,
    "min(p,1-p)": least_of_p_and_one_minus_p,
    "(n-k)/(n-1)": hard_but_solved,
    "depth": depth,
    "evidence": evidence,
    "band": band,
}
"""By the names that ``game.proposer_reward`` takes."""
