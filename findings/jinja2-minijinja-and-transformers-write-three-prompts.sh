#!/usr/bin/env bash
# jinja2 3.1.6, minijinja 3.1.0 and transformers 5.23.0 (which uses jinja2) on one chat template that lists tools by
# {{ tool | tojson }}, as most do.
#
# One would guess: a chat template is Jinja, so jinja2's plain Environment writes what apply_chat_template writes.
# Seen: jinja2's tojson is made for HTML pages: it puts keys into alphabetical order and writes <, >, & and ' as escapes
# such as \u003c. minijinja (of servers in Rust) escapes, but keeps the order. transformers has its own tojson, which does
# neither. A tool whose description names <search> tags reaches the model in three forms.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6 minijinja==3.1.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import jinja2
import minijinja
from transformers.utils.chat_template_utils import render_jinja_template

template = "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{{ messages[0].content }}"
tool = {
    "type": "function",
    "function": {"name": "search", "description": "Write <search>words</search>, it's quick", "parameters": {}},
}
messages = [{"role": "user", "content": "What is the capital of Austria?"}]
rendered, _ = render_jinja_template(conversations=[messages], tools=[tool], chat_template=template)
prompts = {
    "transformers": rendered[0],
    "jinja2": jinja2.Environment().from_string(template).render(tools=[tool], messages=messages),
    "minijinja": minijinja.Environment().render_str(template, tools=[tool], messages=messages),
}
for name, prompt in prompts.items():
    print(f"{name} ({len(prompt)} characters): {prompt.splitlines()[0]}")
assert "<search>words</search>, it's" in prompts["transformers"]
escaped = r"\u003csearch\u003ewords\u003c/search\u003e, it\u0027s"
assert escaped in prompts["jinja2"] and escaped in prompts["minijinja"]
assert prompts["transformers"].startswith('{"type": "function", "function": {"name"')
assert prompts["minijinja"].startswith('{"type": "function", "function": {"name"')
assert prompts["jinja2"].startswith('{"function": {"description"')
PY
echo "seen: one chat template, three renderers, three prompts"
