"""How often the judges by rules agree with people, set by set.

``held_out`` answers questions of seven benchmarks, and so do the two ``fresh`` sets. The rules of
``lenient`` were written with ``held_out`` and the blind rounds 1 and 10 in view, and no other pair.
The blind rounds are deliberately hard.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

from benchmarks.harness import parser, write
from ssp_env.judge.judges import BY_RULES, Pair, measure

PAIRS = Path(__file__).parent / "data" / "judge_pairs.jsonl.gz"
DEVELOPED_ON = ("held_out", "blind round 1", "blind round 10")


def main() -> None:
    """Measures each judge by rules on each set, and on all that it was not developed on."""
    arguments = parser(__doc__, seed=False).parse_args()
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
    write(arguments.out, {"rows": rows})


if __name__ == "__main__":
    main()
