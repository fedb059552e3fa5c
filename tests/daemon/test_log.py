"""The daemon's log in short: the event of each line of each generation, and the state of a shard after it."""

from __future__ import annotations

import tracemalloc

import pytest
from clocks import Clock
from fastkcl.daemon.log import LogReader
from fastkcl.daemon.log_lines import Event, Kind, ShardState, parse

SHARD = "shardId-000000000003"
PLACE = "49680438244498743393480722487291902314221529407017713666"


def line(message: str, level: str = "INFO", shard: str = "") -> str:
    logger, _, text = message.partition(" ")
    return f"|12:00:00.000|{level}|a.b.{logger}|{shard}|{text}"


def read(*lines: str) -> tuple[LogReader, list[Event]]:
    reader = LogReader(Clock())
    return reader, [event for each in lines for event in reader.feed(each)]


def one(*lines: str) -> tuple[str, str | None, str]:
    """The last event that lines make."""
    event = read(*lines)[1][-1]
    return event.kind.value, event.shard, event.text


def checkpoint(asked: str, reply: str, position: str = PLACE) -> list[str]:
    """The lines of one checkpoint, and the answer whose size the daemon logs."""
    return [
        line(f"MultiLangProtocol {asked}", "DEBUG"),
        line(
            f"ShardRecordProcessorCheckpointer Setting {SHARD}, token t checkpoint to"
            f" {{SequenceNumber: {position},SubsequenceNumber: 0}}",
            "DEBUG",
        ),
        line(f"MessageWriter Writing CheckpointMessage to child process for shard {SHARD}"),
        line(f"MessageWriter Message size == {len(reply)} bytes for shard {SHARD}"),
    ]


# The daemon's words for a request, and the reply of a stored one, with its error's place.
ASKED = [
    (
        f"Attempting to checkpoint shard {SHARD} @ sequence number null, and sub sequence number null",
        '{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":%s}',
    ),
    (
        f"Attempting to checkpoint shard {SHARD} @ sequence number {PLACE}, and sub sequence number 17",
        f'{{"action":"checkpoint","sequenceNumber":"{PLACE}","subSequenceNumber":17,"error":%s}}',
    ),
    (f"Attempting to checkpoint for shard {SHARD}", '{"action":"checkpoint","checkpoint":null,"error":%s}'),
    (
        f"Attempting to checkpoint at sequence number {PLACE} for shard {SHARD}",
        f'{{"action":"checkpoint","checkpoint":"{PLACE}","error":%s}}',
    ),
]
ERRORS = [
    "ThrottlingException",
    "ShutdownException",
    "InvalidStateException",
    "IllegalArgumentException",
    "KinesisClientLibDependencyException",
    "KinesisClientLibIOException",
    "NullPointerException",
]


@pytest.mark.parametrize(("asked", "reply"), ASKED)
class TestCheckpoints:
    def test_stored(self, asked: str, reply: str) -> None:
        reader, events = read(*checkpoint(asked, reply % "null"))
        assert [(event.kind, event.text) for event in events] == [(Kind.CHECKPOINT, f"checkpoint at {PLACE}")]
        assert (reader.shards[SHARD].checkpoints, reader.shards[SHARD].checkpoint) == (1, PLACE)

    @pytest.mark.parametrize("error", ERRORS)
    def test_refused(self, asked: str, reply: str, error: str) -> None:
        reader, events = read(*checkpoint(asked, reply % f'"{error}"'))
        assert [(event.kind, event.text) for event in events] == [(Kind.WARNING, f"checkpoint refused: {error}")]
        assert reader.shards[SHARD].checkpoints == 0

    def test_refused_for_a_reason_unheard_of(self, asked: str, reply: str) -> None:
        assert one(*checkpoint(asked, reply % '"Odd"'))[2] == "checkpoint refused: an error"


def test_a_checkpoint_at_a_place_that_is_no_number() -> None:
    asked = f'Attempting to checkpoint shard {SHARD} @ sequence number "\\, and sub sequence number null'
    assert one(*checkpoint(asked, "{}")) == ("checkpoint", SHARD, "a checkpoint was answered")


