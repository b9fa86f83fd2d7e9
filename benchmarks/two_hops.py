"""What becomes of questions of two hops in runs of the sweep ``wiki``: asked, solved, learnt from.

    ssp sweep wiki
    python -m benchmarks.two_hops runs/sweeps/wiki/trials/* --out FILE

Counts are of proposed questions that were valid, over all seeds of an arm. *New* ones end in a
relation that no demonstration of two hops asks for. A question is mixed if some of its attempts
were right and some not: from others, GRPO learns nothing. Also, by tens of steps, what the gate let
pass: a question is sound if the rules know its ground truth to be its only right answer, and
unreadable if they cannot read it.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from benchmarks.harness import parser, write
from ssp_env.game.outcome import Outcome
from ssp_env.worlds.wiki import TAUGHT
from ssp_env.worlds.wiki_language import parse_question
from ssp_experiments.commands.questions import games_of


def main() -> int:
    """Counts, and writes a row per arm."""
    options = parser(__doc__, seed=False)
    options.add_argument("runs", nargs="+")
    settings = options.parse_args()

    arms = defaultdict[str, Counter[str]](Counter)
    gates = defaultdict[str, defaultdict[str, Counter[str]]](lambda: defaultdict(Counter))
    for run in settings.runs:
        arm = run.rstrip("/").rpartition("/")[2].rpartition("-seed")[0]
        counts = arms[arm]
        for step, game in games_of(run):
            if game.origin != "proposed" or game.outcome is not Outcome.VALID:
                continue
            right = game.right_answers
            gate = gates[arm][f"steps to {step + -step % 10}"]
            gate["valid"] += 1
            gate["unreadable"] += right is None
            gate["wrong"] += game.truly_correct is False
            gate["sound"] += bool(game.truly_correct) and len(right or ()) == 1

            asked, rate = parse_question(game.question or ""), game.solve_rate or 0.0
            kinds = ["all"]
            if asked is not None and len(asked.path) == 2:
                kinds.append("taught" if asked.path[-1].name in TAUGHT else "new")
            for kind in kinds:
                counts[kind] += 1
                counts[f"{kind}, never solved"] += rate == 0
                counts[f"{kind}, mixed"] += 0 < rate < 1
    write(settings.out, {"valid questions": arms, "gate": gates})
    return 0


if __name__ == "__main__":
    sys.exit(main())
