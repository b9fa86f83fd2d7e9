"""Which causal LMs of `transformers` the engine plays: each is built from a tiny random config on
the CPU, checked as at load, and played for two turns beside its own plain forward pass.

    OMP_NUM_THREADS=1 python -m benchmarks.models --out benchmarks/results/models.json

``--registry`` is the file ``vllm/model_executor/models/registry.py`` of a vLLM, for the
architectures that it serves; one that is installed is found. ``--tokenizers`` is a directory of
directories of real tokenizers. ``--page`` writes the tables as Markdown.
"""

from __future__ import annotations

import ast
import json
import logging
import resource
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

from benchmarks.harness import headline, origin, parser
from benchmarks.tiny_models import VOCABULARY, tiny_model
from ssp_agents.architecture import check_scoring
from ssp_agents.causal_lm import plain_logits
from ssp_agents.engines.base import Request, StopRule, generate
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_env.errors import ModelError
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer

ROWS, ROOM = 5, 9
CLOSE = 1e-3
"""Nats within which two turns are those of the plain forward pass."""
MOST_BYTES, MOST_SECONDS = 8 * 2**30, 300


def main() -> None:
    arguments = parser(__doc__, seed=False)
    arguments.add_argument("--only", nargs="*", default=list(NAMES), help="architectures")
    arguments.add_argument("--registry", type=Path, help="vLLM's registry.py")
    arguments.add_argument("--tokenizers", type=Path, help="directories of real tokenizers")
    arguments.add_argument("--page", type=Path, help="Markdown to write")
    given = arguments.parse_args()

    served = vllm_architectures(given.registry)
    rows = []
    for name in given.only:
        row = in_a_process(name)
        row["vllm"] = NAMES[name] if NAMES[name] in served.get("architectures", ()) else None
        rows.append(row)
        print(json.dumps(row), flush=True)
    result = {
        **origin(),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "vllm": served.get("version"),
        "counts": counts(rows),
        "models": rows,
        "tokenizers": read_tokenizers(given.tokenizers),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["counts"]))
    if given.page:
        given.page.write_text(page(result), encoding="utf-8")


def in_a_process(name: str) -> dict[str, Any]:
    """A process of its own, so that no model can take the others' time, memory or settings."""
    with ProcessPoolExecutor(1, get_context("fork"), _bounded) as pool:
        try:
            return pool.submit(tried, name).result()
        except BrokenProcessPool:
            ended = f"it took more than {MOST_SECONDS} s or {MOST_BYTES >> 30} GiB"
            return {"name": name, "class": NAMES[name], "not_built": ended}


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    transformers.utils.logging.set_verbosity_error()
    logging.disable()
    warnings.simplefilter("ignore")


def tried(name: str) -> dict[str, Any]:
    """What becomes of one architecture."""
    row: dict[str, Any] = {"name": name, "class": NAMES[name]}
    try:
        lm = tiny_model(name)
        plain_logits(lm, torch.tensor([[5, 6, 7]]))
    except Exception as error:  # whatever a config of small sizes may break
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        return {**row, "not_built": said[:200]}

    row["kind"] = lm.config.model_type
    row["parameters"] = sum(weight.numel() for weight in lm.parameters())
    try:
        row["scoring"] = check_scoring(lm, VOCABULARY)
    except ModelError as error:
        row["not_trained"] = str(error)
    try:
        engine = TransformersEngine(lm, WORDS, StopRule(frozenset(range(5)), ()))
    except ModelError as error:
        return {**row, "refused": str(error)}
    row["check"] = engine.passes.checked
    row["way"] = [name for name, taken in engine.passes.way._asdict().items() if taken]
    row["two_turns"] = two_turns(lm, engine)
    row["plays"] = row["two_turns"] <= CLOSE
    return row


WORDS = WordTokenizer([f"w{i}" for i in range(VOCABULARY - 3)], ())


@torch.no_grad()
def two_turns(lm: Any, engine: TransformersEngine) -> float:
    """Largest distance in nats of the engine's log-probabilities from the plain forward pass's,
    over rows of unequal length that take two turns, some of them at a time."""
    rng = np.random.default_rng(0)
    rows = {key: rng.integers(5, VOCABULARY, 2 + 4 * key).tolist() for key in range(ROWS)}
    apart = 0.0
    for turn, keys in enumerate((range(ROWS), (4, 1, 3), range(ROWS))):
        asked = [Request(key, rows[key], ROOM, 1.0, 9 * key + turn) for key in keys]
        for request, found in zip(asked, generate(engine, asked), strict=True):
            ids = [*request.ids, *found.ids]
            logits = plain_logits(lm, torch.tensor([ids]))[0, :, :VOCABULARY].float()
            own = logits.log_softmax(-1)[len(request.ids) - 1 : -1]
            chosen = own[range(len(found.ids)), found.ids].numpy()
            apart = max(apart, float(np.abs(chosen - found.logprobs).max()))
            rows[request.key] = [*ids, *rng.integers(5, VOCABULARY, 1 + request.key).tolist()]
    return apart


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    built = [row for row in rows if "not_built" not in row]
    return {
        "architectures": len(rows),
        "built": len(built),
        "play": sum(row.get("plays", False) for row in built),
        "refused": sum("refused" in row for row in built),
        "inexact": sum(row.get("plays") is False for row in built),
        "trained": sum("scoring" in row for row in built),
    }


# -- vLLM and tokenizers -----------------------------------------------------------------------


