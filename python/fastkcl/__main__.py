"""The command ``fastkcl``, also as ``python -m fastkcl``.

A command that runs as a daemon's child must not wait for a command line library, so it is dispatched here, before
the CLI is imported. Everything else is for people. Without the extra ``cli`` there are the list of commands and the
versions (`fastkcl.cli.base`).
"""

import sys


def main() -> None:
    """Run the command line. Exits with its status."""
    if sys.argv[1:2] == ["run"]:
        from fastkcl.kclpy import launch

        launch.main(sys.argv[2:])
        return
    try:
        import click  # noqa: F401 - only to see whether the extra is there
        import rich  # noqa: F401
    except ModuleNotFoundError:
        from fastkcl.cli import base

        sys.exit(base.main(sys.argv[1:]))
    from fastkcl.cli.main import cli
    from fastkcl.cli.output import guard_standard_streams

    guard_standard_streams()
    noted = _end_in_order()
    try:
        cli(prog_name="fastkcl")
    except SystemExit:
        if noted:
            sys.exit(128 + noted[0])
        raise


def _end_in_order() -> list[int]:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does, its children too, unless it takes care of them itself.

    Those of some seconds are one. A terminal that is closed sends SIGHUP more than once, which must not end what ends
    the children.

    Returns:
        The numbers of those that have come.
    """
    import signal
    import time

    noted: list[int] = []
    until = 0.0

    def end(number: int, _frame: object) -> None:
        nonlocal until
        noted.append(number)
        if time.monotonic() > until:
            until = time.monotonic() + 5
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not ignored, as by nohup
            signal.signal(number, end)
    return noted


if __name__ == "__main__":
    main()
