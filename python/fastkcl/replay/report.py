"""What came of a replay: counts and times of each shard, what was made to go wrong, and what went wrong by itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Progress", "Report", "ShardReport", "ShardState"]

ShardState: TypeAlias = Literal["waiting", "playing", "done"]


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
        exit_codes: of the children, in the order they ended; negative for a signal.
        write_seconds: spent writing processRecords lines (the child reads meanwhile).
        answer_seconds: from the end of writing to the status.
        faults: faults that were asked for and came, and what the child did.
        problems: what the child did against the protocol, or failed to do. Empty for a good child.
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
        stream: the stream's name.
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
