#!/usr/bin/env bash
# mistral_common 1.13.1, the instruct tokenizers that it carries: a chat of two turns with a system prompt.
#
# One would guess: a longer chat begins with the tokens of the shorter one, with the system prompt in front.
# Seen: in the formats v2 and v3 (of Mistral 7B v0.3, Mixtral, Nemo) the system prompt is written inside the LAST user
# message. At each turn it leaves the place where the model read it and reappears before the new question; so earlier
# turns are read as if they had had no instructions, what a policy saw when it wrote turn one is in no later prompt, and
# a prefix cache misses from the first token on. Format v1 keeps it in the first user message, v7 in front of all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mistral_common==1.13.1 sentencepiece==0.2.3
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import warnings

warnings.simplefilter("ignore")
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

chat = [
    SystemMessage(content="Be brief."),
    UserMessage(content="What is the capital of Austria?"),
    AssistantMessage(content="Vienna."),
    UserMessage(content="And its river?"),
]
makers = {
    "v1": MistralTokenizer.v1,
    "v2": MistralTokenizer.v2,
    "v3": MistralTokenizer.v3,
    "v3 (tekken)": lambda: MistralTokenizer.v3(is_tekken=True),
    "v7": MistralTokenizer.v7,
}
grows = {}
for name, make in makers.items():
    tokenizer = make()
    one, two = (tokenizer.encode_chat_completion(ChatCompletionRequest(messages=chat[:n])) for n in (2, 4))
    grows[name] = two.tokens[: len(one.tokens)] == one.tokens
    print(f"{name}: {two.text!r}")
print("turn two begins with the tokens of turn one:", grows)
assert grows == {"v1": True, "v2": False, "v3": False, "v3 (tekken)": False, "v7": True}
PY
echo "seen: the tokens of turn one are not the beginning of turn two"
