"""The command line of the base install, which has no click: the list of commands, and the versions.

``fastkcl run`` needs none of this. Any other command is refused with the extras to install.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from fastkcl import _core
from fastkcl.cli.commands import COMMANDS, missing_extras
from fastkcl.cli.versions import version_text

__all__ = ["main"]

_USAGE = """\
Usage: fastkcl [OPTIONS] COMMAND [ARGS]...

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:"""
_USAGE_OF_VERSION = """\
Usage: fastkcl version [--json]

  Versions of fastkcl and of its companions, and the CPU backend of the codec."""
_FAILURE, _READER_GONE = 2, 141


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [_USAGE]
    for name, entry in COMMANDS.items():
        extras = missing_extras(entry)
        lines.append(f"  {name:<{width}}  {entry.help}")
        if extras:
            lines.append(f"  {'':<{width}}  needs: pip install 'fastkcl[{extras}]'")
    return "\n".join(lines)


def _answer(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status, and the text for standard output or, if that is not 0, standard error."""
    match list(arguments):
        case [] | ["-h" | "--help", *_]:
            return 0, _overview()
        case ["--version", *_]:
            return 0, f"fastkcl {_core.__version__}"
        case ["version", *options] if set(options) <= {"--json"}:
            return 0, version_text(as_json=bool(options))
        case ["version", "--help", *_]:
            return (
                0,
                "Usage: fastkcl version [--json]\n\n  Versions of fastkcl and its companions, and the CPU backend.",
            )
        case [name, *_] if name in COMMANDS and missing_extras(COMMANDS[name]):
            return _FAILURE, f"fastkcl: {name} needs: pip install 'fastkcl[{missing_extras(COMMANDS[name])}]'"
        case [name, *_]:
            return _FAILURE, f"fastkcl: no command or option {ascii(name)}: `fastkcl --help` lists them"
    raise AssertionError


def main(arguments: Sequence[str]) -> int:
    """Run it; the exit status.

    Args:
        arguments: those after the program's name.
    """
    status, text = _answer(arguments)
    if status:
        sys.stderr.write(f"{text}\n")
        return status
    try:
        print(text, flush=True)  # noqa: T201 - the command's output
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the flush at the end
        if error.errno == errno.EPIPE:
            return _READER_GONE
        sys.stderr.write(f"Error: standard output: {error.strerror}\n")
        return _FAILURE
    return 0
