#!/usr/bin/env bash
# datasets 5.2.0, Dataset.from_generator(): questions that each round of training writes to the same file.
#
# One would guess: calling it runs the generator, at least when the file that it reads has changed (load_dataset("json")
# looks at the file and reads it again).
# Seen: the rows are kept on disk under the generator's code and arguments. As long as these are the same, later calls,
# in this process and in later ones, return the first rows and run nothing: round 2 trains on the questions of round 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check datasets==5.2.0 pyarrow==26.0.1
cd "$folder"
HF_HUB_OFFLINE=1 HF_HOME="$folder/home" "$folder/venv/bin/python" - 2>/dev/null <<'PY'
import json
from pathlib import Path

import datasets


def questions(path):
    for line in Path(path).read_text().splitlines():
        yield json.loads(line)


kept, loaded = [], []
for number in (1, 2, 3):
    Path("questions.jsonl").write_text(json.dumps({"question": f"of round {number}" + "!" * number}) + "\n")
    rows = datasets.Dataset.from_generator(questions, gen_kwargs={"path": "questions.jsonl"}, cache_dir="cache")
    kept.append(rows["question"][0])
    rows = datasets.load_dataset("json", data_files="questions.jsonl", split="train", cache_dir="cache")
    loaded.append(rows["question"][0])
print(f"from_generator: {kept}; load_dataset: {loaded}")
assert kept == ["of round 1!"] * 3
assert loaded == ["of round 1!", "of round 2!!", "of round 3!!!"]
PY
echo "seen: a file that was written anew is not read again"
