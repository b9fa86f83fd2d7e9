#!/usr/bin/env bash
# math-verify 0.9.0, parse() and verify(): the usual reward for tasks whose answer is a number.
#
# One would guess: a number as Python and JSON print it is read as that number, or not at all.
# Seen: outside of TeX, an exponent is dropped: 1e3 and 1e+16 are 1, 2.5e-3 is 2.5. So "2.5e-3" is right for 2.5 and
# wrong for 0.0025. "1.5 million" is 1.5, and 10 with a raised 6 is 10. Between $ signs the e is Euler's number: $2.5e-3$
# is 2.5 times e, minus 3. A percentage is right for both its readings: 50% for 50 and for 0.5, although these differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    math-verify==0.9.0 latex2sympy2_extended==1.11.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
from math_verify import parse, verify

for written in ("1e3", "1e+16", "2.5e-3", "$2.5e-3$", "1.5 million", "10⁶", "1,000"):
    print(f"{written!r} is read as {parse(written)[0]}")


def right(gold, answer):
    return verify(parse(gold), parse(answer))


assert right("1", "1e3") and not right("1000", "1e3") and right("1", "1e+16")
assert right("2.5", "2.5e-3") and not right("0.0025", "2.5e-3")
assert right("1.5", "1.5 million") and right("10", "10⁶")
assert right("50", "50%") and right("0.5", "50%") and not right("0.5", "50")
assert right("1000", "1,000")
PY
echo "seen: 1e3 equals 1, and 50% equals both 50 and 0.5"
