"""The ``ssp`` command. Subcommands come from the entry-point group ``ssp.commands``."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

from ssp_env.commands.base import Command
from ssp_env.errors import MissingExtra, SSPError, nearest

GROUP = "ssp.commands"
CHECKOUT = "git clone the repository, then: pip install -e '.[train]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
        arguments: what follows ``ssp``; those of the process when not given.

    Returns:
        The exit status: 0, 2 after a mistake of the user's, 130 after Ctrl-C, or the command's own.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    available = {point.name: point for point in entry_points(group=GROUP)}

    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_overview(available))
            return 0

        if arguments[0] not in available:
            raise SSPError(f"unknown command {arguments[0]!r}: {nearest(arguments[0], available)}")

        command = _load(available[arguments[0]])
        return command.run(_parse(command, arguments[1:]))
    except SSPError as error:
        # The message of a library inside it may have many lines.
        print(f"ssp: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ssp: interrupted", file=sys.stderr)
        return 130


def script() -> NoReturn:
    """The command in a shell: runs :func:`main`, then ends the process without dismantling it.

    With PyTorch and Ray loaded, the interpreter takes seconds to free what the operating system
    frees at once, and nobody can stop it meanwhile. What is registered for the end of the process
    is done first.

    Raises:
        SystemExit: always, with the exit status.
    """
    status: str | int | None = 1

    def end() -> None:
        # Where one of these cannot be written to, the interpreter goes on and says so.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else bool(status))

    # First in, last out: Ray, temporary folders and the like come later, so they are before it.
    atexit.register(end)

    try:
        status = main()
    except SystemExit as error:  # of argparse's --help
        status = error.code

    sys.exit(status)


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as our errors, in one line."""

    def error(self, message: str) -> NoReturn:
        raise SSPError(f"{message} ({self.prog} --help lists all options)")


def _parse(command: Command, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options of one command.

    Raises:
        SSPError: an unknown option (names the nearest ones), or a value that cannot be parsed.
    """
    parser = _Parser(
        prog=f"ssp {command.name}",
        description=command.help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)

    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        options = [
            option
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--")
        ]
        name = unknown[0].partition("=")[0]
        raise SSPError(f"{parser.prog} does not take {name!r}: {nearest(name, options)}")

    return parsed


def _load(point: EntryPoint) -> Command:
    """The command behind an entry point.

    Raises:
        MissingExtra: a package that it needs is not installed.
    """
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        raise MissingExtra(f"ssp {point.name} ({error.name} is missing)", CHECKOUT) from error

    assert isinstance(command, Command), f"{point.value} is not a Command"
    return command


def _overview(available: dict[str, EntryPoint]) -> str:
    """The text of ``ssp --help``."""
    ready, missing = [], []
    for name, point in sorted(available.items()):
        try:
            ready.append(f"  {name:<10} {_load(point).help}")
        except MissingExtra:
            missing.append(name)

    lines = ["usage: ssp COMMAND [options]", ""]
    lines += [
        "Search self-play: one LLM writes search questions and solves them.",
        "",
        "commands:",
        *ready,
    ]
    if missing:
        lines += ["", f"only in a checkout ({CHECKOUT}):", f"  {', '.join(missing)}"]
    lines += ["", "ssp COMMAND --help lists the options of a command."]

    return "\n".join(lines)
