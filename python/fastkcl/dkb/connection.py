"""The two sides of the DKB stream as state tables, without input or output.

The worker (a stage). A row is read: *in this state, on this event, write this and go there*.

      message (not full): BNC         message (full), EOB, end of input
    IDLE ───────────▶ COLLECTING ───────────────────────────────▶ PROCESSING ──results EOP──▶ IDLE
    IDLE ──message (batch size 1)───────────────────────────────▶ PROCESSING

The supervisor feeds it. Requests go out, results come back; in between the batch is fed:

           message          BNC             EOB
    IDLE ─────────▶ FEED ◀──────▶ ASKED ─────────▶ WAIT ──EOP──▶ IDLE        worker-driven: BNC asks for the next
    IDLE ─────────▶ FEED (more messages) ──EOB───▶ WAIT ──EOP──▶ IDLE        supervisor-driven
    IDLE ─────────────────── message ────────────▶ WAIT ──EOP──▶ IDLE        single
    EXTRACT ── messages ── end of output ──▶ DEAD                            nothing is sent

Rules:
- An event that has no row leads to ERROR, for good, and so does a call that the state does not allow.
- EOP means "finished with": it is never written for a request whose user code has failed.
- BNC is never the first thing a worker writes. A result that holds a marker is refused.
- End of output leads a supervisor from any state to DEAD; the retry policy decides on the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn, TypeAlias

from fastkcl import LocalProtocolError, ProtocolError, RemoteProtocolError
from fastkcl.dkb.markers import Markers, escape

__all__ = ["Batching", "SupervisorConnection", "WorkerConnection", "batching_of"]

Batching: TypeAlias = Literal["single", "worker", "supervisor"]
"""Each message alone; the worker asks for more; the supervisor ends the batch."""
WorkerState: TypeAlias = Literal["IDLE", "COLLECTING", "PROCESSING", "LAST", "CLOSED", "ERROR"]
WorkerEvent: TypeAlias = Literal["message", "full", "unreadable", "end_of_batch", "truncated", "eof"]
SupervisorState: TypeAlias = Literal["IDLE", "FEED", "ASKED", "WAIT", "EXTRACT", "DEAD", "ERROR"]

_WORKER: dict[Batching, dict[WorkerState, dict[WorkerEvent, tuple[WorkerState, str]]]] = {
    "single": {
        "IDLE": {
            "message": ("PROCESSING", ""),
            "unreadable": ("IDLE", "EOP"),
            "truncated": ("IDLE", "EOP"),
            "eof": ("CLOSED", ""),
        },
    },
    "worker": {
        "IDLE": {
            "message": ("COLLECTING", "BNC"),
            "unreadable": ("IDLE", "BNC"),
            "end_of_batch": ("IDLE", "EOP"),
            "truncated": ("IDLE", "EOP"),
            "eof": ("CLOSED", ""),
        },
        "COLLECTING": {
            "message": ("COLLECTING", "BNC"),
            "full": ("PROCESSING", ""),
            "unreadable": ("COLLECTING", "BNC"),
            "end_of_batch": ("PROCESSING", ""),
            "truncated": ("COLLECTING", ""),
            "eof": ("LAST", ""),
        },
    },
    "supervisor": {
        "IDLE": {
            "message": ("COLLECTING", ""),
            "unreadable": ("IDLE", ""),
            "end_of_batch": ("IDLE", "EOP"),
            "truncated": ("IDLE", "EOP"),
            "eof": ("CLOSED", ""),
        },
        "COLLECTING": {
            "message": ("COLLECTING", ""),
            "unreadable": ("COLLECTING", ""),
            "end_of_batch": ("PROCESSING", ""),
            "truncated": ("COLLECTING", ""),
            "eof": ("LAST", ""),
        },
    },
}


def batching_of(batch_size: int) -> Batching:
    """The side that ends a batch: 1 nobody, 0 the supervisor, otherwise the worker.

    Raises:
        ValueError: a negative size.
    """
    if batch_size < 0:
        raise ValueError(f"batch_size={batch_size}: use 1 for single messages, 0 for batches that the supervisor ends")
    return "single" if batch_size == 1 else "worker" if batch_size else "supervisor"


class _Connection:
    def __init__(self, markers: Markers) -> None:
        self._markers = markers.check()
        self._error: ProtocolError | None = None

    @property
    def error(self) -> ProtocolError | None:
        """The error that led to ERROR; None in every other state."""
        return self._error

    def check(self) -> None:
        """Raise the error that led to ERROR, if there was one.

        Raises:
            ProtocolError: the connection is in ERROR.
        """
        if self._error is not None:
            raise self._error

    def _fail(self, error: ProtocolError) -> NoReturn:
        if self._error is None:
            self._error = error
        raise self._error


class WorkerConnection(_Connection):
    """One worker's dialogue. Give it the input, write its output.

    Args:
        markers: of the stream.
        batch_size: see `batching_of`.

    Raises:
        StageError: markers that cannot be distinguished.
        ValueError: a negative size.
    """

    def __init__(self, markers: Markers, batch_size: int) -> None:
        super().__init__(markers)
        self._batching = batching_of(batch_size)
        self._batch_size = batch_size
        self._state: WorkerState = "IDLE"
        self._collected = 0

    @property
    def state(self) -> WorkerState:
        """The state of the dialogue; PROCESSING and LAST wait for `send_results`."""
        return "ERROR" if self._error is not None else self._state

    @property
    def room(self) -> int | None:
        """Messages until something has to be answered: 1, or None for as many as come before an EOB."""
        return None if self._batching == "supervisor" else 1

    def receive_messages(self, count: int = 1) -> bytes:
        """Take messages that can be read; more than one only in supervisor-driven batches.

        Returns:
            The bytes to write.

        Raises:
            ProtocolError: a request is being processed, or the connection was in ERROR before.
        """
        if not count:
            return b""
        answer = self._receive("full" if self._collected + count == self._batch_size > 1 else "message")
        self._collected += count
        return answer

    def receive(self, event: Literal["unreadable", "end_of_batch", "truncated", "eof"]) -> bytes:
        """Take anything else: a message that cannot be read, EOB, a rest without EOM, the end of input.

        Returns:
            The bytes to write.

        Raises:
            ProtocolError: not allowed here, or the connection was in ERROR before.
        """
        return self._receive(event)

    def send_results(self, results: Sequence[bytes]) -> bytes:
        """The answer to the request that was processed: its results and EOP, to be written in one go.

        Raises:
            LocalProtocolError: no request was processed (kind ``not_allowed``), or a result holds a marker (kind
                ``marker_in_result``).
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        if self._state not in ("PROCESSING", "LAST"):
            what = f"results are not allowed in state {self._state}"
            self._fail(LocalProtocolError("not_allowed", what, self._state))
        eom, eop, _, bnc = self._markers
        for number, result in enumerate(results, 1):
            for name, marker, found in (
                ("EOM", eom, eom and eom in result + eom[:-1]),
                ("EOP", eop, eop and eom and eop in result),  # without EOM a file is one message, and nobody reads on
                ("BNC", bnc, bnc and self._batching != "single" and result.startswith(bnc)),
            ):
                if found:
                    what = f"result {number} holds {name} ({escape(marker)}), so its end could not be found"
                    self._fail(LocalProtocolError("marker_in_result", what, self._state))
        if eop and eop == eom and len(results) > 1:
            what = f"{len(results)} results of one request: with EOP equal to EOM the first would end it"
            self._fail(LocalProtocolError("marker_in_result", what, self._state))
        self._state = "CLOSED" if self._state == "LAST" else "IDLE"
        self._collected = 0
        ended = b"".join(result + eom for result in results)
        return ended if eop == eom and ended else ended + eop

    def _receive(self, event: WorkerEvent) -> bytes:
        self.check()
        row = _WORKER[self._batching].get(self._state, {}).get(event)
        if row is None:
            what = f"{event.replace('_', ' ')} is not allowed in state {self._state}"
            self._fail(LocalProtocolError("not_allowed", what, self._state))
        self._state, answer = row
        if answer == "EOP":
            return self._markers.end_of_process
        return self._markers.batch_not_complete if answer == "BNC" else b""


