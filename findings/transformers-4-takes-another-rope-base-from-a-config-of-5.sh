#!/usr/bin/env bash
# transformers 5.23.0 writes the config of a Qwen2 model whose positions turn by a base of 1,000,000; 4.57.3 reads it.
#
# One would guess: a config of a later version is read, or refused, or a warning says what is not understood.
# Seen: 5 writes rope_parameters and no rope_theta. 4.57 keeps the unknown field, takes its own default base of 10,000
# and says nothing, so a model that 5 has saved answers nonsense behind a server of 4. Of a tokenizer that 5 has saved,
# it says at least that the class TokenizersBackend does not exist.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 5.23.0 4.57.3; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check "transformers==$version"
done
cd "$folder"
"$folder/5.23.0/bin/python" - <<'PY'
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config

config = Qwen2Config(rope_parameters={"rope_type": "default", "rope_theta": 1e6})
config.save_pretrained("saved")
words = Tokenizer(models.WordLevel({"hello": 0, "?": 1}, unk_token="?"))
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained("saved")
PY
"$folder/4.57.3/bin/python" - > said.txt 2>&1 <<'PY'
from transformers import AutoConfig, AutoTokenizer

config = AutoConfig.from_pretrained("saved")
print("base:", config.rope_theta, "kept, and not read:", config.rope_parameters)
assert config.rope_theta == 10_000.0 and config.rope_parameters["rope_theta"] == 1e6
try:
    AutoTokenizer.from_pretrained("saved")
except ValueError as error:
    print("tokenizer:", error)
else:
    raise AssertionError("the tokenizer was loaded")
PY
cat said.txt
if grep -i rope said.txt | grep -v '^base:'; then exit 1; fi
grep -q 'TokenizersBackend does not exist' said.txt
echo "seen: another base, and not a word"
