"""Runs a daemon, from its start to the end of its last child, and reports the reason of its end.

    start ──▶ lines of the log ──▶ events          SIGTERM, SIGINT, SIGHUP: SIGTERM to the daemon, which stops the
      ▲             │                              children and waits for them; again: SIGKILL to all that is left
      │             ▼
      └─ restart ◀─ ended: why? ──▶ children that it left are waited for, then ended

The daemon and its children have their own process group. So Ctrl-C on a terminal reaches us alone, and children
that would die of it hear of the end from the daemon. If we are killed, the daemon gets SIGTERM from the kernel, and a
guard (`fastkcl.daemon.guard`) sees to it that all of them end.

A daemon whose child has died exits with 1, after a wait for itself in its exit hook that always takes the whole
shutdownGraceMillis. Meanwhile it asks the other children to stop; when none is left, the rest of the wait is cut off.

Signals' handlers are set while `supervise` runs, so it belongs into the main thread.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Final

from fastkcl.backoff import Backoff
from fastkcl.daemon.command import Launch
from fastkcl.daemon.guard import Guard
from fastkcl.daemon.keys import find_key
from fastkcl.daemon.log import LogReader
from fastkcl.daemon.log_lines import MARK, Event, shown
from fastkcl.daemon.outputs import lines
from fastkcl.daemon.processes import end_group, group_members, parent_death_signal
from fastkcl.daemon.settings import Options

__all__ = ["Exit", "Outcome", "Supervisor"]

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GRACE_DEFAULT: Final = 20.0
_LAST_BACK_OFF: Final = 60.0
_GOOD_RUN: Final = 300.0  # seconds after which a failure is a new one
_POLL_SECONDS: Final = 0.1
_ALONE_SECONDS: Final = 2.0
_KILLED: Final = -signal.SIGKILL


class Exit(IntEnum):
    """The exit codes of ``fastkcl daemon``, beside 2 for options that are wrong."""

    STOPPED = 0
    """It was asked to stop, and everything ended in order."""
    CHILD_FAILED = 1
    """The daemon ended because of a child: it died, hung, or broke the protocol."""
    DAEMON_FAILED = 3
    """The daemon ended by itself, for another reason."""
    STOPPED_BADLY = 4
    """It was asked to stop, and something had to be killed: records that were not checkpointed come again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one daemon ended."""

    exit: Exit
    why: str
    """One line."""
    return_code: int
    """The JVM's."""
    seconds: float


