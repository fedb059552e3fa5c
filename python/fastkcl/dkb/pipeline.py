"""`Pipeline`: stages in a row, each with a supervisor in its own thread and a bounded queue before it.

    extract ─▶ queue ─▶ Supervisor ─▶ queue ─▶ Supervisor ─▶ output
    or input           (transform)            (load)

A file in TOML describes it:

    [pipeline]
    input = "messages.jsonl"        # if the first stage is no extraction: a file of lines; "-": standard input
    output = "results.jsonl"        # results of the last stage, a message a line; without it they are counted only
    queue = 1000                    # messages that wait between two stages

    [[stage]]
    name = "extract"
    command = ["python", "extract.py", "-m", "s"]
    extract = "plain"               # it writes messages until its end; "cyclic": one EOP for each empty message
    cycles = 1                      # of a cyclic one

    [[stage]]
    name = "transform"
    command = ["python", "transform.py", "-m", "s", "-b", "100"]
    batching = "worker"             # "single" (default), or "supervisor" with batch_size
    linger = 0.1
    markers = "recommended"         # a preset, or a table with any of eom, eop, eob, bnc
    response_timeout = 60.0
    retry = { max = 3, policy = "once", backoff = 3.0 }

Paths and commands are relative to the working directory. Results of a request whose worker died are dropped, as the
request is sent again or was skipped; both are counted. If a stage fails for good, all are ended.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import stat
import sys
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias

from fastkcl.dkb.errors import StageError
from fastkcl.dkb.markers import PRESETS, Markers, unescape
from fastkcl.dkb.supervisor import Answer, Inbox, Ready, RetryPolicy, Supervisor, SupervisorError
from fastkcl.dkb.worker import OnLog
from fastkcl.stdio.given_files import read_given

__all__ = ["Pipeline", "PipelineError", "StageReport", "StageSpec", "read_pipeline"]

Extract: TypeAlias = Literal["plain", "cyclic"]

_CHUNK: Final = 64 * 1024
_MOST_BYTES: Final = 16 << 20  # of a pipeline's file
_TURN: Final = 0.25  # seconds after which a full or empty queue looks whether all is over


class PipelineError(Exception):
    """A pipeline's file is wrong, or a stage has failed. `str()` names it, and the remedy."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage of a pipeline; the names are those of its table in TOML."""

    name: str
    command: tuple[str, ...]
    extract: Extract | None = None
    cycles: int = 1
    batching: Literal["single", "worker", "supervisor"] = "single"
    batch_size: int = 100
    linger: float = 0.0
    markers: Markers = field(default_factory=Markers)
    response_timeout: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class StageReport:
    """How far a stage is."""

    name: str
    messages: int
    """Answered."""
    requests: int
    results: int
    restarts: int
    skipped: int
    partial: int
    """Results that were dropped."""
    state: Literal["running", "done", "failed"]


class _Queue:
    """Messages between two stages, never more than so many."""

    def __init__(self, size: int, over: threading.Event) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue(size)
        self._over = over
        self._ended = False

    def put(self, message: bytes | None) -> None:
        """Wait for room; None is the end."""
        while not self._over.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(message, timeout=_TURN)
                return

    def take(self, timeout: float | None) -> bytes | None:
        """The next message, None at the end; raises TimeoutError."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._ended and not self._over.is_set():
            left = _TURN if end is None else min(_TURN, end - time.monotonic())
            try:
                message = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError from None
                continue
            self._ended = message is None
            return message
        return None


class _Lines:
    """Messages of a descriptor that gives lines, now and then if it is a pipe; no wait for them is without an end."""

    def __init__(self, fd: int, over: threading.Event) -> None:
        self._fd = fd
        self._over = over
        self._ready = select.poll()
        self._ready.register(fd, select.POLLIN)
        self._lines: deque[bytes] = deque()
        self._rest: list[bytes] = []  # pieces of a line whose end is not there yet
        self._ended = False

    def take(self, timeout: float | None) -> bytes | None:
        """The next line, None at the end; raises TimeoutError."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._lines and not self._ended and not self._over.is_set():
            left = _TURN if end is None else max(0.0, min(_TURN, end - time.monotonic()))
            if self._ready.poll(left * 1000):
                self._read()
            elif end is not None and time.monotonic() >= end:
                raise TimeoutError
        return self._lines.popleft() if self._lines and not self._over.is_set() else None

    def _read(self) -> None:
        data = os.read(self._fd, _CHUNK)
        first, *others = data.split(b"\n")
        self._rest.append(first)
        for other in others:
            self._lines.append(b"".join(self._rest))
            self._rest = [other]
        if not data:
            self._ended = True
            if last := b"".join(self._rest):
                self._lines.append(last)


