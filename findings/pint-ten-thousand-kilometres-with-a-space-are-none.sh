#!/usr/bin/env bash
# pint 0.25.3: lengths and times as people write them, read by the registry, ureg("...") or ureg.Quantity("...").
#
# One would guess: such a text is read as people mean it, or it is refused.
# Seen: a space between numbers multiplies. "10 000 km", as the SI and French write it, is 10 times 000: no kilometre at
# all. "5 1/2 ft" is 2.5 ft, and "6 ft 2 in" is an area. A comma is deleted, so "1,5 km" is 15 km. None of them raises,
# so a judge that compares quantities calls "10 000 km" right for "0 km" and wrong for "10,000 km".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pint==0.25.3
"$folder/venv/bin/python" - <<'PY'
import pint

ureg = pint.UnitRegistry()
for text in ("10 000 km", "10,000 km", "5 1/2 ft", "6 ft 2 in", "2 h 30 min", "1,5 km"):
    print(f"{text:12} -> {ureg(text)}")
    assert ureg(text) == ureg.Quantity(text)
assert ureg("10 000 km") == ureg("0 km")
assert ureg("10,000 km") == 10_000 * ureg.km
assert ureg("5 1/2 ft") == 2.5 * ureg.ft
assert ureg("6 ft 2 in").dimensionality == ureg("1 m ** 2").dimensionality
assert ureg("2 h 30 min").dimensionality == ureg("1 s ** 2").dimensionality
assert ureg("1,5 km") == 15 * ureg.km
PY
echo "seen: to pint, 10 000 km are 0 km, 5 1/2 ft are 2.5 ft, and 1,5 km are 15 km"