class SupervisorConnection(_Connection):
    """The dialogue with one worker process. Write the result of `send_…`, give it the input.

    Args:
        markers: of the stream.
        batching: the side that ends a batch.
        extract: the worker gets no requests and writes messages until its end.

    Raises:
        StageError: markers that cannot be distinguished, or missing markers that this way of batching needs.
    """

    def __init__(self, markers: Markers, batching: Batching, *, extract: bool = False) -> None:
        from fastkcl.dkb.errors import StageError

        super().__init__(markers)
        if batching != "single" and not markers.end_of_batch:
            raise StageError("arguments", "batches need an EOB marker", 2)
        if batching == "worker" and not markers.batch_not_complete:
            raise StageError("arguments", "worker-driven batches need a BNC marker", 2)
        if not extract and not markers.end_of_process:
            raise StageError("arguments", "without an EOP marker nobody knows when a request is done: use a source", 2)
        if not markers.end_of_message:
            raise StageError("empty_eom", "a stream needs an EOM marker")
        self._batching = batching
        self._state: SupervisorState = "EXTRACT" if extract else "IDLE"

    @property
    def state(self) -> SupervisorState:
        """The state of the dialogue."""
        return "ERROR" if self._error is not None else self._state

    def send_message(self, data: bytes) -> bytes:
        """A message, with its EOM.

        Raises:
            LocalProtocolError: not its turn (kind ``not_allowed``), or it holds EOM, or begins like EOB in batches
                (kind ``marker_in_message``); the latter changes nothing.
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        self.check_message(data)
        feeding = self._batching == "supervisor" and self._state == "FEED"
        if self._state not in ("IDLE", "ASKED") and not feeding:
            self._fail(LocalProtocolError("not_allowed", f"no message is allowed in state {self._state}", self._state))
        self._state = "WAIT" if self._batching == "single" else "FEED"
        return data + self._markers.end_of_message

    def check_message(self, data: bytes) -> None:
        """See that the worker will read this as one message.

        Raises:
            LocalProtocolError: kind ``marker_in_message``.
        """
        eom, _, eob, _ = self._markers
        if eom in data + eom[:-1]:
            what = f"a message of {len(data)} bytes holds EOM ({escape(eom)}): the worker would read two"
        elif self._batching != "single" and data.startswith(eob):
            what = f"a message begins with EOB ({escape(eob)}): the worker would read the end of the batch"
        else:
            return
        raise LocalProtocolError("marker_in_message", f"{what}; use control characters as markers", self.state)

    def send_end_of_batch(self) -> bytes:
        """EOB: process what you have.

        Raises:
            LocalProtocolError: no batch is open that it is this side's turn to end.
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        if self._state != ("ASKED" if self._batching == "worker" else "FEED"):
            self._fail(LocalProtocolError("not_allowed", f"EOB is not allowed in state {self._state}", self._state))
        self._state = "WAIT"
        return self._markers.end_of_batch

    def receive(self, event: Literal["message", "end_of_process", "batch_not_complete", "eof"]) -> SupervisorState:
        """Take the worker's output.

        Returns:
            The state it leads to: IDLE after EOP, the request is done; ASKED after BNC, send a message or EOB.

        Raises:
            RemoteProtocolError: not allowed here (kind ``unexpected_message``).
            ProtocolError: the connection was in ERROR before.
        """
        self.check()
        state, answering = self._state, self._batching == "worker" and self._state == "FEED"
        if event == "eof":
            self._state = "DEAD"
        elif event == "message" and (state in ("WAIT", "EXTRACT") or answering):
            self._state = "WAIT" if answering else state
        elif event == "end_of_process" and (state in ("WAIT", "EXTRACT") or answering):
            self._state = "EXTRACT" if state == "EXTRACT" else "IDLE"
        elif event == "batch_not_complete" and answering:
            self._state = "ASKED"
        else:
            name = {"end_of_process": "EOP", "batch_not_complete": "BNC"}.get(event, "a message")
            what = f"{name} is not allowed in state {state}"
            self._fail(RemoteProtocolError("unexpected_message", what, state))
        return self._state
