#!/usr/bin/env bash
# snowballstemmer 3.1.1 (pure Python), alone and beside PyStemmer 2.2.0.3.
#
# One would guess: a pinned stemmer stems alike on every machine.
# Seen: where PyStemmer can be imported, snowballstemmer.stemmer() hands out PyStemmer's stemmer, of whatever release. Its
# English rules may be older ones: "university" becomes "univers" (as "universe" does) instead of "universiti",
# "geologist" stays whole instead of becoming "geolog". An index that was built where PyStemmer is absent and is searched
# where some other package brought it in does not find these words, and nothing says so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check snowballstemmer==3.1.1
cat >"$folder/stems.py" <<'PY'
import snowballstemmer

stemmer = snowballstemmer.stemmer("english")
words = ["university", "universe", "geologist", "geology", "running"]
print(type(stemmer).__module__, dict(zip(words, map(stemmer.stemWord, words), strict=True)))
PY
alone=$("$folder/venv/bin/python" "$folder/stems.py")
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check PyStemmer==2.2.0.3
beside=$("$folder/venv/bin/python" "$folder/stems.py")
echo "$alone"
echo "$beside"
grep -q "'university': 'universiti', 'universe': 'univers', 'geologist': 'geolog', 'geology': 'geolog'" <<<"$alone"
grep -q "'university': 'univers', 'universe': 'univers', 'geologist': 'geologist', 'geology': 'geolog'" <<<"$beside"
echo "seen: installing another package changes the stem of university"
