#!/usr/bin/env bash
# reasoning_gym 0.1.23, score_answer(): verifiable tasks, used as rewards.
#
# One would guess: the answer to a sum is right (1) or wrong (0, or a token amount for the form).
# Seen: where a task has no scoring of its own, every answer that contains the right one as a piece of text is paid
# len(right) / len(answer). So a number with a digit too many earns 0.75 on a sum, "not 214" earns 0.43, a denial of a
# yes-or-no answer likewise, and a list of guesses is paid for the one that fits. Tasks that look alike differ: the sums
# of chain_sum are paid so, those of decimal_chain_sum are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check reasoning_gym==0.1.23
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import reasoning_gym

rows = {}
for name in ("chain_sum", "lcm", "syllogism", "decimal_chain_sum"):
    tasks = reasoning_gym.create_dataset(name, size=50, seed=1)
    entry = next(entry for entry in tasks if len(entry["answer"]) == 3 or name in ("syllogism", "decimal_chain_sum"))
    right = entry["answer"]
    tries = [right, f"1{right}", f"not {right}", f"{right} 555 666", "something else"]
    rows[name] = [round(tasks.score_answer(answer, entry), 2) for answer in tries]
    print(f"{name}, right is {right}: " + ", ".join(f"{a!r} {s}" for a, s in zip(tries, rows[name], strict=True)))
assert rows["chain_sum"] == rows["lcm"] == [1.0, 0.75, 0.43, 0.27, 0.0]
assert rows["syllogism"][0] == 1.0 and rows["syllogism"][2] > 0.4
assert rows["decimal_chain_sum"] == [1.0, 0.0, 0.0, 0.0, 0.0]
PY
echo "seen: 1214 earns three quarters of what 214 earns; another kind of sum pays nothing for such answers"
