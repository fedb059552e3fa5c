"""A core: starts stitches, sends heartbeats, routes data, keeps their log, ends them.

    heartbeat thread ──▶ each instance ◀── route ◀── reader threads of the others

No stitch can stop the others: each has its own threads and queue, and no error of a stitch is raised in a thread of
another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from fastkcl._core import FromStitchMessage, ToStitchMessage
from fastkcl.processv1.core.instance import Instance, InstanceReport, StitchSpec
from fastkcl.processv1.core.routing import route

CoreLog: TypeAlias = Callable[[str, str], None]
"""Called with (instance id, line), from any thread."""

HEARTBEAT_SECONDS = 60.0
EXIT_SECONDS = 15.0
"""How long stitches may take to end: they give themselves 10."""
_TURN_SECONDS = 0.05


class Core:
    """A core of one node. A context manager: leaving it ends all stitches.

    Args:
        node: its name.
        on_log: called with the stitches' logs, their standard error, and their errors.
        on_message: called with (instance id, message) for each message of a stitch, from its thread.
        heartbeat_seconds: between two heartbeats.

    Raises:
        ValueError: `heartbeat_seconds` is not above 0, or longer than a thread can wait.
    """

    def __init__(
        self,
        node: str = "node1",
        *,
        on_log: CoreLog = lambda _instance, _line: None,
        on_message: Callable[[str, FromStitchMessage], None] = lambda _instance, _message: None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        if not 0 < heartbeat_seconds <= threading.TIMEOUT_MAX:
            limit = f"must be above 0 and at most {threading.TIMEOUT_MAX:g}"
            raise ValueError(f"heartbeat_seconds {limit}: {heartbeat_seconds}")
        self._node = node
        self._on_log = on_log
        self._on_message = on_message
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = threading.Lock()
        self._instances: dict[str, Instance] = {}
        self._last_id = 0
        self._stopped = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="fastkcl-core", daemon=True)
        self._beating.start()

    @property
    def node(self) -> str:
        """Its name."""
        return self._node

    def start(self, spec: StitchSpec) -> None:
        """Start a stitch.

        Raises:
            ValueError: there is one of that id.
            OSError: the program cannot be started.
            RuntimeError: the core has stopped.
        """
        name = spec.instance_id
        with self._lock:
            if self._stopped.is_set():
                raise RuntimeError("the core has stopped")
            if not name or ":" in name or name in self._instances:
                raise ValueError(f"an instance id is not empty, has no colon and is one of its kind: {name!r}")
            self._instances[name] = Instance(
                spec,
                self._node,
                lambda message: self._take(name, message),
                lambda line: self._on_log(name, line),
            )

    def send(self, instance_id: str, data: str, channel: str | None = None) -> int | None:
        """Give data to a stitch, as from the core itself.

        Returns:
            The message's id; None if the stitch has not read its earlier data.

        Raises:
            KeyError: there is no such stitch.
        """
        with self._lock:
            instance = self._instances[instance_id]
            number = self._next_id()
        message = ToStitchMessage(id=number, channel_name=channel, data=data, node_id=self._node)
        return number if instance.give(message) else None

    def beat(self) -> None:
        """Send a heartbeat to all stitches now."""
        for instance in self._all():
            instance.beat()

    def reports(self) -> dict[str, InstanceReport]:
        """The present state of each stitch, by id."""
        return {instance.spec.instance_id: instance.report() for instance in self._all()}

    def pid(self, instance_id: str) -> int:
        """The process of a stitch.

        Raises:
            KeyError: there is no such stitch.
        """
        with self._lock:
            return self._instances[instance_id].process.pid

    def stop(self, code: int = 0, timeout: float = EXIT_SECONDS) -> dict[str, InstanceReport]:
        """Send ``_exit`` to all stitches, wait for their end, and end the rest. Harmless when done before.

        Args:
            code: the exit code that they are asked for.
            timeout: seconds to wait for all of them.

        Returns:
            The state of each stitch in the end.
        """
        self._stopped.set()
        self._beating.join()
        instances = self._all()
        for instance in instances:
            instance.ask_to_exit(code)
        end = time.monotonic() + timeout
        while time.monotonic() < end and any(instance.exit_code is None for instance in instances):
            time.sleep(_TURN_SECONDS)
        for instance in instances:
            if instance.exit_code is None:
                self._on_log(instance.spec.instance_id, f"did not end within {timeout:g} s of _exit, and is killed")
            instance.discard()
        return self.reports()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.stop()

    def _all(self) -> list[Instance]:
        with self._lock:
            return list(self._instances.values())

    def _next_id(self) -> int:
        """The caller has the lock."""
        self._last_id += 1
        return self._last_id

    def _beat(self) -> None:
        while not self._stopped.wait(self._heartbeat_seconds):
            self.beat()

    def _take(self, sender: str, message: FromStitchMessage) -> None:
        if message.command == "logs":
            for line in message.logs or ():
                self._on_log(sender, line)
        elif message.command == "data":
            self._route(sender, message)
        self._on_message(sender, message)

    def _route(self, sender: str, message: FromStitchMessage) -> None:
        with self._lock:
            groups = {name: each.spec.group for name, each in self._instances.items() if each.exit_code is None}
            routed = route(message, sender, self._node, groups, self._next_id())
            recipients = [self._instances[name] for name in routed.recipients]
        if routed.message is None or routed.why_not:
            self._on_log(sender, f"data is not delivered: {routed.why_not}")
            return
        for instance in recipients:
            if not instance.give(routed.message):
                self._on_log(instance.spec.instance_id, f"does not read: data of {sender} is dropped")
