#!/usr/bin/env bash
# tantivy 0.27.0 (Python), the default tokenizer, on text that is written without spaces.
#
# One would guess: such a sentence is one long word, which the same sentence finds; or each character is a word.
# Seen: words of 40 bytes and more are thrown away without a word, from the index and from the query. So of a Chinese
# passage the clauses up to 13 characters can be found (whole, by nothing but themselves), and clauses of 14 or more,
# 3 bytes a character, are not there: the query that copies one is an empty query. A German compound is lost likewise.
# Whether a passage is found at all depends on where its commas stand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check tantivy==0.27.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import tantivy

schema = tantivy.SchemaBuilder()
schema.add_text_field("text", stored=True)
index = tantivy.Index(schema.build())
writer = index.writer()
clauses = {
    "13 characters": "维也纳是奥地利的首都和名城",
    "14 characters": "维也纳是奥地利最大的都会之一",
    "compound of 39": "Donaudampfschifffahrtsgesellschaftsbuch",
    "compound of 43": "Donaudampfschifffahrtsgesellschaftskalender",
}
for clause in clauses.values():
    writer.add_document(tantivy.Document(text=clause))
writer.commit()
index.reload()

found = {}
for name, clause in clauses.items():
    query = index.parse_query(clause, ["text"])
    found[name] = index.searcher().search(query, 5).count
    print(f"{name}, {len(clause.encode())} bytes: {found[name]} found by {query}"[:100])
assert list(found.values()) == [1, 0, 1, 0]

# Five commas decide: the same characters, once in one clause and once in pieces.
for text in ("维也纳是奥地利的首都也是最大的城市", "维也纳，是奥地利的首都，也是最大的城市"):
    writer.add_document(tantivy.Document(text=text))
writer.commit()
index.reload()
hits = index.searcher().search(index.parse_query("是奥地利的首都", ["text"]), 5).hits
print(f"the clause alone finds {len(hits)} of the two passages that hold it")
assert len(hits) == 1
PY
echo "seen: a clause of 13 Chinese characters is found, one of 14 is in no index"
