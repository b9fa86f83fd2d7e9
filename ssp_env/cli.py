"""The ``ssp`` command. Subcommands are functions that the entry-point group ``ssp.commands`` names;
their signatures are the options, their docstrings the help."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import tomllib
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NoReturn, get_args

from cyclopts import App, ArgumentCollection, CoercionError, CycloptsError, Parameter
from rich.console import Console

from ssp_env.errors import MissingExtra, SSPError, UsageError
from ssp_env.removed import COMMANDS
from ssp_env.version import __version__

GROUP = "ssp.commands"
EXTRAS = {
    **dict.fromkeys(
        ("ray", "torch", "transformers", "safetensors", "tensorboardX", "pandas", "peft", "gguf",
         "matplotlib", "tabulate", "jinja2", "scipy", "pyarrow", "huggingface_hub"),
        "train",
    ),
    **dict.fromkeys(("anyascii", "confusable_homoglyphs", "tantivy", "tokenizers"), "text"),
    **dict.fromkeys(("faiss", "sentence_transformers"), "dense"),
    **dict.fromkeys(("fastapi", "uvicorn", "openai"), "services"),
    **dict.fromkeys(("wandb", "mlflow"), "track"),
    "vllm": "gpu",
}  # fmt: skip
"""Package -> the extra that brings it."""

LEAST_COLUMNS = 20
"""Help is laid out for at least as many: with one or two, cyclopts wraps a label for ever."""


def make_app() -> App:
    app = App(
        name="ssp",
        help="Search self-play: one LLM writes search questions and solves them.",
        version=__version__,
        console=Console(width=max(Console().width, LEAST_COLUMNS)),
        default_parameter=Parameter(negative=(), show_default=False),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        config=_refuse_fractions,
        help_epilogue="ssp COMMAND --help lists the options of a command.",
    )
    installed = entry_points(group=GROUP) or uninstalled(Path(__file__).parents[1])
    for point in sorted(installed, key=lambda point: point.name):
        app.command(point.load(), name=point.name)
    return app


def uninstalled(checkout: Path) -> list[EntryPoint]:
    """The commands of a checkout that is on Python's path without being installed, as on a machine
    without a network."""
    file = checkout / "pyproject.toml"
    if not file.is_file():
        return []
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    named: dict[str, str] = project["entry-points"][GROUP]
    return [EntryPoint(name, value, GROUP) for name, value in named.items()]


def _refuse_fractions(app: App, commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Refuses 1.5 where a whole number belongs; cyclopts would round it."""
    for argument in arguments:
        kinds = [argument.hint]
        for kind in kinds:  # optional ones, and lists of them
            kinds += get_args(kind)
        for token in argument.tokens:
            if int in kinds and "." in token.value:
                what = f'"{token.value}" is not a whole number'
                raise CoercionError(what, token=token, argument=argument)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand.

    Returns:
        The exit status: 0, 2 after a mistake of the user's, 130 after Ctrl-C, 141 where nobody
        reads the output any more, or the command's own.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            if gone := COMMANDS.get(arguments[0] if arguments else ""):
                raise UsageError(f"there is no command {arguments[0]} any more: {gone}")
            # Errors of cyclopts are printed below, in the form of all others.
            status = make_app()(arguments, exit_on_error=False, print_error=False) or 0
            sys.stdout.flush()
            return status
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            extra = EXTRAS.get(package)
            if extra is None:
                raise
            raise MissingExtra(f"ssp {arguments[0]} ({package} is missing)", extra) from error
    except (SSPError, CycloptsError) as error:
        for note in getattr(error, "__notes__", ()):
            print(note, end="", file=sys.stderr)
        # The message of a library inside it may have many lines.
        print(f"ssp: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ssp: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has seen enough; what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT):
            raise
        print(f"ssp: {error}: name another place, or make room", file=sys.stderr)
        return 2


def script() -> NoReturn:
    """Runs :func:`main` in a shell, then ends the process without dismantling it.

    With PyTorch and Ray loaded, the interpreter takes seconds to free what the operating system
    frees at once; exit handlers of libraries wait for each other, and a signal can stop them
    halfway. Commands therefore close what they opened themselves, and none of these is run."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A terminal may have no letters for what a corpus or a policy says.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    status: str | int | None = 1
    try:
        status = main()
    except SystemExit as error:
        status = error.code
    except KeyboardInterrupt:  # after the command's end
        status = 130
    except BaseException:
        traceback.print_exc()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"ssp: standard output: {error}", file=sys.stderr)
        status = status or 1
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else bool(status))
