"""``fastkcl run app.py [args]``: an unchanged program, whose imports of amazon_kclpy are served from here.

The program runs in the same way as with ``python app.py``. It may be a file, a folder, an archive or a module:
``sys.path[0]``, ``sys.argv`` and the module ``__main__`` have the values that Python would give them. Before the
program, only the import hook of the drop-in is loaded. The reason: `fastkcl.kclpy.kcl` binds standard input and output
when it is imported, as the original does, and the program may replace them first. A daemon starts this once for each
shard, so the command line library is not imported either.
"""

from __future__ import annotations

import builtins
import os
import sys
from importlib._bootstrap_external import MAGIC_NUMBER  # importlib.util is slow to import
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType

from fastkcl.kclpy.alias import install
from fastkcl.kclpy.variables import DEAD_LETTER_VARIABLE, ON_ERROR_VARIABLE
from fastkcl.stdio.uncaught import escape_uncaught, exit_escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

USAGE = """\
Usage: fastkcl run [OPTIONS] APP.py [ARGS]...
       fastkcl run [OPTIONS] FOLDER|ARCHIVE [ARGS]...
       fastkcl run [OPTIONS] -m MODULE [ARGS]...

Run an unchanged amazon_kclpy program with records decoded in Rust.
fastkcl.kclpy serves its imports, with or without an installed amazon_kclpy. In
the daemon's properties:

  executableName = fastkcl run app.py

Options:
  --on-error skip|stop  When the processor raises: skip, as amazon_kclpy does
                        (the records are reported as processed, and named on
                        standard error), or stop (the process ends, the records
                        are delivered again).
                        [default: FASTKCL_ON_ERROR, or skip]
  --dead-letter DIR     Store a batch that the processor raised for in DIR, as
                        an Arrow file, before it is reported as processed.
                        [default: FASTKCL_DEAD_LETTER, or do not]
  -m MODULE             Run a module, as python -m does.
  --help                Show this message and exit.

Options of the program's own KCLProcess(on_error=, dead_letter=) come first.
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
    if module is None and not rest:
        _refuse("which program? fastkcl run APP.py")
    escape_uncaught()
    try:
        if module is not None:
            _run_module(module, rest)
        else:
            _run_path(rest)
    except SystemExit as end:
        exit_escaped(end)


def _run_path(argv: list[str]) -> None:
    path = argv[0]
    if not os.path.isabs(path):
        # As Python makes `__file__` of it: not normalized, links as they are.
        path = os.getcwd() if path in ("", ".") else os.path.join(os.getcwd(), path)
    sys.argv = argv
    if _can_hold_modules(path):
        if sys.flags.safe_path:
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        install()
        if PathFinder.find_spec("__main__", [path]) is None:
            _refuse(f"{argv[0]} is {'a folder' if os.path.isdir(path) else 'an archive'} without a __main__.py")
        if PathFinder.find_spec("__pex__", [path]) is not None:
            # A pex starts Python again, by default with a path on which nobody finds us.
            os.environ.setdefault("PEX_INHERIT_PATH", "fallback")
        _run_as_main("__main__", alter_argv=False)
        return
    _put_first(os.path.dirname(os.path.realpath(path)))
    install()
    _run_file(path, argv[0])


def _run_file(path: str, name: str) -> None:
    loader: SourceFileLoader | SourcelessFileLoader
    code: CodeType | None
    try:
        loader = SourceFileLoader("__main__", path)
        piped = _from_pipe(path, name)
        data = loader.get_data(path) if piped is None else piped
        if piped is not None:
            # By its own name, Python would read it again for the lines of a traceback, and wait for ever.
            code = loader.source_to_code(data, f"<{path}>")
        elif path.endswith(".pyc") or (data.startswith(MAGIC_NUMBER[:2]) and os.path.isfile(path)):
            loader = SourcelessFileLoader("__main__", path)
            code = loader.get_code("__main__")
        else:
            code = loader.source_to_code(data, path)
    except OSError as error:
        _refuse(f"{name} cannot be read: {error.strerror}")
    assert code is not None
    names = _fresh_main()
    names.update(__cached__=None, __file__=path, __loader__=loader)
    exec(code, names)


def _from_pipe(path: str, name: str) -> bytes | None:
    """A program that comes through a pipe, as a shell has it for ``<(command)``; None if it is a file."""
    import stat

    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return None
    from fastkcl.stdio import reports
    from fastkcl.stdio.given_files import open_pipe

    with open_pipe(
        path, lambda: reports.line(f"{name} is a pipe to which nobody has written yet; waiting for it")
    ) as pipe:
        return pipe.read()


def _run_module(name: str, arguments: list[str]) -> None:
    import importlib.util

    sys.argv = ["-m", *arguments]  # while the packages above the module are imported
    _put_first(os.getcwd())
    install()
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # a package above it imports something that is missing
        found = None
    if found is None:
        _refuse(f"no module named {name}")
    _run_as_main(name, alter_argv=True)


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    """``python -m`` and ``python FOLDER`` call this, too."""
    import runpy

    _fresh_main()
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _fresh_main() -> dict[str, Any]:
    """A new module ``__main__`` instead of the command's own; its namespace."""
    before = vars(sys.modules["__main__"])
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if "__annotations__" in before:  # up to Python 3.13
        main.__dict__["__annotations__"] = {}
    return main.__dict__


def _can_hold_modules(path: str) -> bool:
    """Whether it is a folder or a zip archive, with any bytes before the archive's first entry."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _print(text: str) -> NoReturn:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:  # the reader has seen enough, or the disk is full; nothing may be written at the exit either
        os._exit(1)
    sys.exit(0)


def _put_first(folder: str) -> None:
    """Python's own entry; it has put the folder of our command there, or with ``-m`` the current one."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _refuse(what: str) -> NoReturn:
    from fastkcl.stdio import reports

    reports.write(f"fastkcl run: {what}\nTry 'fastkcl run --help'.\n")
    sys.exit(2)
