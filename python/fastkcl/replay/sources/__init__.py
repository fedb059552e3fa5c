r"""Sources of a replay's records: a profile, captured lines of a daemon, a file of records, dead letters.

A `Source` opens to shards. Each shard has records and a script: the requests that a daemon makes, in order.

- `generate`: a profile's payloads; the script is the batches, one after the other.
- `from_records`: JSON lines or Parquet in the canonical schema; the same script.
- `from_dead_letters`: records that a child could not write (``dead_letter=``), put together again shard by shard.
- `encoded`: the records of another, written as Avro or Protobuf.
- `from_captures`: the standard input of an earlier child, line by line (``.in.jsonl``, ``.gz`` too). The
  file is the script. Its processRecords lines are written byte for byte, its ``leaseLost``, ``shardEnded``,
  ``shutdownRequested`` and ``shutdown`` lines ask for the same again, and its end is the end of input.

The *replies* to checkpoints in a capture answered another child, which asked at other times. So they are not played
back: each reply is worked out anew by the daemon's rules from this child's request. One thing is taken over, as it
depended on the world and not on the request: where the captured child met an error of the lease
table or of a lost lease (ThrottlingException, ShutdownException, ...; not IllegalArgumentException and
InvalidStateException), the checkpoint of the same rank within the same request meets it again.

Rules: an error in a file is reported with the file's name, the line number and a remedy; nothing is guessed.
"""

from fastkcl.replay.sources.base import Ask, Deliver, Shard, Source, SourceError, Step
from fastkcl.replay.sources.captures import from_captures
from fastkcl.replay.sources.dead_letters import from_dead_letters
from fastkcl.replay.sources.encoded import encoded
from fastkcl.replay.sources.generated import generate
from fastkcl.replay.sources.lines import READ_ERRORS, bounded_lines, open_lines
from fastkcl.replay.sources.records import from_records
from fastkcl.shard import shard_name

__all__ = [
    "READ_ERRORS",
    "Ask",
    "Deliver",
    "Shard",
    "Source",
    "SourceError",
    "Step",
    "bounded_lines",
    "encoded",
    "from_captures",
    "from_dead_letters",
    "from_records",
    "generate",
    "open_lines",
    "shard_name",
]