TAKEN_3 = (
    f"Scheduler Created new shardConsumer for : ShardInfo(streamIdentifierSerOpt=Optional.empty, shardId={SHARD},"
    f" concurrencyToken=t, parentShardIds=[], checkpoint={{SequenceNumber: {PLACE},SubsequenceNumber: 4}})"
)
TAKEN_1 = (
    f"Worker Created new shardConsumer for : ShardInfo [shardId={SHARD}, concurrencyToken=t, parentShardIds=[],"
    f" checkpoint={{SequenceNumber: {PLACE},SubsequenceNumber: 4}}]"
)
ANSWER = 'MultiLangProtocol Received response {"action":"status","responseFor":"%s"} from subprocess'
ANSWERED = f"{ANSWER} while waiting for %s while processing shard {SHARD}"
SAID = f"DrainChildSTDERRTask Received error line from subprocess [a [b] c] for shard {SHARD}"

# The logger's class and its message, and what is made of it.
EVENTS = [
    (
        "MultiLangDaemonConfig Running a to process stream s with executable p x",
        ("daemon", None, "application a reads stream s with p x"),
    ),
    ("MultiLangDaemonConfig Using workerId: w-1", ("daemon", None, "worker w-1")),
    (TAKEN_3, ("lease", SHARD, f"lease taken, from {PLACE}")),
    (TAKEN_1, ("lease", SHARD, f"lease taken, from {PLACE}")),
    (ANSWERED % ("initialize", "initialize"), ("lease", SHARD, "child ready")),
    (ANSWERED % ("shardEnded", "shardEnded"), ("lease", SHARD, "shard ended")),
    (ANSWERED % ("leaseLost", "leaseLost"), ("lease", SHARD, "lease given up")),
    (ANSWERED % ("shutdown", "shutdown"), ("lease", SHARD, "lease given up")),
    (
        f"MessageWriter Writing ShutdownRequestedMessage to child process for shard {SHARD}",
        ("lease", SHARD, "shutdown requested"),
    ),
    (SAID, ("child", SHARD, "a [b] c")),
    (
        f"GetNextMessageTask Skipping unexpected line on STDOUT for shard {SHARD}: hello: world",
        ("warning", SHARD, "wrote a line to standard output that is not a message, and was skipped: hello: world"),
    ),
    ("MultiLangDaemon Process terminated, will initiate shutdown.", ("daemon", None, "shutting down")),
    ("MultiLangDaemon Process shutdown is complete.", ("daemon", None, "shutdown is complete")),
]


@pytest.mark.parametrize(("message", "event"), EVENTS)
def test_events(message: str, event: tuple[str, str | None, str]) -> None:
    assert one(line(message)) == event


def test_copies_that_do_not_come_are_not_kept_for_ever() -> None:
    reader = LogReader(Clock(), "mark")
    said = "DrainChildSTDERRTask Received error line from subprocess [%s] for shard s"
    tracemalloc.start()
    try:
        for number in range(5000):
            text = f"{number} {'x' * 10_000}"
            reader.feed(f"|mark{line(said % text)}")
        assert tracemalloc.get_traced_memory()[0] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_lease_that_another_worker_has() -> None:
    lost = f"DynamoDBLeaseRenewer Worker w lost lease with key {SHARD}"
    assert one(line(TAKEN_3), line(lost)) == ("lease", SHARD, "lease lost: another worker has it, or it ran out")
    # The daemon's own end of it, once the child has answered.
    assert read(line(TAKEN_3), line(ANSWERED % ("shardEnded", "shardEnded")), line(lost))[1][-1].text == "shard ended"
    assert read(line(lost))[1] == []


def test_the_end_of_a_shard_in_the_old_dialect() -> None:
    asked, reply = ASKED[2]
    lines = checkpoint(asked, reply % "null", position="SHARD_END")
    assert one(*lines, line(ANSWERED % ("shutdown", "shutdown"))) == ("lease", SHARD, "shard ended")


def test_a_batch() -> None:
    reader = LogReader(clock := Clock())
    for message in (
        TAKEN_3,
        f"ProcessTask Calling application processRecords() with 2 records from {SHARD}",
        f"MessageWriter Writing ProcessRecordsMessage to child process for shard {SHARD}",
        f"MessageWriter Message size == 2500000 bytes for shard {SHARD}",
    ):
        reader.feed(line(message))
    shard = reader.shards[SHARD]
    assert (shard.state, shard.records, shard.bytes) == (ShardState.WORKING, 0, 0)
    clock.now = 1.5
    (event,) = reader.feed(line(ANSWERED % ("processRecords", "processRecords")))
    assert event.text == "batch of 2 records, 2.50 MB, answered in 1.50 s"
    assert (shard.state, shard.records, shard.bytes, shard.batches) == (ShardState.READING, 2, 2_500_000, 1)


