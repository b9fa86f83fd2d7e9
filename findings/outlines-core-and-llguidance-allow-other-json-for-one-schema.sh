#!/usr/bin/env bash
# outlines_core 0.2.14 and llguidance 1.9.1, which hold a model to a JSON schema as it writes, beside jsonschema 4.26.0,
# which checks what was written.
#
# One would guess: whatever the schema allows may be written, so a change of the engine's backend changes no content.
# Seen: outlines_core reads a "pattern" as the whole text (JSON Schema looks for it anywhere in the text, as llguidance
# and jsonschema do), allows an exponent only with a sign, and no line break between the parts. So "in 1889" for a
# pattern of four digits, 1e5, and JSON with an indent are valid and cannot be written there. Neither of the two lets a
# letter be written as \u00e9, as Python's json.dumps writes é, nor keys in another order than the schema's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    outlines_core==0.2.14 llguidance==1.9.1 jsonschema==4.26.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
import re

import jsonschema
from llguidance import LLMatcher, LLTokenizer
from outlines_core.json_schema import build_regex_from_schema

tokenizer = LLTokenizer("byte")


def by_outlines(schema, text):
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), text) is not None


def by_llguidance(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    tokens = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def by_jsonschema(schema, text):
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


def thing(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


text, year, number = {"type": "string"}, {"type": "string", "pattern": "[0-9]{4}"}, {"type": "number"}
cases = {
    "plain": (thing(query=text), '{"query": "café"}'),
    "pattern inside a text": (thing(query=year), '{"query": "in 1889"}'),
    "exponent": (thing(score=number), '{"score": 1e5}'),
    "indent": (thing(query=text), json.dumps({"query": "Vienna"}, indent=2)),
    "escaped letter": (thing(query=text), json.dumps({"query": "café"})),
    "order of keys": (thing(query=text, topic=text), '{"topic": "Austria", "query": "Vienna"}'),
}
seen = {}
for name, case in cases.items():
    seen[name] = [check(*case) for check in (by_jsonschema, by_llguidance, by_outlines)]
    print(f"{name}: jsonschema {seen[name][0]}, llguidance {seen[name][1]}, outlines_core {seen[name][2]}")
assert all(row[0] for row in seen.values())
assert [row[1] for row in seen.values()] == [True, True, True, True, False, False]
assert [row[2] for row in seen.values()] == [True, False, False, False, False, False]
PY
echo "seen: one schema, three sets of valid JSON"
