#!/usr/bin/env bash
# ir-measures 0.4.3 with pytrec-eval-terrier 0.5.11: the reciprocal rank of the first relevant passage among all, and among
# the first k, of one run in which scores are equal (a cross-encoder's yes or no, a rounded similarity).
#
# One would guess: RR@k is RR where the first relevant passage is among the first k, and 0 elsewhere; never more than RR.
# Seen: RR is computed by trec_eval, where the later name wins a tie, RR@k by the script of MS MARCO, where the earlier
# one does. Of three passages with one score, of which "a" is relevant, RR is 1/3 and RR@2 is 1, while P@1 is 0. Where
# "c" is, RR is 1 and RR@2 is 0. The order of the run changes nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    ir-measures==0.4.3 pytrec-eval-terrier==0.5.11 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import ir_measures
from ir_measures import P, RR, Qrel, ScoredDoc


def measured(relevant, order):
    run = [ScoredDoc("query", name, 1.0) for name in order]
    found = ir_measures.calc_aggregate([RR, RR @ 2, RR @ 10, P @ 1], [Qrel("query", relevant, 1)], run)
    return {str(measure): round(value, 3) for measure, value in found.items()}


for relevant in "ac":
    found = measured(relevant, "abc")
    print(f"{relevant} is relevant:", dict(sorted(found.items())))
    assert found == measured(relevant, "cba")
assert measured("a", "abc") == {"RR": 0.333, "RR@2": 1.0, "RR@10": 1.0, "P@1": 0.0}
assert measured("c", "abc") == {"RR": 1.0, "RR@2": 0.0, "RR@10": 0.333, "P@1": 1.0}
PY
echo "seen: among equal scores, RR@2 is 1 where RR is 1/3, and 0 where RR is 1"
