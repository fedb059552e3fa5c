"""One shard from its first child to its last: the script, the faults at their time, and redelivery after a death.

    script:   deliver  deliver  deliver  deliver  ask shardEnded
                                   │ the child dies; the last checkpoint is inside the second batch
    child 2:  initialize at the checkpoint, deliver the records above it again (in batches of another size),
              then go on with the script

The daemon filters by position, not by batch: a record at or below the checkpoint never comes again, every other one
does.

Rules: faults are counted by deliveries of the shard, redeliveries included, so that a fault can also hit those. A
zombie's checkpoints are not the shard's: they are counted for no fault. A shard whose parents did not all checkpoint
their end is not started, as in KCL. There is a limit to children in a row that change nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

from fastkcl import _core
from fastkcl._core import Position
from fastkcl.replay.child import Child, StderrRelay
from fastkcl.replay.columns import first_after
from fastkcl.replay.conversation import CheckpointAnswer, CheckpointRequest, Conversation, Lease
from fastkcl.replay.effects import Delivery, apply
from fastkcl.replay.faults import CATALOG, Fault
from fastkcl.replay.options import ReplayOptions
from fastkcl.replay.plan import ShardPlan, cut
from fastkcl.replay.report import Progress, ShardReport, ShardState
from fastkcl.replay.session import Hub, Session, SessionOver
from fastkcl.replay.sources import Ask, Deliver, Step

__all__ = ["ShardPlayer"]

ENVIRONMENT_SHARD = "FASTKCL_REPLAY_SHARD"
ENVIRONMENT_ATTEMPT = "FASTKCL_REPLAY_ATTEMPT"


class ShardPlayer:
    """Plays one shard. `run` is called once, in its own thread.

    Args:
        plan: of the shard.
        command: of the children.
        options: of the replay.
        hub: of the replay.
        relay: takes the children's standard error.
        progress: called after each batch and change of state.

    Attributes:
        report: of the shard, whole when `run` has returned.
        done: set when `run` is about to return.
        failure: an exception that is not a child's fault (the command cannot be started, or a bug).
    """

    def __init__(
        self,
        plan: ShardPlan,
        command: Sequence[str],
        options: ReplayOptions,
        hub: Hub,
        relay: StderrRelay,
        progress: Callable[[Progress], None],
    ) -> None:
        self.plan = plan
        self.lease = Lease(plan.shard_id, plan.start)
        self.report = ShardReport(plan.shard_id, plan.label, plan.dialect)
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self._command = list(command)
        self._options = options
        self._hub = hub
        self._relay = relay
        self._progress = progress
        self._steps: list[Step] = list(plan.steps)
        self._planned = plan.records_planned
        self._next = 0
        self._lines: dict[int, bytes] = {}
        self._delivered = 0  # records delivered at least once: those below this index
        self._deliveries = 0
        self._fired: set[Fault] = set()
        self._checkpoints = 0
        self._deaths = 0
        self._vain = 0  # children in a row that ended by an error that was asked for, at the same checkpoint
        self._died_at: Position | None = None
        self.close_at_reply: Fault | None = None
        self._attempt = 0
        self._started_at = 0.0
        self._zombies: list[tuple[threading.Thread, ShardReport]] = []

    # Encoding, ahead of time.

    def encode_ahead(self, budget: int) -> int:
        """Encode lines of the script, in order, until `budget` bytes are full; returns the bytes used."""
        used = 0
        for index, step in enumerate(self._steps):
            if used >= budget:
                break
            if isinstance(step, Deliver) and step.line is None:
                self._lines[index] = self._encode(step)
                used += len(self._lines[index])
        return used

    def _encode(self, step: Deliver) -> bytes:
        if step.line is not None:
            return step.line
        columns = self.plan.records.columns(step.start, step.stop)
        return _core.encode_process_records(
            columns.data,
            columns.partition_keys,
            columns.sequence_numbers,
            columns.sub_sequence_numbers,
            columns.timestamps_millis,
            millis_behind_latest=0 if step.millis_behind_latest is None else step.millis_behind_latest,
            dialect=self.plan.dialect,
        )

    def _encode_next(self) -> None:
        """While the child works, the line after the one it works on."""
        index = self._next
        if index < len(self._steps) and index not in self._lines:
            step = self._steps[index]
            if isinstance(step, Deliver):
                self._lines[index] = self._encode(step)

    # The shard.

    def run(self, parents: Sequence[ShardPlayer]) -> None:
        """Play the shard to its end, once its parents are done."""
        try:
            self._show("waiting")
            for parent in parents:
                self.report.parents.append(parent.plan.label)
                parent.done.wait()
            unfinished = [parent.plan.label for parent in parents if parent.lease.checkpoint != Position.SHARD_END]
            if unfinished and not self._hub.stopping.is_set():
                self.report.problem(
                    f"not started: the end of {' and '.join(unfinished)} was not checkpointed, so KCL never starts it"
                )
                return
            self._started_at = time.monotonic()
            self._show("playing")
            while not self._hub.stopping.is_set() and self._play_child():
                self.report.restarts += 1
        except BaseException as error:
            self.failure = error
            self._hub.stop()
        finally:
            try:
                for thread, report in self._zombies:
                    thread.join()
                    self.report.add_zombie(report)
                self._close_report()
                self._show("done")
            except BaseException as error:  # a bug, which must not leave others waiting for this shard
                self.failure = self.failure or error
            finally:
                self.done.set()

    def _close_report(self) -> None:
        report = self.report
        report.records_sent = self._delivered
        if self.lease.writes:
            report.last_checkpoint = (
                self.lease.checkpoint.sequence_number,
                self.lease.checkpoint.sub_sequence_number or 0,
            )
        restarts = self._options.restarts
        if self._deaths > restarts:
            report.problem(f"given up after {restarts} restarts that nobody asked for", last=True)
        if self._vain > restarts:
            report.problem(
                f"given up after {self._vain + 1} children that ended, at the same checkpoint, by an error that was "
                "asked for; a daemon goes on for ever",
                last=True,
            )
        if report.exit_codes and self._delivered < self._planned and not self._hub.stopping.is_set():
            left = self._planned - self._delivered
            report.problem(f"{left} of {self._planned} records were never delivered", last=True)
        for fault in self._options.faults:
            if fault not in self._fired and fault.shard in (None, self.plan.index):
                report.fault(f"{fault} never came: {self._deliveries} deliveries, {self._checkpoints} checkpoints")
        report.uncheckpointed = max(self._delivered - first_after(self.plan.records, self.lease.checkpoint), 0)

    def _show(self, state: ShardState) -> None:
        report = self.report
        self._progress(
            Progress(
                self.plan.index,
                self.plan.label,
                state,
                self._delivered,
                self._planned,
                report.line_bytes,
                report.restarts,
                report.problem_count,
            )
        )

    def _play_child(self) -> bool:
        """One child from initialize to its end; returns whether another one has to go on."""
        self._attempt += 1
        session = self._start_child()
        keep = False
        try:
            session.request(session.conversation.initialize())
            self._redeliver(session)
            self._go_on(session)
            session.end()
        except SessionOver as over:
            keep = over.keep
            if over.died:
                self._deaths += 1
                if self._deaths > self._options.restarts:
                    return False
            if over.provoked and self._in_vain():
                return False
            # A shard that is checkpointed at its end is complete: KCL starts no child for it again.
            return over.again and self.lease.checkpoint != Position.SHARD_END
        finally:
            if not keep:
                session.discard()
        return False

    def _in_vain(self) -> bool:
        """A child has ended by an error that was asked for: whether too many in a row did, and nothing moved on."""
        self._vain = self._vain + 1 if self.lease.checkpoint == self._died_at else 0
        self._died_at = self.lease.checkpoint
        return self._vain > self._options.restarts

    def _start_child(self) -> Session:
        environment = {
            **os.environ,
            **self._options.environment,
            "FASTKCL_STREAM": self.plan.stream,
            ENVIRONMENT_SHARD: self.plan.shard_id,
            ENVIRONMENT_ATTEMPT: str(self._attempt),
        }
        label = self.plan.label
        child = Child(self._command, environment, lambda line: self._relay.put(label, line), self.plan.dialect)
        self._hub.add(child)
        conversation = Conversation(self.lease, self.plan.dialect)
        name = f"child {self._attempt}"
        return Session(child, conversation, self.report, self._options, self._hub, self, name)

    def _redeliver(self, session: Session) -> None:
        """The delivered records above the checkpoint, in batches of another size."""
        usual = self.plan.batch_records
        size = usual * 2 // 3 if usual > 2 else usual + 1
        first = first_after(self.plan.records, self.lease.checkpoint)
        for step in list(cut(first, self._delivered, size)):
            self._break_line(session)
            self._deliver(session, step, self._encode(step))

    def _go_on(self, session: Session) -> None:
        while self._next < len(self._steps):
            step = self._steps[self._next]
            if isinstance(step, Deliver):
                self._keep_pace(step)
                self._break_line(session)
                line = self._lines.pop(self._next, None) or self._encode(step)
                self._next += 1
                self._deliver(session, step, line)
            else:
                self.ask(session, step)
                self._next += 1

    def ask(self, session: Session, step: Ask) -> None:
        """Send a request that carries no records, and wait for its status."""
        conversation = session.conversation
        session.expect_errors(step.errors)
        match step.request:
            case "leaseLost":
                session.request(conversation.lease_lost())
            case "shutdownRequested":
                session.request(conversation.shutdown_requested())
            case "shardEnded":
                session.request(conversation.shard_ended())
                if self.lease.checkpoint != Position.SHARD_END:
                    session.problem(
                        "the shard's end was not checkpointed: KCL repeats an error until the worker restarts, and "
                        "does not start its child shards"
                    )

    def _keep_pace(self, step: Deliver) -> None:
        if self._options.rate is not None:
            due = self._started_at + step.start / self._options.rate
            self._hub.sleep(due - time.monotonic())

    # Deliveries, and their faults.

    def _faults_now(self) -> dict[str, Fault]:
        return {
            fault.name: fault
            for fault in self._options.faults
            if CATALOG[fault.name].counts == "delivery" and fault.hits(self._deliveries, self.plan.index)
        }

    def _break_line(self, session: Session) -> None:
        """Counts a delivery; a broken line comes in its place if that was asked for."""
        self._deliveries += 1
        session.place = f", delivery {self._deliveries}"
        apply("instead", Delivery(self, session), self._faults_now())

    def _deliver(self, session: Session, step: Deliver, line: bytes) -> None:
        faults = self._faults_now()
        report, conversation = self.report, session.conversation
        conversation.process_records(self.plan.records.place(step.stop - 1) if step.stop > step.start else None)
        session.expect_errors(step.errors)
        self._delivered = max(self._delivered, step.stop)
        report.records_delivered += step.stop - step.start
        report.line_bytes += len(line)

        delivery = Delivery(self, session, line, self._options.write_size)
        apply("before", delivery, faults)
        apply("half-way", delivery, faults)
        begun = time.monotonic()
        written = session.write(delivery.line, write_size=delivery.write_size, pause=delivery.pause)
        report.write_seconds += written - begun
        apply("written", delivery, faults)
        self._encode_next()
        answered = session.await_status()
        report.answer_seconds += max(answered - written, 0.0)
        report.batches += 1
        self._show("playing")
        apply("answered", delivery, faults)

    # What faults act on: see `effects.Shard`.

    def note(self, session: Session, fault: Fault, *, once: bool = False) -> None:
        """Write into the report that the fault has come; with `once` only the first time."""
        if not once or fault not in self._fired:
            session.fault(str(fault))
        self._fired.add(fault)

    def end_here(self) -> int:
        """Let the shard end after the delivered records; returns how many planned records are left out."""
        left, self._planned = self._planned - self._delivered, self._delivered
        self._steps[self._next :] = [Ask("shardEnded")]
        self._lines.clear()
        return left

    def make_zombie(self, session: Session, seconds: float) -> SessionOver:
        """Stop the child, and let it go on later beside its successor, without a lease."""
        session.child.signal(signal.SIGSTOP)
        report = ShardReport(self.plan.shard_id, self.plan.label, self.plan.dialect)
        session.disown(report)

        def wake() -> None:
            try:
                self._hub.sleep(seconds)
                session.child.signal(signal.SIGCONT)
                session.await_status()
                session.request(session.conversation.lease_lost())
                session.end()
                session.fault("went on beside its successor and ended in good order")
            except SessionOver:
                pass  # its problems are noted
            except BaseException as error:  # a bug: not the end of this thread only
                self.failure = error
                self._hub.stop()
            finally:
                session.discard()

        thread = threading.Thread(target=wake, name=f"zombie-{session.child.pid}")
        thread.start()
        self._zombies.append((thread, report))
        return SessionOver(again=True, keep=True)

    # Checkpoints, and their faults.

    def _hit_checkpoint(self, name: str, ordinal: int) -> Fault | None:
        for fault in self._options.faults:
            if fault.name == name and fault.hits(ordinal, self.plan.index):
                return fault
        return None

    def error_for(self, session: Session, request: CheckpointRequest) -> str | None:
        """See `CheckpointHooks`: the fault checkpoint-error."""
        ordinal = self._checkpoints + 1
        fault = self._hit_checkpoint("checkpoint-error", ordinal)
        if fault is None:
            return None
        self._fired.add(fault)
        session.fault(f"{fault} at checkpoint {ordinal}, of {request}")
        return fault.value

    def before_reply(self, session: Session, answer: CheckpointAnswer) -> bool:
        """See `CheckpointHooks`: the faults slow-reply and close=reply."""
        self._checkpoints += 1
        ordinal = self._checkpoints
        slow = self._hit_checkpoint("slow-reply", ordinal)
        if slow is not None:
            self._fired.add(slow)
            session.fault(f"{slow} at checkpoint {ordinal}")
            self._hub.sleep(slow.seconds)
        close, self.close_at_reply = self.close_at_reply, None
        if close is not None:
            self._fired.add(close)
            session.fault(f"{close} at checkpoint {ordinal}, of {answer.request}")
        return close is None
