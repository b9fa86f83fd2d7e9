#!/usr/bin/env bash
# polars 2.1.0, read_ndjson: a file of questions in which some rows have a field that the first ones lack.
#
# One would guess: the table has the field, with nulls elsewhere, as where it comes early; or an error.
# Seen: the first 100 rows decide which fields there are. Aliases of an answer that begin in row 101 are left out
# without a warning, and so are fields inside a struct; begun in row 100 they are read. The same limit is an error for
# types: 0.5 behind a hundred rewards of 0 and 1. A number behind a hundred texts becomes a text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check polars==2.1.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
from pathlib import Path

import polars as pl


def read(special, at):
    rows = [{"answer": "Vienna", "reward": row % 2, "meta": {"hops": 2}} for row in range(150)]
    rows[at - 1] |= special
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return pl.read_ndjson("rows.jsonl")


aliases = {"aliases": ["Wien", "Beč"]}
print("aliases in row 100:", read(aliases, 100).columns)
print("aliases in row 101:", read(aliases, 101).columns)
assert read(aliases, 100)["aliases"].to_list()[99] == ["Wien", "Beč"]
assert read(aliases, 101).columns == ["answer", "reward", "meta"]

struct = read({"meta": {"hops": 2, "source": "wiki"}}, 101)["meta"][100]
print("struct of row 101:", struct)
assert struct == {"hops": 2}

try:
    read({"reward": 0.5}, 101)
    refused = None
except pl.exceptions.ComputeError as error:
    refused = error
print("0.5 in row 101:", refused)
assert refused is not None and read({"reward": 0.5}, 100)["reward"][99] == 0.5
assert read({"answer": 1889}, 101)["answer"][100] == "1889"
PY
echo "seen: a field of row 101 is dropped in silence, a fraction in row 101 is an error"
