"""Counts a process's work, and reports the counts: a JSON line in the log, a text file for Prometheus.

    Counter, Gauge, Timestamp    one value each, with a name, a unit and a sentence of help
    Info                         a text, e.g. which shard it is
    Metrics                      the values of one thing that has labels, e.g. of a shard
    Monitor                      reports a Metrics from its own thread, until it is stopped

Protocols and processors count into a `Metrics`; none of them knows the reader, and nothing here knows a protocol.
A child of `fastkcl.run` has one if its processor comes with it (`SparkProcessor`), if it is asked for
(``run(monitor=Monitor())``), or if FASTKCL_METRICS_DIR is set. The others do not even import this module.

In the log, once in `report_interval` and at the end, one line of ASCII on standard error:

    fastkcl: metrics {"time": "2026-03-01T12:00:00Z", "pid": 4711, "final": false, "stream": "clicks", …

For Prometheus, a file that node_exporter's textfile collector reads: one for each child, in one folder for all. It is
written under another name and renamed, so that no reader sees half of it, and removed when the run ends in any way
that Python lives to see: the shard is another process's then, maybe another host's, and two must not report it. A
killed child leaves its file to its successor, which has the same name for it.

Rules: a name is the same in both, a counter's ends in ``_total`` for Prometheus; base units (seconds, bytes). A
value that is not known (yet) is null in JSON and absent for Prometheus. An instant is an age in JSON, and a timestamp
for Prometheus, where an age would stand still with the file. A failed report is logged once and retried; it never fails
or delays the work that it reports on.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

from fastkcl.stdio import reports

__all__ = [
    "DEFAULT_REPORT_INTERVAL",
    "PREFIX",
    "Counter",
    "Gauge",
    "Info",
    "Metrics",
    "Monitor",
    "Timestamp",
    "prometheus_text",
]

PREFIX: Final = "fastkcl"
"""Of all names for Prometheus, and of the files."""
DEFAULT_REPORT_INTERVAL: Final = 60.0

_FILE_INTERVAL: Final = 15.0  # Prometheus usually scrapes as often
_JOIN_SECONDS: Final = 2.0  # for the last report, where nobody reads standard error or the disk hangs
_MILLISECOND_DIGITS: Final = 3


class Sample(NamedTuple):
    """A value as Prometheus has it; one that is None is left out.

    Attributes:
        name: without the prefix.
        value: in base units.
        labels: beside those of the thing that it belongs to.
    """

    name: str
    value: float | None
    labels: Mapping[str, str] = MappingProxyType({})


class Counter:
    """A value that only grows. For any threads.

    Attributes:
        name: with its unit at the end, e.g. ``write_seconds``.
        help: one sentence.
    """

    kind: Final = "counter"

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        self._value: float = 0
        self._lock = threading.Lock()

    @property
    def value(self) -> float:
        """Everything that was added."""
        return self._value

    def add(self, amount: float = 1) -> None:
        """Add to it.

        Raises:
            ValueError: less than nothing.
        """
        if not amount >= 0:
            raise ValueError(f"{self.name}: a counter only grows, {amount!r} cannot be added")
        with self._lock:
            self._value += amount

    def in_json(self) -> tuple[str, float]:
        """Name and value in the log."""
        return self.name, self._value

    def for_prometheus(self) -> Sample:
        """Name, without the prefix, and value."""
        return Sample(f"{self.name}_total", self._value)


class Gauge:
    """A value that goes up and down.

    Attributes:
        name: with its unit at the end.
        help: one sentence.
        read: gives the value when it is reported, in the reporting thread; None where it is not known.
    """

    kind: Final = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], float | None]) -> None:
        self.name = name
        self.help = help
        self.read = read

    def in_json(self) -> tuple[str, float | None]:
        """Name and value in the log."""
        return self.name, self.read()

    def for_prometheus(self) -> Sample:
        """Name, without the prefix, and value."""
        return Sample(*self.in_json())


class Info:
    """A text, which Prometheus has as a label of the value 1.

    Attributes:
        name: e.g. ``slowest_shard``.
        help: one sentence.
        label: for Prometheus, e.g. ``shard``.
        read: gives the text when it is reported, in the reporting thread; None where it is not known.
    """

    kind: Final = "gauge"

    def __init__(self, name: str, help: str, label: str, read: Callable[[], str | None]) -> None:
        self.name = name
        self.help = help
        self.label = label
        self.read = read

    def in_json(self) -> tuple[str, str | None]:
        """Name and text in the log."""
        return self.name, self.read()

    def for_prometheus(self) -> Sample:
        """``<name>_info``, 1 where the text is known, and the text as a label."""
        text = self.read()
        return Sample(f"{self.name}_info", None) if text is None else Sample(f"{self.name}_info", 1, {self.label: text})


class Timestamp:
    """When something has happened last.

    Attributes:
        name: of the event.
        help: one sentence.
    """

    kind: Final = "gauge"

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        self._at: float | None = None

    def touch(self) -> None:
        """It has happened now."""
        self._at = time.time()

    def in_json(self) -> tuple[str, float | None]:
        """``<name>_age_seconds`` and the age."""
        at = self._at
        return f"{self.name}_age_seconds", None if at is None else max(0.0, time.time() - at)

    def for_prometheus(self) -> Sample:
        """``<name>_timestamp_seconds`` and seconds since the epoch."""
        return Sample(f"{self.name}_timestamp_seconds", self._at)


Metric: TypeAlias = Counter | Gauge | Info | Timestamp
M = TypeVar("M", Counter, Gauge, Info, Timestamp)


class Metrics:
    """The values of one thing, in the order in which they were made.

    Args:
        labels: they distinguish it from others of its kind.
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self.labels: dict[str, str] = dict(labels or {})
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, help: str) -> Counter:
        """A new counter.

        Raises:
            ValueError: there is a value of this name.
        """
        return self._new(Counter(name, help))

    def gauge(self, name: str, help: str, read: Callable[[], float | None]) -> Gauge:
        """A new gauge.

        Raises:
            ValueError: there is a value of this name.
        """
        return self._new(Gauge(name, help, read))

    def info(self, name: str, help: str, label: str, read: Callable[[], str | None]) -> Info:
        """A new text.

        Raises:
            ValueError: there is a value of this name.
        """
        return self._new(Info(name, help, label, read))

    def timestamp(self, name: str, help: str) -> Timestamp:
        """A new timestamp.

        Raises:
            ValueError: there is a value of this name.
        """
        return self._new(Timestamp(name, help))

    def __iter__(self) -> Iterator[Metric]:
        return iter(list(self._metrics.values()))  # others may be made meanwhile

    def to_dict(self) -> dict[str, Any]:
        """Labels and values, seconds in full milliseconds."""
        values = (metric.in_json() for metric in self)
        return self.labels | {
            name: round(value, _MILLISECOND_DIGITS) if isinstance(value, float) else value for name, value in values
        }

    def _new(self, metric: M) -> M:
        if metric.name in self._metrics:
            raise ValueError(f"there is a metric {metric.name} already")
        self._metrics[metric.name] = metric
        return metric


