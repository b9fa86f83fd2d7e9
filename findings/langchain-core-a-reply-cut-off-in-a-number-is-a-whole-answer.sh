#!/usr/bin/env bash
# langchain-core 1.8.3: a reply that ends at the limit of tokens, in the middle of its JSON.
#
# One would guess: JsonOutputParser().parse(reply) raises OutputParserException, as its documentation says of text
# that is not valid JSON; and a call of a tool whose arguments break off is among a message's invalid_tool_calls.
# Seen: open strings, lists and objects are closed, and what has been written of a number counts as the number. A year
# that broke off after two digits is the year 19, a share of .75 that broke off behind its point is 0, and a verdict
# that broke off in "true" is an answer without a verdict. PydanticOutputParser, built upon it, finds such an answer
# valid. So does a message that was streamed: its call is a valid one with the argument 19.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check langchain-core==1.8.3
"$folder/venv/bin/python" - <<'PY'
import json

from langchain_core.messages import AIMessageChunk
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from pydantic import BaseModel

parse = JsonOutputParser().parse
for reply in ('{"year": 19', '{"share": 0.', '{"answer": "Vien', '{"correct": tr'):
    print(f"{reply:20} -> {parse(reply)}")
    try:
        json.loads(reply)
        raise AssertionError("this is valid JSON")
    except json.JSONDecodeError:
        pass
assert parse('{"year": 19') == {"year": 19}
assert parse('{"share": 0.') == {"share": 0}
assert parse('{"answer": "Vien') == {"answer": "Vien"}
assert parse('{"correct": tr') == {}


class Answer(BaseModel):
    year: int


assert PydanticOutputParser(pydantic_object=Answer).parse('{"year": 19') == Answer(year=19)

first = {"name": "check_year", "args": '{"year": ', "id": "1", "index": 0}
second = {"name": None, "args": "19", "id": None, "index": 0}
message = AIMessageChunk(content="", tool_call_chunks=[first]) + AIMessageChunk(
    content="", tool_call_chunks=[second], response_metadata={"finish_reason": "length"}
)
print("valid calls:", message.tool_calls, "invalid calls:", message.invalid_tool_calls)
assert message.tool_calls[0]["args"] == {"year": 19} and not message.invalid_tool_calls
PY
echo "seen: of a year that breaks off after two digits, langchain-core makes the year 19, and a valid call"
