#!/usr/bin/env bash
# numpy 2.4.6, orjson 3.13.0: the state of a generator, kept as JSON in a checkpoint, as numpy's dict invites one to do.
#
# One would guess: what json.dumps has written, each reader gives back; or a state that is damaged is refused.
# Seen: the two integers of a PCG64 state have 128 bits. json.dumps writes all their digits. orjson.loads reads an
# integer beyond 64 bits as a float, without an error, and numpy takes a state made of floats, without an error. The
# generator then draws other numbers than the saved one, so a run that was resumed has left its path. Two states that
# are next to each other become one. The standard library's reader and msgspec 0.22.0 restore the stream.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 orjson==3.13.0 msgspec==0.22.0
"$folder/venv/bin/python" - <<'PY'
import json

import msgspec
import numpy as np
import orjson

saved = np.random.default_rng(5)
text = json.dumps(saved.bit_generator.state)
drawn = saved.integers(1000, size=5).tolist()


def resumed(read):
    rng = np.random.default_rng()
    rng.bit_generator.state = read(text)
    return rng.integers(1000, size=5).tolist()


readers = {"json": json.loads, "msgspec": msgspec.json.decode, "orjson": orjson.loads}
print(f"{'saved':8}", drawn)
for name, read in readers.items():
    print(f"{name:8}", resumed(read))
assert resumed(json.loads) == resumed(msgspec.json.decode) == drawn
assert resumed(orjson.loads) != drawn

state = json.loads(text)["state"]["state"]
read = orjson.loads(text)["state"]["state"]
print(state, "is read as", read)
assert type(read) is float and int(read) != state
assert orjson.loads(str(state)) == orjson.loads(str(state + 1))
PY
echo "seen: orjson reads a generator's state as floats, numpy takes them, and the stream is another one"
