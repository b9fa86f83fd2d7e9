#!/usr/bin/env bash
# diskcache 5.6.3: tuples as keys, as memoize() makes them from arguments and as one writes (query, rewritten query).
#
# One would guess: equal keys find the same entry, as in a dict.
# Seen: a tuple is looked up by its pickle, and a pickle writes one object that occurs twice in another way than two
# equal objects. So (a, b) with a == b has one key if a and b are one object and another one if they are two:
# a query that a rewriter hands back as it was, and the same query read from a file twice. memoize() calls the function
# again for equal arguments. A list or a dict inside the tuple behaves the same. Plain text as a key does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check diskcache==5.6.3
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json

import diskcache

cache = diskcache.Cache("cache")
query = "capital of Austria"
once = (query, query)
twice = tuple(json.loads('["capital of Austria", "capital of Austria"]'))
assert once == twice and hash(once) == hash(twice)

cache[once] = "Vienna"
print(f"the same tuple: {cache.get(once)}; an equal tuple: {cache.get(twice)}; in a dict: {({once: 1})[twice]}")
assert cache.get(once) == "Vienna" and cache.get(twice) is None
cache[twice] = "Vienna"
assert len(cache) == 2

calls = []


@cache.memoize()
def search(first, second):
    calls.append((first, second))
    return "Vienna"


for arguments in (once, twice, once, twice):
    search(*arguments)
print(f"four calls with equal arguments: the function ran {len(calls)} times")
assert len(calls) == 2

cache["capital of Austria"] = "Vienna"
assert cache.get(" ".join(["capital", "of", "Austria"])) == "Vienna"
PY
echo "seen: two equal tuples are two keys, by which of their parts are one object"
