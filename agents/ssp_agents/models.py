"""Policies: model directories, low-rank adapters, and the tensors that are sent and saved.

Adapters are LoRA's (https://arxiv.org/abs/2106.09685), by `peft`: W + 2 B A in place of each linear
map W of the layers. W stays, so without adapters the policy is the one that training began with.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ssp_agents.checksums import check_weights, sha256_of, write_checksums
from ssp_agents.config import SHIPPED
from ssp_agents.gguf import tie_copies, with_split
from ssp_agents.precision import settle_attention
from ssp_env.disk import cache_folder, new_folder
from ssp_env.errors import ModelError, UsageError

LORA_SCALE = 2
"""Factor on B A, whatever its rank."""
_A, _B = ".lora_A.default.weight", ".lora_B.default.weight"
_COPIED = (".json", ".txt", ".model", ".jinja")
"""Files of config and tokenizer."""
LM = "lm."
"""Beginning of the names of the causal LM's weights in a module; others are not played with."""
_CONVERTED = 3
"""Version of the conversion from GGUF: what an earlier one left in the cache is not used."""


# -- model directories -------------------------------------------------------------------------


def shipped_directory(world: str) -> Path:
    return Path(__file__).parent / "shipped" / SHIPPED[world] / "checkpoint"


def tiny_directory() -> Path:
    return shipped_directory("mini")


@cache
def from_gguf(file: str | Path) -> Path:
    """The model directory that a GGUF file is converted to, by `transformers`, in float32.

    That is done once: it stays in the cache under its checksum. ``ModelError`` if the file cannot
    be read, or its tokenizer splits text in a way that is not known here."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    path = Path(file).resolve()
    try:
        target = cache_folder() / f"{path.stem}-{sha256_of([path])[0][:16]}-{_CONVERTED}"
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if target.is_dir():
        return target
    logging.disable_progress_bar()
    from_file = {"gguf_file": path.name, "local_files_only": True}
    try:
        lm = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **from_file)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, **from_file)
    except Exception as error:  # its readers raise whatever a broken file leads to
        said = str(error).partition("\n")[0]
        raise ModelError(f"{path} cannot be read as a GGUF file: {said}") from error

    tokenizer = with_split(tokenizer, path)
    tie_copies(lm, path)
    # The weights are plain numbers from here on.
    lm.config.__dict__.pop("quantization_config", None)
    # As `save_pretrained` of a model does: llama.cpp's converter goes by this name.
    lm.config.architectures = [type(lm).__name__]
    with TemporaryDirectory() as source, new_folder(target) as folder:
        lm.config.save_pretrained(source)
        tokenizer.save_pretrained(source)
        save_policy(state_of(lm), source, folder)
    return target


def meta_model(directory: str | Path) -> Any:
    """The causal LM of a directory on PyTorch's meta device: only ``config.json`` is read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    offline = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(directory, **offline)
        with torch.device("meta"):
            kind = {"trust_remote_code": False, "dtype": torch.float32}
            return settle_attention(AutoModelForCausalLM.from_config(config, **kind)).eval()
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = str(error).splitlines()[0]
        raise ModelError(f"{Path(directory) / 'config.json'} cannot be used: {said}") from error


