"""Outline of a child's run: take the descriptors, watch signals, serve, and really end.

The ends of a run:

    serve returns              the run returns; the program may go on, with nothing left of the daemon's pipes
    SystemExit                 goes through unchanged, from any code
    KeyboardInterrupt          one line, 128 + SIGINT
    anything else              goes through: a bug of ours, or an exception of user code that is not an Exception

The daemon waits for the end of the process without a limit, and Python, before it ends, for every thread and every
worker process that is not a daemon, without a limit too. One that user code left running would hang the daemon; it gets
the grace time after the main thread's end, then the process is ended.
"""

from __future__ import annotations

import os
import sys

from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import Descriptors, DescriptorsError
from fastkcl.stdio.signals import SignalWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS = 0.1


def run(serve: Callable[[Descriptors, SignalWatch], None], grace: float) -> None:
    """Serve the daemon that started this process, on fd 0 and fd 1, once.

    Args:
        serve: one protocol's dialogue; returns at its clean end.
        grace: seconds that the dialogue may go on after the first signal, and threads after the main thread's end.

    Raises:
        SystemExit: the run did not end cleanly, or nobody is there to be served.
        RuntimeError: the process has served before, or this is not the main thread.
    """
    try:
        descriptors = Descriptors.take()
    except DescriptorsError as error:
        reports.line(f"no_daemon: {error}")
        raise SystemExit(reports.EXIT_USAGE) from None
    try:
        run_on(descriptors, serve, grace)
    finally:
        if not descriptors.forked:
            _bound_end_of_process(grace)


def run_on(descriptors: Descriptors, serve: Callable[[Descriptors, SignalWatch], None], grace: float) -> None:
    """As `run`, on descriptors of one's own, which are closed at the end.

    Raises:
        SystemExit: the run did not end cleanly.
        RuntimeError: this is not the main thread.
    """
    try:
        with SignalWatch(grace) as watch:
            serve(descriptors, watch)
    except KeyboardInterrupt:
        import signal

        reports.line("interrupted by a KeyboardInterrupt; no status was sent")
        raise SystemExit(reports.exit_code_of_signal(signal.SIGINT)) from None
    finally:
        descriptors.close()


def _bound_end_of_process(grace: float) -> None:
    threading = sys.modules.get("threading")  # nobody has started a thread or worker without it
    if threading is None or grace == float("inf"):
        return
    main = threading.main_thread()

    def end_process() -> None:
        import time

        while main.is_alive():
            time.sleep(_POLL_SECONDS)
        end = time.monotonic() + grace
        while time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        left = [thread.name for thread in threading.enumerate() if thread is not main and not thread.daemon]
        threads = f" (threads: {', '.join(left)})" if left else ""
        reports.line(
            f"still running {grace:g} s after the main thread's end"
            f"{threads}; ending the process, the daemon waits for it"
        )
        os._exit(reports.EXIT_FAILURE)

    threading.Thread(target=end_process, name="fastkcl-end", daemon=True).start()
