"""Transfer: one policy for two worlds, self-play in either, accuracy in both.

    python -m benchmarks.transfer --seeds 0 1 2 3 4 --out DIR

The policy is wiki-small, taught further by demonstrations of both worlds in turns. From it, each
seed trains once in the mini-wiki (`tiny`, 80 steps) and once on sentences of Wikipedia
(`wiki-small`, 40 steps); half-way and in the end, both worlds ask it questions that are never
trained on. Writes ``transfer.csv``, a line per policy and world, ``transfer.md``, means over seeds
with 95% intervals, and ``transfer.png``. What is in DIR is not done again.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import ssp_agents
from benchmarks import wiki_small as wiki
from benchmarks.harness import headline, origin, parser
from ssp_agents.models import load_model
from ssp_agents.shipped.tiny.bootstrap import descend, endless, rate, save_policy, token_loss
from ssp_agents.shipped.tiny.traces import TraceWriter as MiniWriter
from ssp_agents.shipped.wiki_small.traces import TraceWriter as WikiWriter
from ssp_env.disk import new_folder, write_atomically
from ssp_env.game.config import MINI_GAME, WIKI_GAME
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_experiments.report.curves import group_in_words, panels, save_figure
from ssp_experiments.stats import over_runs

SHIPPED = Path(ssp_agents.__file__).parent / "shipped" / "wiki_small" / "checkpoint"
LESSONS, LR = 1800, 2e-3
"""Optimizer steps of the base policy, in turns on either world; highest learning rate."""
SIMPLE = 0.4
"""First share of them in which the mini-wiki asks for one hop, without faults."""
BUDGETS = {"max_response_tokens": 512, "max_document_tokens": 96, "max_query_tokens": 32}
"""Of games in the mini-wiki, whose words take two of these tokens each."""
WORLDS = {"mini-wiki": ("tiny", 80), "Wikipedia": ("wiki-small", 40)}
"""Preset and steps by world."""
KINDS = {
    "mini-wiki": ["1 hop", "2 hops", "3 hops", "4 hops"],
    "Wikipedia": ["relation", "two hops", "new two hops", "cloze", "popqa"],
}
"""Kinds of questions by world."""
PER_GROUP = 100


def main() -> int:
    """Does what is missing, two trials at a time, and makes the table."""
    options = parser(__doc__, seed=False)
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--parallel", type=int, default=2)
    settings = options.parse_args()
    base = settings.out / "base"
    settings.out.mkdir(parents=True, exist_ok=True)
    if not base.exists():
        with new_folder(base) as folder:
            teach(folder)

    def trial(job: tuple[str, int]) -> list[dict[str, Any]]:
        world, seed = job
        preset, steps = WORLDS[world]
        run = settings.out / f"{preset}-seed{seed}"
        if not (run / "summary.json").exists():
            saved = [
                f"checkpoint_every={steps // 2}",
                f"evaluate_every={steps}",
                "patience=null",
                "checkpoints_kept=null",
                "game.closed_book=false",
            ]
            options = ["--preset", preset, "--seed", str(seed), "--steps", str(steps)]
            resumed = ["--resume"] if run.exists() else []
            ssp("train", "--model", base, "--out", run, *options, *resumed, *sets(preset, *saved))
        policies = {s: run / f"checkpoints/step_{s:06d}/policy" for s in (steps // 2, steps)}
        own = {"trained in": world, "seed": seed}
        return [{**own, "step": s, **line} for s in policies for line in accuracies(policies[s])]

    with ThreadPoolExecutor(settings.parallel) as pool:
        trained = pool.map(trial, itertools.product(WORLDS, settings.seeds))
        lines = list(itertools.chain(*trained))
    before = [{"step": 0, **line} for line in accuracies(base)]
    lines = [{"trained in": world, **line} for world in WORLDS for line in before] + lines
    table = pd.DataFrame(lines)
    table.to_csv(settings.out / "transfer.csv", index=False)

    pages = [headline(origin())]
    for world, kinds in KINDS.items():
        asked = table[table["asked in"] == world].groupby(["trained in", "step"])
        cells = asked[[*kinds, "searches at two hops"]].agg(shown).reset_index()
        pages += [f"## Asked in {world}", cells.to_markdown(index=False)]
    (settings.out / "transfer.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    draw(table, settings.out / "transfer.png")
    return 0


def shown(seeds: pd.Series[float]) -> str:
    """A mean over seeds and half of its interval, if there are several."""
    known = seeds.dropna()
    if known.empty:
        return "-"
    found = over_runs(list(known))
    return f"{found.mean:.3f}" + ("" if found.half is None else f" ±{found.half:.2f}")


def draw(table: pd.DataFrame, out: Path) -> None:
    """A panel per kind of question: means by steps, and ranges over seeds, of both trainings."""
    kinds = [(world, kind) for world in KINDS for kind in KINDS[world]]
    figure, axes = panels(len(kinds))
    for axis, (world, kind) in zip(axes, kinds, strict=True):
        for trained, own in table[table["asked in"] == world].groupby("trained in"):
            by_step = own.groupby("step")[kind]
            axis.plot(by_step.mean(), "o-", label=f"self-play in {trained}")
            axis.fill_between(by_step.min().index, by_step.min(), by_step.max(), alpha=0.15)
        axis.set_title(f"{world}: {kind}", fontsize="medium")
        axis.set(xlabel="step", ylim=(-0.02, 1.02))
    axes[0].legend(frameon=False, loc="lower right")
    save_figure(figure, out)


def teach(folder: Path) -> None:
    """Writes the base policy: demonstrations of both worlds in turns."""
    torch.set_num_threads(1)
    model = load_model(SHIPPED).train()
    tokenizer = HuggingFaceTokenizer.load(SHIPPED)
    rng = np.random.default_rng(0)
    game = MINI_GAME.replace(**BUDGETS)
    one = (1.0,)
    simple = MiniWriter(game, tokenizer, rng, faults=False, solver_hops=one, proposer_hops=one)
    first, later = (endless(w.stream(), rng) for w in (simple, MiniWriter(game, tokenizer, rng)))
    real = endless(WikiWriter(WIKI_GAME, tokenizer).stream(rng), rng)

    optimizer = torch.optim.AdamW(model.parameters(), LR, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, LESSONS + 1):
        for group in optimizer.param_groups:
            group["lr"] = LR * rate(step, LESSONS)
        if step % 2:
            in_words, attention = wiki.losses(model, next(real))
            loss = in_words + wiki.ATTENTION_WEIGHT * attention
        else:
            in_words, _ = token_loss(model, next(first if step <= SIMPLE * LESSONS else later))
            loss = in_words
        descend(optimizer, loss, model)
        if step % 50 < 2:
            print(f"step {step}/{LESSONS}, loss {float(in_words.detach()):.3f}", flush=True)
    save_policy(model.eval(), folder, tokenizer.inner)


def accuracies(policy: Path) -> Iterator[dict[str, Any]]:
    """Greedy accuracy by kind of question, and searches at two hops, a line per world; what the
    command found is kept in a file beside the policy."""
    for world, (preset, _) in WORLDS.items():
        file = policy.with_name(f"{policy.name}-{preset}.json")
        if not file.exists():
            per_group = ("--per-group", PER_GROUP)
            found = ssp("eval", policy, "--preset", preset, "--json", *per_group, *sets(preset))
            write_atomically(file, found)
        rows = json.loads(file.read_text(encoding="utf-8"))["evaluations"][0]["rows"]
        own = [row for row in rows if row["judge"] == rows[0]["judge"]]
        by_kind = {group_in_words(row["group"]): row for row in own}
        accuracy = {kind: by_kind[kind]["avg@1"] for kind in KINDS[world]}
        searches = by_kind[KINDS[world][1]]["searches"]
        yield {"asked in": world, **accuracy, "searches at two hops": searches}


def ssp(*words: object) -> str:
    """What a command prints."""
    command = Path(sys.executable).with_name("ssp")
    return subprocess.run(
        [command, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def sets(preset: str, *settings: str) -> list[str]:
    """Options of a command that change settings, and budgets if words are short of them."""
    longer = [f"game.{name}={value}" for name, value in BUDGETS.items() if preset == "tiny"]
    return [part for setting in (*settings, *longer) for part in ("--set", setting)]


if __name__ == "__main__":
    sys.exit(main())
