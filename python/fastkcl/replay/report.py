"""The results of a replay: counts and times of each shard, the faults that were asked for, and the problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Progress", "Report", "ShardReport", "ShardState"]

ShardState: TypeAlias = Literal["waiting", "playing", "done"]

LISTED = 100
"""Problems, and faults, of a shard that are kept with their words; those after them are only counted.

Problems of the end of a child, or of the shard, are kept in any case.
"""


@dataclass(slots=True)
class ShardReport:
    """One shard.

    Attributes:
        shard_id: the shard.
        label: the shard's id, or the name of the captured file.
        dialect: of the daemon.
        parents: labels of the shards it came from by a split or merge.
        records_sent: distinct records delivered.
        records_delivered: records delivered, redelivered ones counted each time.
        line_bytes: bytes of processRecords lines written.
        batches: processRecords answered.
        checkpoints: checkpoints asked for.
        checkpoint_errors: replies with an error, by its name.
        last_checkpoint: (sequence number, sub-sequence number) stored last; ("SHARD_END", 0) at the shard's end;
            None if none was stored.
        uncheckpointed: records delivered that lie above the last checkpoint: they would come again.
        restarts: children started after the first.
        exit_codes: of the children, in the order they ended (a zombie's last); negative for a signal.
        write_seconds: spent writing processRecords lines (the child reads meanwhile).
        answer_seconds: from the end of writing to the status.
        faults: faults that were asked for and came, and the child's reaction.
        problems: the child's breaches of the protocol, and its omissions. Empty for a good child.
        more_faults: faults beyond the first `LISTED`, which are only counted.
        more_problems: problems, likewise.
    """

    shard_id: str
    label: str
    dialect: str
    parents: list[str] = field(default_factory=list)
    records_sent: int = 0
    records_delivered: int = 0
    line_bytes: int = 0
    batches: int = 0
    checkpoints: int = 0
    checkpoint_errors: dict[str, int] = field(default_factory=dict)
    last_checkpoint: tuple[str, int] | None = None
    uncheckpointed: int = 0
    restarts: int = 0
    exit_codes: list[int] = field(default_factory=list)
    write_seconds: float = 0.0
    answer_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    more_faults: int = 0
    more_problems: int = 0

    def fault(self, text: str) -> None:
        """Note a fault that was asked for, or its effect."""
        if len(self.faults) < LISTED:
            self.faults.append(text)
        else:
            self.more_faults += 1

    def problem(self, text: str, *, last: bool = False) -> None:
        """Note a problem of the child; with `last` even beyond the limit."""
        if last or len(self.problems) < LISTED:
            self.problems.append(text)
        else:
            self.more_problems += 1

    def checkpoint(self, error: str | None) -> None:
        """Count a checkpoint that was asked for, and the error it was answered with."""
        self.checkpoints += 1
        if error is not None:
            self.checkpoint_errors[error] = self.checkpoint_errors.get(error, 0) + 1

    def add_zombie(self, zombie: ShardReport) -> None:
        """Take over the notes of a child that continued beside its successor."""
        self.checkpoints += zombie.checkpoints
        for error, count in zombie.checkpoint_errors.items():
            self.checkpoint_errors[error] = self.checkpoint_errors.get(error, 0) + count
        self.exit_codes += zombie.exit_codes
        for text in zombie.faults:
            self.fault(text)
        for text in zombie.problems:
            self.problem(text, last=True)
        self.more_faults += zombie.more_faults
        self.more_problems += zombie.more_problems

    @property
    def problem_count(self) -> int:
        """All problems, the listed ones and the others."""
        return len(self.problems) + self.more_problems

    @property
    def bytes_per_second(self) -> float:
        """Bytes of lines written and answered, per second of this shard; 0 if nothing was."""
        seconds = self.write_seconds + self.answer_seconds
        return self.line_bytes / seconds if seconds else 0.0


@dataclass(slots=True)
class Report:
    """The whole replay.

    Attributes:
        source: description of the source.
        command: the child's command.
        stream: the stream's name; names with commas between them for dead letters of several streams.
        seconds: from the first child's start to the last one's end.
        shards: one report each.
    """

    source: str
    command: list[str]
    stream: str
    seconds: float
    shards: list[ShardReport]

    @property
    def ok(self) -> bool:
        """Whether every child kept the protocol: no shard has a problem."""
        return not any(shard.problems for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON knows."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a shard is; given to the progress callback after each batch and change of state.

    Attributes:
        index: of the shard in the report.
        label: of the shard.
        state: waiting for its parents, playing, or done.
        records: distinct records delivered.
        records_total: distinct records that the shard's script has.
        line_bytes: bytes of processRecords lines written.
        restarts: children started after the first.
        problems: found so far.
    """

    index: int
    label: str
    state: ShardState
    records: int
    records_total: int
    line_bytes: int
    restarts: int
    problems: int
