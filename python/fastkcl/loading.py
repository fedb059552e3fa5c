"""An extension that cannot be loaded, as the command ``fastkcl`` reports it."""

import os
import sys


def refuse_to_start(error: ImportError) -> None:
    """Report in one line why the extension cannot be loaded, if it is this command that needs it.

    The package loads the extension before anything of the command can run, so it calls this when that fails.

    Raises:
        SystemExit: it is.
    """
    program = getattr(sys, "argv", [""])[0]  # "-m" while Python imports the packages above the module that it will run
    if os.path.basename(program) == "fastkcl" or (program == "-m" and "fastkcl" in sys.orig_argv):  # noqa: PTH119
        sys.stderr.write(f"fastkcl: {error}\n")
        sys.exit(2)
