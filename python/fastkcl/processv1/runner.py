"""`run`: a function that is called with each message of data, acknowledged when it returns and failed when it raises.

The counterpart of `fastkcl.run`, on the same outline of a process: descriptors, signals, the end of the process.
"""

from __future__ import annotations

from fastkcl import ConfigurationError
from fastkcl._core import DEFAULT_MAX_FRAME_BYTES
from fastkcl.processing.processor import refuse_deferred, refuse_deferred_result
from fastkcl.processv1.connection import EXIT
from fastkcl.processv1.stitch import Stitch
from fastkcl.stdio import process, reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastkcl._core import ToStitchMessage
    from fastkcl.stdio.descriptors import Descriptors
    from fastkcl.stdio.signals import SignalWatch

reports.skip_frames_of("fastkcl.processv1")

_TURN_SECONDS = 1.0  # how long a grace time may be overdrawn


def run(
    handler: Callable[[ToStitchMessage, Stitch], object],
    argv: Sequence[str] | None = None,
    *,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    drop_stderr: bool = False,
    shutdown_grace: float = 30.0,
) -> None:
    """Serve the core that started this process, in the main thread, until it sends ``_exit`` or is gone.

    Args:
        handler: called with each message of data, and the stitch to send by. Its message is acknowledged when it
            returns; when it raises, or returns a coroutine, the message is failed and the traceback goes to the core's
            log.
        argv: the command line without the program; None for this program's.
        max_frame_bytes: bound of one frame.
        drop_stderr: drop output that does not fit into a full pipe of standard error, instead of waiting; see `Stitch`.
        shutdown_grace: seconds that the core may take to send ``_exit`` after a first SIGTERM, SIGINT or SIGHUP.

    Raises:
        TypeError: `handler` is a coroutine or generator function.
        SystemExit: always at the end: with the core's code, 1 where it is gone, 128 + n after signals, 2 where nobody
            is there to be served.
    """
    refuse_deferred(handler)

    def serve_core(descriptors: Descriptors, signals: SignalWatch) -> None:
        try:
            stitch = Stitch(
                argv,
                receive_exit=True,
                max_frame_bytes=max_frame_bytes,
                drop_stderr=drop_stderr,
                descriptors=descriptors,
            )
        except ConfigurationError as error:
            reports.line(str(error))
            raise SystemExit(reports.EXIT_FAILURE) from None
        with stitch:
            serve(handler, stitch, signals)

    process.run(serve_core, shutdown_grace)


def serve(handler: Callable[[ToStitchMessage, Stitch], object], stitch: Stitch, signals: SignalWatch) -> None:
    """Serve one core until it sends ``_exit``.

    Raises:
        SystemExit: signals have stopped the program.
    """
    while True:
        signals.check()
        signals.check_grace("while waiting for the core's _exit")
        message = stitch.next_message(_TURN_SECONDS)
        if message is None:
            continue
        if message.channel_name == EXIT:
            return
        try:
            refuse_deferred_result(getattr(handler, "__qualname__", repr(handler)), handler(message, stitch))
        except Exception as error:
            stitch.fail(message)
            stitch.log(*reports.traceback_text(error).splitlines())
        else:
            stitch.ack(message)
