"""``fastkcl run app.py [args]``: an unchanged program, whose imports of amazon_kclpy are served from here.

The program runs as ``python app.py`` would run it: its folder comes first in ``sys.path``, its arguments are in
``sys.argv``, and it is the module ``__main__``. A daemon starts this once for each shard, so nothing of the command
line library is imported.
"""

from __future__ import annotations

import builtins
import os
import sys
from types import ModuleType

from fastkcl.kclpy.alias import install
from fastkcl.kclpy.kcl import DEAD_LETTER_VARIABLE, ON_ERROR_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

USAGE = """\
Usage: fastkcl run [OPTIONS] APP.py [ARGS]...
       fastkcl run [OPTIONS] -m MODULE [ARGS]...

Run an unchanged amazon_kclpy program with records decoded in Rust. Whether
amazon_kclpy is installed or not, its imports are served by fastkcl.kclpy. In
the daemon's properties:

  executableName = fastkcl run app.py

Options:
  --on-error skip|stop  When the processor raises: skip, as amazon_kclpy does
                        (the records are reported as processed; what they were
                        is said on standard error), or stop (the process ends,
                        the records are delivered again).
                        [default: FASTKCL_ON_ERROR, or skip]
  --dead-letter DIR     Store a batch that the processor raised for in DIR, as
                        an Arrow file, before it is reported as processed.
                        [default: FASTKCL_DEAD_LETTER, or do not]
  -m MODULE             Run a module, as python -m does.
  --help                Show this message and exit.

Options of an own KCLProcess(on_error=, dead_letter=) come first.
"""
_VARIABLES = {"--on-error": ON_ERROR_VARIABLE, "--dead-letter": DEAD_LETTER_VARIABLE}


def main(arguments: list[str]) -> None:
    """Run a program.

    Args:
        arguments: options, the program, and its own arguments.

    Raises:
        SystemExit: the program's own; 2 if it cannot be started.
    """
    rest = list(arguments)
    module = None
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name in ("--help", "-h"):
            _print(USAGE)
        if name not in (*_VARIABLES, "-m"):
            _refuse(f"no such option: {name}")
        if not equals:
            if not rest:
                _refuse(f"{name} needs a value")
            value = rest.pop(0)
        if name == "-m":
            module = value
            break
        if name == "--on-error" and value not in ("skip", "stop"):
            _refuse(f"--on-error must be skip or stop, not {value!r}")
        os.environ[_VARIABLES[name]] = value
    if module is not None:
        install()
        _run_module(module, rest)
    elif rest:
        install()
        _run_file(rest[0], rest)
    else:
        _refuse("which program? fastkcl run APP.py")


def _run_file(path: str, argv: list[str]) -> None:
    if os.path.isdir(path):
        import runpy

        if not os.path.isfile(os.path.join(path, "__main__.py")):
            _refuse(f"{path} is a folder without a __main__.py")
        sys.argv = argv
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        _refuse(f"{path} cannot be read: {error.strerror}")
    file_name = os.path.abspath(path)
    code = compile(source, file_name, "exec", dont_inherit=True)
    sys.argv = argv
    _put_first(os.path.dirname(file_name))
    main_module = ModuleType("__main__")
    main_module.__file__ = file_name
    main_module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main_module
    exec(code, main_module.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    import importlib.util
    import runpy

    _put_first(os.getcwd())
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # a package above it imports something that is missing
        found = None
    if found is None:
        _refuse(f"no module named {name}")
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _print(text: str) -> NoReturn:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:  # the reader has seen enough, or the disk is full; nothing may be written at the exit either
        os._exit(1)
    sys.exit(0)


def _put_first(folder: str) -> None:
    """What Python puts there; it has put the folder of our own command there, or with ``-m`` the current one."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _refuse(what: str) -> NoReturn:
    from fastkcl.stdio import reports

    reports.write(f"fastkcl run: {what}\nTry 'fastkcl run --help'.\n")
    sys.exit(2)