class Pipeline:
    """Stages in a row.

    Args:
        stages: in order; only the first may be an extraction.
        input: messages for the first stage if it is none: a file of lines by its name, "-" for standard input, or what
            gives them at once; read from the thread of that stage.
        emit: gets each result of the last stage, from that stage's thread.
        on_log: gets (stage, level, line) of the stages' standard error and of their supervisors.
        queue_size: messages that wait between two stages.

    Raises:
        PipelineError: no stage, two of one name, or an extraction that is not the first.
        StageError: markers that do not do.
        ValueError: a number out of range.
    """

    def __init__(
        self,
        stages: list[StageSpec],
        *,
        input: str | Callable[[], Iterator[bytes]] | None = None,
        emit: Callable[[bytes], None] = lambda _message: None,
        on_log: Callable[[str, str, bytes], None] = lambda _stage, _level, _line: None,
        queue_size: int = 1000,
    ) -> None:
        if not stages:
            raise PipelineError("a pipeline needs a stage")
        names = [stage.name for stage in stages]
        for name in names:
            if names.count(name) > 1:
                raise PipelineError(f"two stages are named {name!r}")
        for stage in stages[1:]:
            if stage.extract is not None:
                raise PipelineError(f"{stage.name}: only the first stage can extract; this one gets messages")
        if stages[0].extract is None and input is None:
            raise PipelineError(f"{stages[0].name}: no extraction, so the pipeline needs an input")
        self._stages = stages
        self._input = input
        self._emit = emit
        self._on_log = on_log
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._states: list[Literal["running", "done", "failed"]] = ["running"] * len(stages)
        self._queues = [_Queue(queue_size, self._over) for _ in stages[1:]]
        self._supervisors = [_supervisor(stage, on_log) for stage in stages]

    def run(self) -> list[StageReport]:
        """Run everything to its end.

        Raises:
            PipelineError: a stage has failed; all are ended.
            KeyboardInterrupt: the same.
        """
        threads = [
            threading.Thread(target=self._work, args=(index,), name=f"stage-{stage.name}")
            for index, stage in enumerate(self._stages)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(_TURN)
        except BaseException as error:
            self.stop()
            signalled = error.__context__
            if isinstance(error, RuntimeError) and isinstance(signalled, KeyboardInterrupt | SystemExit):
                # A signal between two steps of join hides in "release unlocked lock" (bpo-45274).
                raise signalled from None
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:  # a signal may have come before it was started
                    thread.join()
        if self._failure is not None:
            if isinstance(self._failure, SupervisorError | StageError | OSError):
                raise PipelineError(str(self._failure)) from self._failure
            raise self._failure
        return self.reports()

    def reports(self) -> list[StageReport]:
        """How far each stage is; from any thread."""
        return [
            StageReport(
                stage.name,
                supervisor.counts.messages,
                supervisor.counts.requests,
                supervisor.counts.results,
                supervisor.counts.restarts,
                supervisor.counts.skipped,
                supervisor.counts.partial,
                state,
            )
            for stage, supervisor, state in zip(self._stages, self._supervisors, self._states, strict=True)
        ]

    def stop(self) -> None:
        """End all stages and every wait for them, from any thread."""
        self._over.set()
        for supervisor in self._supervisors:
            supervisor.stop()

    def _work(self, index: int) -> None:
        stage, supervisor = self._stages[index], self._supervisors[index]
        following = self._queues[index].put if index < len(self._queues) else None

        def hand_on(answer: Answer) -> None:
            if not answer.partial:
                for result in answer.results:
                    (following or self._emit)(result)

        try:
            if stage.extract == "plain":
                supervisor.extract(hand_on)
            else:
                with self._inbox(index) as inbox:
                    supervisor.run(inbox, hand_on)
            self._states[index] = "failed" if self._over.is_set() else "done"
        except BaseException as error:
            self._states[index] = "failed"
            if not self._over.is_set():  # else it failed because all were ended
                self._failure = error
            self.stop()
        if following is not None:
            following(None)

    @contextlib.contextmanager
    def _inbox(self, index: int) -> Iterator[Inbox]:
        if index > 0:
            yield self._queues[index - 1]
        elif self._stages[0].extract == "cyclic":
            yield Ready([b""] * self._stages[0].cycles)
        elif self._input == "-":
            yield _Lines(sys.stdin.fileno(), self._over)
        elif isinstance(self._input, str):
            with _opened(self._input) as file:
                if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                    self._on_log(self._stages[0].name, "INFO", f"reading the FIFO {self._input}".encode())
                yield _Lines(file.fileno(), self._over)
        else:
            assert self._input is not None
            yield Ready(self._input())


def _opened(path: str) -> IO[bytes]:
    """The file, open for reading; a FIFO at once, though nobody may have it open for writing yet."""
    return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: PTH123


def _supervisor(stage: StageSpec, on_log: Callable[[str, str, bytes], None]) -> Supervisor:
    def log(level: str, line: bytes) -> None:
        on_log(stage.name, level, line)

    typed: OnLog = log
    return Supervisor(
        command=stage.command,
        name=stage.name,
        markers=stage.markers,
        batching=stage.batching,
        batch_size=stage.batch_size,
        linger=stage.linger,
        retry=stage.retry,
        response_timeout=stage.response_timeout,
        on_log=typed,
    )


_MARKER_KEYS: Final = ("eom", "eop", "eob", "bnc")
_STAGE_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "name": (str,),
    "command": (list,),
    "extract": (str,),
    "cycles": (int,),
    "batching": (str,),
    "batch_size": (int,),
    "linger": (int, float),
    "markers": (str, dict),
    "response_timeout": (int, float),
    "retry": (dict,),
}
_CHOICES: Final = {"extract": ("plain", "cyclic"), "batching": ("single", "worker", "supervisor")}


