#!/usr/bin/env bash
# pytrec_eval-terrier 0.5.10 (the usual Python door to trec_eval): how a run's documents are put in order.
#
# One would guess: by score as given (Python floats), and equal scores in the order of the run.
# Seen: scores are compared in single precision, and what is equal there comes in *descending order of document
# names*. So two scores that differ in the ninth digit are a tie, a tie is won by the later name, and renaming
# documents changes the reciprocal rank of one and the same ranking from 1.0 to 0.5.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pytrec_eval-terrier==0.5.10 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
from pytrec_eval import RelevanceEvaluator


def reciprocal_rank(relevant, run):
    return RelevanceEvaluator({"q": {relevant: 1}}, {"recip_rank"}).evaluate({"q": run})["q"]["recip_rank"]


tied = reciprocal_rank("alps", {"alps": 1.0, "danube": 1.0})
renamed = reciprocal_rank("zugspitze", {"zugspitze": 1.0, "danube": 1.0})
nearly = reciprocal_rank("alps", {"alps": 1.000000002, "danube": 1.000000001})
apart = reciprocal_rank("alps", {"alps": 1.0002, "danube": 1.0001})
print(f"listed first, tied: {tied}; the same under a later name: {renamed}")
print(f"ahead by 1e-9: {nearly}; ahead by 1e-4: {apart}")
assert (tied, renamed, nearly, apart) == (0.5, 1.0, 0.5, 1.0)
PY
echo "seen: ties go to the later name, and a lead of 1e-9 is a tie"