def prometheus_text(things: Iterable[Metrics]) -> str:
    """Values in Prometheus' text format 0.0.4, each name once with the samples of all things."""
    families: dict[str, list[str]] = {}
    for thing in things:
        for metric in thing:
            sample = metric.for_prometheus()
            if sample.value is None:
                continue
            labels = {**thing.labels, **sample.labels}
            pairs = ",".join(f'{label}="{_label_value(text)}"' for label, text in labels.items())
            name = f"{PREFIX}_{sample.name}"
            head = [f"# HELP {name} {_escaped(metric.help)}", f"# TYPE {name} {metric.kind}"]
            families.setdefault(name, head).append(f"{name}{{{pairs}}} {sample.value!r}")
    return "".join(f"{line}\n" for family in families.values() for line in family)


def _label_value(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


class Monitor:
    """Reports the metrics of one process, from `start` to `stop`.

    Args:
        report_interval: seconds between two lines in the log; None for no lines.
        metrics_dir: folder for the Prometheus file, made if it is missing; without it that of FASTKCL_METRICS_DIR;
            without that there is no file. It is written every 15 seconds, or every `report_interval` if that is less.
        labels: more labels, e.g. the application's name where several read one stream on one host.

    Raises:
        ValueError: an interval that is not above 0, or a label that is not a name.
        OSError: the folder cannot be made or written to.
    """

    def __init__(
        self,
        *,
        report_interval: float | None = DEFAULT_REPORT_INTERVAL,
        metrics_dir: str | os.PathLike[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if report_interval is not None and not 0 < report_interval <= threading.TIMEOUT_MAX:
            raise ValueError(
                f"report_interval={report_interval!r}: must be seconds, more than 0, or None for no reports"
            )
        for name in labels or {}:
            if not (name.isidentifier() and name.isascii()) or name.startswith("__"):
                raise ValueError(f"labels: {name!r} is not a name of a label: letters, digits and _ only")
        self.metrics = Metrics(labels)
        self._interval = report_interval
        self._started = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._logged: set[str] = set()  # kinds of reports whose failure has been logged
        self._path = ""
        self._written: tuple[int, int] | None = None  # device and inode of the file that is ours
        folder = metrics_dir if metrics_dir is not None else os.environ.get(reports.METRICS_VARIABLE) or None
        # User code may change the current folder.
        self._folder = None if folder is None else os.path.abspath(os.fspath(folder))  # noqa: PTH100
        if self._folder is not None:
            os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
            if not os.access(self._folder, os.W_OK | os.X_OK):
                raise PermissionError(f"metrics_dir={self._folder}: this user may not write there")

    def start(self, labels: Mapping[str, str]) -> None:
        """Report from now on.

        Args:
            labels: of the counted object, before those given to the constructor.

        Raises:
            RuntimeError: it was started before.
        """
        if self._started:
            raise RuntimeError("a monitor reports on one run: it was started before")
        self._started = True
        self.metrics.labels = {**labels, **self.metrics.labels}
        self.metrics.timestamp("start", "When the run has begun.").touch()
        if self._folder is not None:
            # Encoded, with a separator that is not: each set of labels has its own name.
            name = "+".join(quote(_as_utf8(value), safe="") for value in self.metrics.labels.values())
            self._path = f"{self._folder}/{PREFIX}+{name}.prom"
        if self._folder is None and self._interval is None:
            return
        self._thread = threading.Thread(target=self._work, name="fastkcl-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the last line, remove the file. Within seconds, and harmless if it was never started."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def line(self, *, final: bool = False) -> str:
        """The report for the log: ``metrics {…}``."""
        head = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "pid": os.getpid(), "final": final}
        return f"metrics {json.dumps(head | self.metrics.to_dict())}"

    # In a separate thread, which may wait for a slow disk or a reader of standard error.

    def _work(self) -> None:
        line_at = float("inf") if self._interval is None else time.monotonic() + self._interval
        file_at = time.monotonic() if self._folder is not None else float("inf")
        while not self._stopped.wait(min(max(0.0, min(line_at, file_at) - time.monotonic()), threading.TIMEOUT_MAX)):
            now = time.monotonic()
            if now >= file_at:
                self._report("file", self._write_file)
                file_at = now + min(_FILE_INTERVAL, self._interval or _FILE_INTERVAL)
            if self._interval is not None and now >= line_at:
                self._report("line", lambda: reports.line(self.line()))
                line_at = now + self._interval
        if self._interval is not None:
            self._report("line", lambda: reports.line(self.line(final=True)))
        if self._folder is not None:
            self._report("file", self._remove_file)

    def _report(self, kind: str, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # of a disk, or of a gauge's `read`: the run goes on whatever it is
            if kind not in self._logged:
                self._logged.add(kind)
                where = f" to {self._path}" if kind == "file" else ""
                reports.line(f"warning: metrics cannot be written{where}: {reports.describe(error)}; trying again")
        else:
            self._logged.discard(kind)

    def _write_file(self) -> None:
        data = _as_utf8(prometheus_text([self.metrics])).encode()
        # No .prom at its end: the collector does not look. Readable by others, as far as the umask lets it.
        # In a folder for all, a name that could be guessed may be a link of somebody else's by now.
        temporary = f"{self._path}.{os.urandom(8).hex()}"
        try:
            with open(temporary, "xb") as file:  # noqa: PTH123
                file.write(data)
                status = os.fstat(file.fileno())
            os.replace(temporary, self._path)  # noqa: PTH105
        except BaseException:
            _remove(temporary)
            raise
        self._written = (status.st_dev, status.st_ino)

    def _remove_file(self) -> None:
        """Unless another process has put its own there meanwhile: one that has the shard now."""
        try:
            status = os.stat(self._path)  # noqa: PTH116
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) == self._written:
            _remove(self._path)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _as_utf8(text: str) -> str:
    """A name out of the environment can have bytes that are no UTF-8: they are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
