#!/usr/bin/env bash
# datasets 5.0.1 (pyarrow 23.0.1), load_dataset("json"): questions whose answers are quoted strings.
#
# One would guess: a quoted string in JSON stays a string.
# Seen: where every answer of the first file looks like an ISO date, the column becomes timestamp[s], also inside a
# list of answers; rows then hold datetime objects (whose text is "1889-03-31 00:00:00"). A second file with an
# answer that is a name fails to load, with an error that names neither file nor answer. With the files in the other
# order, the same data load as strings, but each date has gained a time of day: "1889-03-31 00:00:00".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check datasets==5.0.1 pyarrow==23.0.1
cd "$folder"
HF_HUB_OFFLINE=1 HF_HOME="$folder/home" "$folder/venv/bin/python" - 2>/dev/null <<'PY'
import json
from pathlib import Path

import datasets


def write(name, *answers):
    rows = [{"question": "When?", "answer": answer, "golden_answers": [answer]} for answer in answers]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(*files):
    return datasets.load_dataset("json", data_files=list(files), split="train", cache_dir="cache")


write("dates.jsonl", "1889-03-31", "1606-07-15")
write("names.jsonl", "Rembrandt")
dates = load("dates.jsonl")
print(dates.features["answer"], dates.features["golden_answers"], repr(dates[0]["answer"]))
assert dates.features["answer"].dtype == "timestamp[s]"
assert str(dates[0]["golden_answers"][0]) == "1889-03-31 00:00:00"

try:
    load("dates.jsonl", "names.jsonl")
    failed = None
except datasets.exceptions.DatasetGenerationError as error:
    failed = error
print(f"dates first: {failed}")
assert failed is not None and "Rembrandt" not in str(failed)

names_first = load("names.jsonl", "dates.jsonl")
print(f"names first: {names_first['answer'][:]}")
assert names_first.features["answer"].dtype == "string"
assert names_first["answer"][:] == ["Rembrandt", "1889-03-31 00:00:00", "1606-07-15 00:00:00"]
PY
echo "seen: quoted dates become timestamps, and which file comes first decides whether the data load"