def vllm_architectures(registry: Path | None) -> dict[str, Any]:
    """Architectures that vLLM names in its registry, and its version; the file is read, not run."""
    if registry is None:
        found = find_spec("vllm")
        if found is None or not found.submodule_search_locations:
            return {}
        registry = Path(found.submodule_search_locations[0], "model_executor/models/registry.py")
    named: set[str] = set()
    for node in ast.parse(registry.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id in SERVED:
                named |= {k.value for k in node.value.keys if isinstance(k, ast.Constant)}
    distributions = registry.parents[3].glob("vllm*.dist-info")
    versions = [path.name.split("-")[1].removesuffix(".dist") for path in distributions]
    return {"version": next(iter(versions), "unknown"), "architectures": named}


SERVED = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")


def read_tokenizers(folder: Path | None) -> list[dict[str, Any]]:
    """Real tokenizers: size, end token, and whether they have a chat template."""
    rows = []
    for directory in sorted(folder.iterdir()) if folder else ():
        if (directory / "tokenizer.json").is_file():
            tokenizer = HuggingFaceTokenizer.load(directory)
            config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
            end = config.get("eos_token")
            rows.append(
                {
                    "name": directory.name,
                    "tokens": tokenizer.vocab_size,
                    "class": config.get("tokenizer_class"),
                    "end": end["content"] if isinstance(end, dict) else end,
                    "template": bool(config.get("chat_template")),
                }
            )
    return rows


# -- the page ----------------------------------------------------------------------------------

WAYS = {
    "even": "rows of equal numbers of new tokens together",
    "apart": "rows of each length apart, slowly",
    "anew": "each turn read from its first token",
}
HEAD = (
    "# Models\n\n"
    "No list says which models run. Where a model is loaded, it plays eight tokens of two rows in "
    "two turns, cached and padded, and is compared with its own plain forward pass; so is the "
    "learner's scoring. Within rounding, it plays. Otherwise it is refused in one sentence, with "
    "the distance in nats and the engine that can play it, where there is one. The check is of the "
    "`transformers` engine: `engine.kind=vllm` does not meet it.\n\n"
    "`make models` wrote this page. It builds every causal LM of transformers {transformers} that "
    "can be built from a tiny random config, in float32 on a CPU, checks it as at load, and plays "
    "two turns of five rows. Of {architectures} families, {built} could be built. Of these, {play} "
    "play and {refused} are refused; {inexact} passes the check, but is further than {close} nats "
    "from its plain forward pass in two turns. The page says nothing of the sizes and weights that "
    "people have. Before transformers 5.21, Mamba, Qwen3-Next, Qwen3.5, Jamba and Falcon-H1 are "
    "refused.\n\n"
    "*Distance* is the largest one in nats, at load and over two turns of up to 40 tokens. *vLLM* "
    "says whether the registry of vLLM {vllm} names the class, which was not tried.\n\n"
    "| engine | learner | vLLM | distance | remarks | families |\n"
    "|---|---|---|--:|---|---|\n"
)


def page(result: dict[str, Any]) -> str:
    known = {name: result[name] for name in ("transformers", "vllm")}
    text = HEAD.format(close=CLOSE, **known, **result["counts"])
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in result["models"]:
        if "not_built" not in row:
            groups.setdefault(cells(row), []).append(row)
    for (plays, learner, vllm, remarks), rows in sorted(groups.items(), key=_most_first):
        distances = [row[name] for row in rows for name in ("check", "two_turns") if name in row]
        largest = f"{max(distances):.0e}" if distances and plays != "refused" else ""
        families = ", ".join(sorted(row["name"] for row in rows))
        text += f"| {plays} | {learner} | {vllm} | {largest} | {remarks} | {families} |\n"
    missing = [row["name"] for row in result["models"] if "not_built" in row]
    text += f"\nNot built from small sizes, so untried: {', '.join(missing)}.\n"
    if result["tokenizers"]:
        text += "\n## Tokenizers\n\n| tokenizer | tokens | end of text | chat template |\n"
        text += "|---|--:|---|---|\n"
        for row in result["tokenizers"]:
            has = "yes" if row["template"] else "no"
            end = row["end"].replace("|", "\\|")
            text += f"| {row['name']} | {row['tokens']:,} | `{end}` | {has} |\n"
    return f"{text}\n{headline(result)}\n"


def _most_first(group: tuple[tuple[str, ...], list[Any]]) -> tuple[bool, int]:
    """Those that play first, then by their number."""
    key, rows = group
    return key[0] == "refused", -len(rows)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """What the table says of one architecture: engine, learner, vLLM and remarks."""
    remarks = "; ".join(WAYS[name] for name in row.get("way", ()))
    if row.get("plays") is False:
        remarks += "; single tokens move its state on otherwise than a text does"
    plays = "refused" if "refused" in row else "plays" if row["plays"] else "plays, inexactly"
    learner = "learns" if "scoring" in row else "refused"
    return plays, learner, "yes" if row["vllm"] else "no", reason(row) or remarks.lstrip("; ")


def reason(row: dict[str, Any]) -> str:
    """Why the engine refuses it, in short."""
    said = row.get("refused", "")
    if "no causal mask" in said:
        return "no causal mask"
    if "single tokens" in said:
        return "single tokens move its state on otherwise than a text does"
    return "what it has read is kept outside of the cache, or not at all" if said else ""


if __name__ == "__main__":
    main()