def load_model(directory: str | Path) -> Any:
    """Loads a causal LM in float32 and evaluation mode, offline, on the CPU; for its attention, see
    :func:`ssp_agents.precision.settle_attention`."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    path = Path(directory)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not a model directory (config.json is missing)")
    check_weights(path)

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    # cuDNN plans attention anew for each shape, for half a second; here, each token makes a new
    # one. PyTorch's other kernels need no plan. This holds for the whole process.
    torch.backends.cuda.enable_cudnn_sdp(False)

    unreadable = (OSError, ValueError, KeyError, RuntimeError)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            local_files_only=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    except (*unreadable, SafetensorError, StrictDataclassError) as error:
        raise ModelError(f"the model in {path} cannot be loaded: {error}") from error

    # Weights that are missing, or do not fit the config, would be random numbers.
    wrong = [f"its weights lack {name}" for name in sorted(info["missing_keys"])] + [
        f"its weights do not fit its config: {name} is {list(has)}, not {list(wanted)}"
        for name, has, wanted in sorted(info["mismatched_keys"])
    ]
    if wrong:
        raise ModelError(f"the model in {path} cannot be loaded: {'; '.join(wrong[:3])}")

    return settle_attention(model).eval()


def round_parameters(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Rounds the parameters, in place. Buffers stay: rounded frequencies of rotary positions would
    make it another model, above all on long texts."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)


def save_policy(
    weights: Mapping[str, Any],
    source: str | Path,
    directory: str | Path,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes trained weights, tensors or arrays as the model names them, as a model directory, with
    the config and tokenizer of ``source``; rounded to ``dtype``, if given. `transformers` 4 reads
    it, too."""
    from safetensors.torch import save_file

    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)

    for file in sorted(Path(source).iterdir()):
        # origin.json describes the weights that these were trained from, an index their files.
        others = file.name == "origin.json" or ".index" in file.suffixes
        if file.is_file() and file.suffix in _COPIED and not others:
            shutil.copyfile(file, target / file.name)

    config = _with_former_names(_read(target / "config.json"))
    said = target / "tokenizer_config.json"
    if said.is_file() and (tokenizer := _read(said)).get("tokenizer_class") == "TokenizersBackend":
        _write(said, {**tokenizer, "tokenizer_class": "PreTrainedTokenizerFast"})  # its former name

    # safetensors writes contiguous tensors alone.
    tensors = {name: as_tensor(value).contiguous() for name, value in weights.items()}
    if dtype is not None:
        tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    if config.get("tie_word_embeddings"):
        # The output layer is the embedding; loading ties them again.
        tensors.pop("lm_head.weight", None)

    # A loader that asks for no dtype takes the config's: weights are not rounded then.
    config.pop("torch_dtype", None)
    config["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    _write(target / "config.json", config)
    path = target / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)
    write_checksums(target)


def _with_former_names(config: dict[str, Any]) -> dict[str, Any]:
    """A config with the names that `transformers` 4 knows beside ``rope_parameters``: it would turn
    positions by its default base, without a word. 5 reads the same from both."""
    rope = dict(config.get("rope_parameters") or {})
    if "rope_theta" not in rope:  # none, or some for each kind of layer
        return config
    former = {n: rope.pop(n) for n in ("rope_theta", "partial_rotary_factor") if n in rope}
    if rope.get("rope_type", "default") != "default":
        former["rope_scaling"] = rope
    return {**former, **config}