@dataclass
class Supervisor:
    """Runs daemons, one after the other.

    Attributes:
        launch: how they are started.
        options: their settings.
        on_event: called with each event, from the thread that reads the log. It and the next must not raise: a
            daemon stands still when nobody reads its log.
        on_line: called with each line of the log, without its mark, from the same thread.
        on_message: called with a line for each step of the supervisor.
        grace_margin: seconds that a daemon has beyond its own grace, once it is asked to stop.
        orphan_seconds: that children have to end by themselves once their daemon is gone, and then after SIGTERM.
        back_off: seconds before the first new start; doubled each time, up to a minute.
        reader: the state of the present daemon's shards; to be read under `lock`.
    """

    launch: Launch
    options: Options
    on_event: Callable[[Event], object]
    on_line: Callable[[str], object]
    on_message: Callable[[str], object]
    grace_margin: float = 10.0
    orphan_seconds: float = 10.0
    back_off: float = 1.0
    reader: LogReader = field(default_factory=lambda: LogReader(time.monotonic))
    lock: threading.Lock = field(default_factory=threading.Lock)
    _stops: list[signal.Signals] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    def run(self, *, restart: bool = False) -> Outcome:
        """Run a daemon until it ends; with `restart` another one, until somebody asks for the end.

        Returns:
            How the last one ended.

        Raises:
            OSError: it cannot be started.
        """
        pauses = Backoff(self.back_off, _LAST_BACK_OFF)
        with self._signals():
            while True:
                outcome = self._run_once()
                if not restart or self._stops:
                    return outcome
                if outcome.seconds >= _GOOD_RUN:
                    pauses.reset()
                pause = pauses.next()
                self.on_message(f"{outcome.why}; again in {pause:g} s")
                if self._stopped_within(pause):
                    return Outcome(Exit.STOPPED, "stopped before the next start", outcome.return_code, 0.0)

    @property
    def pid(self) -> int | None:
        """Of the daemon that runs."""
        return None if self._process is None else self._process.pid

    def _run_once(self) -> Outcome:
        with self.lock:
            self.reader = LogReader(time.monotonic, secrets.token_hex(8))
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fastkcl-daemon-") as folder:
            arguments = Path(folder, "arguments")
            process = self._start(self._files(Path(folder), arguments))
            self._process = process
            listener = threading.Thread(target=self._listen, args=(process, arguments), daemon=True)
            grace = self._grace() + self.grace_margin
            try:
                with Guard(process.pid, grace=grace, patience=self.orphan_seconds, folder=Path(folder)):
                    listener.start()
                    killed = self._wait(process)
                    tidy = self._clear(process)
            finally:
                if process.poll() is None:  # an error of the caller must not leave it behind
                    self._clear(process)
                self._process = None
            listener.join(self.orphan_seconds)
        return self._judge(process.returncode, killed, tidy, time.monotonic() - began)

    def _clear(self, process: subprocess.Popen[bytes]) -> bool:
        """End the daemon, if it has not ended, and then its children. Whether these ended by themselves."""
        if process.poll() is None:
            process.kill()
            process.wait()
        return end_group(
            process.pid,
            patience=self.orphan_seconds,
            on_step=self.on_message,
            is_hurried=lambda: len(self._stops) > 1,
        )

    def _files(self, folder: Path, arguments: Path) -> list[str]:
        """Write the daemon's files, in a folder that only we can read; its command line."""
        properties = folder / "fastkcl-daemon.properties"
        properties.write_text(self.options.properties(), "ascii")
        if self.launch.secrets:
            arguments.write_text(self.launch.argument_file(), "utf-8")
        # Not logback.xml: the folder is on the class path, where logback looks for that.
        folding = folder / "fastkcl-logback.xml"
        mark = self.reader.mark
        folding.write_text(resources.files(__package__).joinpath("logback.xml").read_text("utf-8").replace(MARK, mark))
        secret = arguments if self.launch.secrets else None
        return self.launch.command(properties, folding=folding, mark=mark, argument_file=secret)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | self.launch.environment,
            process_group=0,
            preexec_fn=parent_death_signal(),
        )

    def _listen(self, process: subprocess.Popen[bytes], arguments: Path) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in lines(process.stdout.fileno(), process.stderr.fileno()):
            arguments.unlink(missing_ok=True)  # the JVM has read it
            with self.lock:
                events = self.reader.feed(line)
            self.on_line(shown(line, self.reader.mark))
            for event in events:
                self.on_event(event)
        process.stdout.close()
        process.stderr.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the daemon's end. Whether it had to be killed after it was asked to stop."""
        asked = 0
        deadline = alone_since = float("inf")
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
                return False
            now = time.monotonic()
            if len(self._stops) > asked:
                asked = len(self._stops)
                if asked > 1:
                    self.on_message("asked to stop again: killing the daemon and its children")
                    process.kill()
                    process.wait()
                    return True
                grace = self._grace()
                deadline = now + grace + self.grace_margin
                self.on_message(f"{self._stops[0].name}: asking the daemon to stop; it has {grace:.0f} s for it")
                process.terminate()
            if now > deadline:
                self.on_message("the daemon has not stopped in time: killing it")
                process.kill()
                process.wait()
                return True
            if self.reader.cause is None or group_members(process.pid) != [process.pid]:
                alone_since = float("inf")
            elif now > (alone_since := min(alone_since, now)) + _ALONE_SECONDS:
                process.kill()  # nobody is left that it could wait for
                process.wait()
                return False

    def _judge(self, return_code: int, killed: bool, tidy: bool, seconds: float) -> Outcome:
        cause, last_error = self.reader.cause, self.reader.last_error
        if self._stops and cause is None:
            # KCL 1.7 knows no graceful shutdown: its children read the end of their input, and that is all.
            graceful = find_key(self.launch.generation, "shutdownGraceMillis") is not None
            in_order = not graceful or self.reader.shutdown_complete or self.reader.all_ended
            if in_order and tidy and not killed:
                return Outcome(Exit.STOPPED, "stopped as asked", return_code, seconds)
            if killed:
                why = "stopped, but the daemon had to be killed"
            elif not tidy:
                why = "stopped, but a child had to be ended"
            else:
                why = f"stopped with exit code {return_code}, before the daemon's shutdown was complete"
            return Outcome(Exit.STOPPED_BADLY, why, return_code, seconds)
        if cause is not None:
            return Outcome(Exit.CHILD_FAILED, f"the daemon ended: {cause}", return_code, seconds)
        how = "was killed" if return_code == _KILLED else f"ended by itself with exit code {return_code}"
        why = f"the daemon {how}" + (f": {last_error}" if last_error else "")
        return Outcome(Exit.DAEMON_FAILED, why, return_code, seconds)

    def _grace(self) -> float:
        millis = self.options.get("shutdownGraceMillis")
        return int(millis) / 1000 if millis else _GRACE_DEFAULT

    def _stopped_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._stops and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return bool(self._stops)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            del frame
            self._stops.append(signal.Signals(number))

        def dump_threads(number: int, frame: FrameType | None) -> None:
            del frame
            if self._process is not None:
                self._process.send_signal(number)  # a JVM answers it with a dump of its threads

        wanted = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # by nohup
        before = {number: signal.signal(number, stop) for number in wanted}
        before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, dump_threads)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
