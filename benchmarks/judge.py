"""How often the judges by rules agree with people, set by set, reason by reason, and how fast.

``held_out`` answers questions of seven benchmarks, and so do the two ``fresh`` sets. The rules of
``lenient`` were written with ``held_out`` and the blind rounds 1 and 10 in view, and no other pair.
The blind rounds are deliberately hard. ``--before CHECKOUT`` times an older checkout in the same
run; both take turns.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, in_turns, parser, write
from ssp_env.judge.judges import BY_RULES, Pair, measure
from ssp_env.judge.lenient import LenientJudge

PAIRS = Path(__file__).parent / "data" / "judge_pairs.jsonl.gz"
DEVELOPED_ON = ("held_out", "blind round 1", "blind round 10")
SIDE = """
import json, random, sys, time
from ssp_env.judge.base import JudgeTask
from ssp_env.judge.lenient import LenientJudge
from ssp_env.types import GroundTruth

rows = json.load(sys.stdin)
judge, rates = LenientJudge(), {}
tasks = [
    JudgeTask(each["question"], each["prediction"], GroundTruth("", first, tuple(others)))
    for each in rows
    for first, *others in [each["answers"]]
]
judge.judge(tasks[:50])  # imports and tables


def forget():
    for name, module in list(sys.modules.items()):
        if name.startswith("ssp_env.judge"):
            for made in vars(module).values():
                if hasattr(made, "cache_clear") and made.cache_parameters()["maxsize"]:
                    made.cache_clear()


def rate(name, work):
    began = time.process_time()
    judge.judge(work)
    rates[name] = len(work) / (time.process_time() - began)


forget()
rate("new texts", tasks)
forget()
often = tasks * 50
random.Random(0).shuffle(often)
rate("each text fifty times", often)
rate("known texts", often)
print(json.dumps(rates))
"""


def main() -> None:
    """Measures each judge by rules on each set, and on all that it was not developed on."""
    options = parser(__doc__, seed=False)
    options.add_argument("--before", type=Path, help="an older checkout, to time beside this one")
    options.add_argument("--turns", type=int, default=5, help="timed ones of each side")
    arguments = options.parse_args()
    sets: dict[str, list[Pair]] = defaultdict(list)
    for line in gzip.decompress(PAIRS.read_bytes()).decode().splitlines():
        row = json.loads(line)
        name = f"blind {row['source']}" if row["set"] == "blind" else row["set"]
        sets[name].append(Pair(**{field: row[field] for field in Pair.model_fields}))
    for name, pairs in list(sets.items()):
        sets["developed on" if name in DEVELOPED_ON else "not looked at"] += pairs

    rows = []
    for name, pairs in sets.items():
        for judge, make in BY_RULES.items():
            found = measure(make(), pairs)
            shares = {"precision": found.precision, "recall": found.recall}
            figures = {key: share and round(share, 3) for key, share in shares.items()}
            rows.append({"set": name, "pairs": len(pairs), "judge": judge, **figures})
    reasons = {name: by_reason(sets[name]) for name in ("developed on", "not looked at")}
    speed = verdicts_per_second(sets["developed on"], arguments.before, arguments.turns)
    write(arguments.out, {"rows": rows, "reasons": reasons, "verdicts_per_cpu_second": speed})


def by_reason(pairs: list[Pair]) -> list[dict[str, Any]]:
    """How often ``lenient`` gives each reason, and how often people agree with the verdict."""
    measured = measure(LenientJudge(), pairs)
    wrong, given = {*measured.errors}, Counter[str]()
    agreed = Counter[str]()
    for place, detail in enumerate(measured.details):
        reason = detail.partition(", as ")[0]
        given[reason] += 1
        agreed[reason] += place not in wrong
    return [
        {"reason": reason, "pairs": count, "agree": round(agreed[reason] / count, 3)}
        for reason, count in given.most_common()
    ]


def verdicts_per_second(pairs: list[Pair], before: Path | None, turns: int) -> dict[str, Any]:
    """Medians of verdicts per CPU-second of one core, by how often a text was judged before."""
    given = json.dumps([pair.model_dump() for pair in pairs])

    def side(checkout: Path) -> dict[str, float]:
        env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SIDE]
        run = subprocess.run(
            command, input=given, env=env, cwd="/", capture_output=True, text=True, check=True
        )
        rates: dict[str, float] = json.loads(run.stdout)
        return rates

    sides = {"this": ROOT} | ({} if before is None else {"before": before.resolve()})
    answers = in_turns({name: partial(side, path) for name, path in sides.items()}, turns)
    return {
        what: {
            name: round(median(answer[what] for answer in some)) for name, some in answers.items()
        }
        for what in answers["this"][0]
    }


if __name__ == "__main__":
    main()