def read_pipeline(
    path: Path,
    *,
    on_log: Callable[[str, str, bytes], None] = lambda _stage, _level, _line: None,
    stdout: IO[bytes] | None = None,
) -> tuple[Pipeline, Callable[[], None]]:
    """The pipeline that a TOML file describes.

    Args:
        path: of the file.
        on_log: as for `Pipeline`.
        stdout: where ``output = "-"`` goes.

    Returns:
        The pipeline, and the function that closes its output when it has run.

    Raises:
        PipelineError: the file cannot be read or is wrong; it names the place.
    """
    try:
        document = tomllib.loads(read_given(path, _MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineError(f"{path}: {error}") from None
    out: IO[bytes] | None = None

    def emit(message: bytes) -> None:
        if out is not None:
            _write(out, message)

    try:
        general = _table(
            document.pop("pipeline", {}), {"input": (str,), "output": (str,), "queue": (int,)}, "[pipeline]"
        )
        tables = document.pop("stage", None)
        if document:
            raise PipelineError(f"unknown table [{next(iter(document))}]; there are [pipeline] and [[stage]]")
        if not isinstance(tables, list) or not tables:
            raise PipelineError("no stage; each is a table [[stage]] with a name and a command")
        size = general.get("queue", 1000)
        if size < 1:
            raise PipelineError(f"queue = {size}: must be 1 or more")
        stages = [_stage(table, number) for number, table in enumerate(tables, 1)]
        name = general.get("input")
        pipeline = Pipeline(stages, input=name, emit=emit, on_log=on_log, queue_size=size)
        if name == "-" and sys.stdin is None:  # as Python puts it
            raise PipelineError('input = "-": standard input is closed')
        if name not in (None, "-") and not Path(name).exists():
            raise PipelineError(f"input {name}: no such file; paths are relative to the working directory")
        out = _output(general.get("output"), stdout)  # the last: after the others, so that a wrong file creates none
    except (PipelineError, StageError, ValueError) as error:
        raise PipelineError(f"{path}: {error}") from None

    def close() -> None:
        if out is not None:
            out.flush()
            if out is not stdout:
                out.close()

    return pipeline, close


def _stage(table: object, number: int) -> StageSpec:
    where = f"[[stage]] {number}"
    given = _table(table, _STAGE_TYPES, where)
    for key in ("name", "command"):
        if key not in given:
            raise PipelineError(f"{where}: no {key}")
    where = f"stage {given['name']!r}"
    command = given["command"]
    if not command or not all(isinstance(word, str) and "\0" not in word for word in command):
        raise PipelineError(f"{where}: command must be a list of the program and its arguments, without NUL characters")
    for key, allowed in _CHOICES.items():
        if key in given and given[key] not in allowed:
            raise PipelineError(f"{where}: {key} = {given[key]!r}: choose {' or '.join(allowed)}")
    if given.get("cycles", 1) < 1:
        raise PipelineError(f"{where}: cycles = {given['cycles']}: must be 1 or more")
    retry = _table(
        given.get("retry", {}), {"max": (int,), "policy": (str,), "backoff": (int, float)}, f"{where}: retry"
    )
    for key, least in (("batch_size", 1), ("linger", 0)):
        if not given.get(key, least) >= least:
            raise PipelineError(f"{where}: {key} = {given[key]}: must be {least} or more")
    if not 0 < given.get("response_timeout", 1) <= threading.TIMEOUT_MAX:
        limit = f"must be above 0 and at most {threading.TIMEOUT_MAX:g}; leave it out for no limit"
        raise PipelineError(f"{where}: response_timeout = {given['response_timeout']}: {limit}")
    try:
        return StageSpec(
            **(given | {"command": tuple(command), "markers": _markers(given.get("markers", {}), where)})
            | {"retry": RetryPolicy(**retry)}
        )
    except ValueError as error:
        raise PipelineError(f"{where}: retry: {error}") from None


def _markers(given: str | dict[str, Any], where: str) -> Markers:
    if isinstance(given, str):
        if given not in PRESETS:
            raise PipelineError(f"{where}: no markers {given!r}; presets: {', '.join(PRESETS)}")
        return PRESETS[given]
    texts = _table(given, dict.fromkeys(_MARKER_KEYS, (str,)), f"{where}: markers")
    values = [
        unescape(texts[key]) if key in texts else default for key, default in zip(_MARKER_KEYS, Markers(), strict=True)
    ]
    return Markers(*values).check()


def _table(table: object, types: dict[str, tuple[type, ...]], where: str) -> dict[str, Any]:
    """A table with none but these keys, of these types.

    Raises:
        PipelineError: it is another.
    """
    if not isinstance(table, dict):
        raise PipelineError(f"{where}: must be a table")
    for key, value in table.items():
        if key not in types:
            raise PipelineError(f"{where}: unknown key {key!r}; there are {', '.join(types)}")
        if not isinstance(value, types[key]) or isinstance(value, bool):
            names = " or ".join(kind.__name__ for kind in types[key])
            raise PipelineError(f"{where}: {key} = {value!r}: must be {names}")
    return table


def _output(name: str | None, stdout: IO[bytes] | None) -> IO[bytes] | None:
    if name is None:
        return None
    if name == "-":
        return stdout or sys.stdout.buffer
    try:
        return Path(name).open("xb")
    except FileExistsError:
        raise PipelineError(f"output {name}: exists already; move it away or name another") from None
    except OSError as error:
        raise PipelineError(f"output {name}: cannot be written: {error.strerror}") from None


def _write(out: IO[bytes], message: bytes) -> None:
    if b"\n" in message:
        raise PipelineError(f"a result of {len(message)} bytes holds a line feed, so it is not a line of the output")
    out.write(message + b"\n")