def test_an_empty_batch_is_no_event() -> None:
    _, events = read(
        line(f"ProcessTask Calling application processRecords() with 0 records from {SHARD}"),
        line(f"MessageWriter Writing ProcessRecordsMessage to child process for shard {SHARD}"),
        line(ANSWERED % ("processRecords", "processRecords")),
    )
    assert events == []


def test_a_lease_that_comes_back_begins_anew() -> None:
    reader, _ = read(line(TAKEN_3), line(ANSWERED % ("leaseLost", "leaseLost")))
    assert reader.shards[SHARD].state is ShardState.LOST
    reader.feed(line(TAKEN_3))
    assert reader.shards[SHARD].state is ShardState.TAKEN


class TestWhatTheDaemonCopies:
    def test_a_childs_line_is_there_once(self) -> None:
        assert [event.text for event in read(line(SAID), "a [b] c", line(SAID), "a [b] c")[1]] == ["a [b] c"] * 2

    def test_also_when_two_children_write_at_once(self) -> None:
        other = SAID.replace("a [b] c", "x").replace("003", "004")
        assert [event.text for event in read(line(SAID), line(other), "x", "a [b] c")[1]] == ["a [b] c", "x"]

    @pytest.mark.parametrize("piece", ["", "x", "|", "|n", "\x85|n", "|m |", "|M", "x|m"])
    def test_and_no_line_of_a_child_is_one(self, piece: str) -> None:
        reader = LogReader(Clock(), "m")
        reader.feed(piece + line("MultiLangDaemon Process shutdown is complete"))
        assert not reader.shutdown_complete


def test_a_warning_that_repeats_is_told_now_and_then() -> None:
    reader = LogReader(clock := Clock())
    told = []
    for clock.now in (1.0, 2.0, 300.0, 601.0, 602.0):
        warning = line(f"Worker tried {clock.now} times, request 0123abcd-{clock.now}", "WARN")
        told += [(event.kind, event.text, clock.now) for event in reader.feed(warning)]
    assert told == [
        (Kind.WARNING, "Worker: tried 1.0 times, request 0123abcd-1.0", 1.0),
        (Kind.WARNING, "Worker: tried 601.0 times, request 0123abcd-601.0", 601.0),
    ]


def test_stack_traces_and_chatter_are_left_out() -> None:
    trace = [
        "java.io.IOException: no",
        "\tat a.B.c(B.java:1)",
        "\t... 3 common frames omitted",
        "Caused by: x.YError: z",
    ]
    chatter = [line("Scheduler Sleeping ..."), '  "leaseKey" : "x",']
    assert [event.kind for event in read(line("Worker odd", "ERROR"), *trace, *chatter)[1]] == [Kind.ERROR]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            "a.b.SdkClientException: Unable to load region from any of the providers in the chain x",
            "no AWS region is set: --region, regionName in the properties, or AWS_REGION",
        ),
        ("x.YError: z", "x.YError: z"),
    ],
)
def test_an_exception_that_only_wraps_another_one(cause: str, said: str) -> None:
    """As KCL 3 ends without a region: the trace, then the wrapper alone, then its usage."""
    reader, _ = read(
        line("MultiLangDaemonConfig Using workerId: w"),
        "java.lang.RuntimeException: java.lang.reflect.InvocationTargetException",
        "\tat a.B.c(B.java:1)",
        "Caused by: java.lang.reflect.InvocationTargetException",
        f"Caused by: {cause}",
        "\t... 5 more",
        "java.lang.reflect.InvocationTargetException",
        "Usage: amazon-kinesis-client MultiLangDaemon [options]",
    )
    assert reader.last_error == said
    for each in (
        "java.lang.reflect.InvocationTargetException",
        "Caused by: a.BError: other",
        "Caused by: a.CError: last",
    ):
        reader.feed(each)
    assert reader.last_error == "a.CError: last"


def test_what_has_no_head_of_ours() -> None:
    assert parse("2026-01-01 12:00:00 INFO x") is None
    assert parse("|12:00:00.000|ERROR|a.b.C$D||x|y") == parse("|12:00:00.000| [ERROR] C$D - x|y")