def _read(file: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return read


def _write(file: Path, config: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


# -- adapters ----------------------------------------------------------------------------------


def adapt(lm: Any, rank: int, seed: int) -> None:
    """Freezes a causal LM of `transformers` and gives all linear maps in its layers adapters, which
    change nothing yet: B is 0. A, of ``rank`` rows, follows from the seed in all processes."""
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

    config = LoraConfig(r=rank, lora_alpha=LORA_SCALE * rank, target_modules="all-linear")
    inject_adapter_in_model(config, lm)
    for part in lm.modules():
        if isinstance(part, LoraLayer):
            # A copy in float32 of each input, which autocast would round back at once.
            part.cast_input_dtype_enabled = False

    # As in `peft`: A is uniform within +-sqrt(1 / inputs), so that A x is of the order of x.
    # Kaiming's bound is sqrt(6 / ((1 + a^2) inputs)), which is that one for a = sqrt(5).
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in lm.named_parameters():
        parameter.requires_grad_(is_adapter(name))
        if name.endswith(_A) and not parameter.is_meta:
            torch.nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)
    lm.eval()


_BASES: ContextVar[dict[str, Any] | None] = ContextVar("bases", default=None)


@contextmanager
def sharing_bases() -> Iterator[None]:
    """Context in which :func:`base_of` loads each directory once."""
    token = _BASES.set({})
    try:
        yield
    finally:
        _BASES.reset(token)


def base_of(load: Callable[[str | Path], Any], directory: str | Path) -> Any:
    """Loads a causal LM. Within :func:`sharing_bases`, the models of one directory have their
    parameters in common. Each has its own layers, so that it can have its own adapters."""
    loaded = _BASES.get()
    if loaded is None:
        return load(directory)
    key = str(Path(directory).resolve())
    if key not in loaded:
        loaded[key] = load(directory)
    # In the memo, each parameter is its own copy already, so deepcopy leaves it in common.
    return deepcopy(loaded[key], {id(p): p for p in loaded[key].parameters()})


def is_adapter(name: str) -> bool:
    return name.endswith((_A, _B))


@contextmanager
def without_adapters(module: torch.nn.Module) -> Iterator[None]:
    """Context in which the module is the policy that training began with."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [part for part in module.modules() if isinstance(part, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged(base: Mapping[str, Tensor], adapters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights W + 2 B A of a plain model that plays as the adapted one does; ``base`` is left as it
    is."""
    weights = dict(base)
    for name, a in adapters.items():
        if name.endswith(_A):
            place = name.removesuffix(_A)
            # B (out, rank) @ A (rank, in) has the shape of W (out, in).
            change = adapters[place + _B].float() @ a.float()
            weights[f"{place}.weight"] = weights[f"{place}.weight"] + LORA_SCALE * change

    return weights


def save_adapters(adapters: Mapping[str, Tensor], directory: str | Path) -> None:
    """Writes adapters alone as `peft` does, which other programs read."""
    from safetensors.torch import save_file

    short = {
        name.replace(_A, ".lora_A.weight").replace(_B, ".lora_B.weight"): tensor
        for name, tensor in adapters.items()
    }
    places = [name.removesuffix(_A) for name in adapters if name.endswith(_A)]
    # A is (rank, inputs).
    rank = adapters[places[0] + _A].shape[0]
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": LORA_SCALE * rank,
        "target_modules": sorted({place.rpartition(".")[2] for place in places}),
    }
    folder = Path(directory)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    tensors = {f"base_model.model.{n}": t.detach().cpu().contiguous() for n, t in short.items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


# -- tensors of a policy ------------------------------------------------------------------------


def state_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, without gradients, where they lie: shares stay shares.

    Tied weights come once, under their first name; what is frozen beneath adapters does not come,
    because every process reads it from the model directory.
    """
    from transformers import PreTrainedModel

    kept = set(module.state_dict())
    adapters = {name for name in kept if is_adapter(name)}
    # A model with adapters keeps only these. What the module has beside models stays.
    for place, part in module.named_modules() if adapters else ():
        if isinstance(part, PreTrainedModel):
            inside = {name for name in kept if name.startswith(f"{place}." if place else "")}
            kept -= inside - adapters if inside & adapters else set()
    named = chain(module.named_parameters(), module.named_buffers())

    return {name: tensor.detach() for name, tensor in named if name in kept}


def load_state(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Puts tensors or arrays, at least what :func:`state_of` names, in the place of a module's own,
    rounded to their dtype."""
    lacking = sorted(state_of(module).keys() - state.keys())
    unknown = sorted(state.keys() - module.state_dict().keys())
    if lacking or unknown:
        what = f"lack {lacking[0]}" if lacking else f"hold {unknown[0]}, which it has not"
        raise UsageError(f"these are not the weights of this model: they {what}")

    # Not strict: what is frozen beneath adapters stays as it is.
    module.load_state_dict({name: as_tensor(value) for name, value in state.items()}, strict=False)


def plain_weights(weights: Mapping[str, Tensor], model_dir: str | Path) -> dict[str, Tensor]:
    """Weights of a plain causal LM; those of adapters alone are merged into ``model_dir``'s."""
    if not any(is_adapter(name) for name in weights):
        return dict(weights)
    return merged(state_of(load_model(model_dir)), weights)


def lm_weights(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A causal LM's weights among those of the module that holds it, named as the LM names them."""
    return {name.removeprefix(LM): w for name, w in named.items() if name.startswith(LM)}


def as_tensor(value: Any) -> Tensor:
    """A tensor over the memory of an array, which may be read-only: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(value)
