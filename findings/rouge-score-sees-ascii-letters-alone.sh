#!/usr/bin/env bash
# rouge-score 0.1.2 (Google's reimplementation, the one that evaluation libraries call): which words it compares.
#
# One would guess: words of any script, perhaps without accents.
# Seen: before words are compared, everything but a-z and 0-9 becomes a space. A Chinese or Greek answer that equals
# its reference scores 0.0; a name with one accent falls into two words (so "Munchen" has nothing in common with
# "München"); of the city Łódź one letter is left, and the answer "d" scores 1.0 against it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check rouge-score==0.1.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
from rouge_score.rouge_scorer import RougeScorer

scorer = RougeScorer(["rouge1", "rougeL"])
pairs = [("奥地利", "奥地利"), ("Κίεβο", "Κίεβο"), ("München", "Munchen"), ("Łódź", "d"), ("Vienna", "Vienna")]
seen = []
for reference, answer in pairs:
    scores = scorer.score(reference, answer)
    seen.append((scores["rouge1"].fmeasure, scores["rougeL"].fmeasure))
    print(f"{answer!r} for {reference!r}: ROUGE-1 {seen[-1][0]}, ROUGE-L {seen[-1][1]}")
assert seen == [(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (1.0, 1.0), (1.0, 1.0)]
PY
echo "seen: equal answers in Chinese and Greek score 0, and the letter d answers Łódź"
