"""Records of the drop-in: everything that a program does with amazon_kclpy's, while their batch lasts and after it.

A check is called with the input of a batch; the function that it returns is called when that batch is over and another
one has come. Every check runs over text files in this process, and in a child on real pipes, where the Rust reader
serves. Run as a program, this file is that child.
"""

from __future__ import annotations

import base64
import binascii
import copy
import gc
import io
import json
import pickle
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import kcl_helpers
import pytest
from fastkcl import DecodeError
from fastkcl.kclpy import dispatch, kcl
from fastkcl.kclpy.messages import ProcessRecordsInput, Record
from fastkcl.kclpy.v3 import processor

MILLIS = 1_700_000_000_123
YEAR_10000 = 253_402_300_800_000  # ms since the epoch
FIELDS = ("data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def wire(**fields: Any) -> dict[str, Any]:
    """A record as a daemon writes it."""
    return {
        "data": "aGVsbG8=",
        "partitionKey": "key",
        "sequenceNumber": "49590338271490256608559692538361571095921575989136588898",
        "approximateArrivalTimestamp": MILLIS,
        "subSequenceNumber": 0,
        "action": "record",
    } | fields


RECORDS = [
    wire(),
    wire(data=None),
    wire(data=""),
    wire(data="//79"),
    wire(data=base64.b64encode(bytes(range(256)) * 20).decode()),
    wire(data="AA==", partitionKey=""),
    wire(partitionKey='Schlüssel 鍵 🔑 \x00 "\\', sequenceNumber="0", subSequenceNumber=7),
    wire(approximateArrivalTimestamp=None),
    wire(approximateArrivalTimestamp=0),
    wire(approximateArrivalTimestamp=YEAR_10000),
    {name: value for name, value in wire(sequenceNumber="1").items() if name != "subSequenceNumber"},  # as of KCL 1.x
]


def line(records: list[dict[str, Any]]) -> bytes:
    message = {"action": "processRecords", "records": records, "millisBehindLatest": 12}
    text = json.dumps(message, ensure_ascii=False)
    return text.replace('"//79"', r'"\/\/79"').encode() + b"\n"  # JSON has two ways to write a slash


class Values(NamedTuple):
    """All values of a record but the local time."""

    data: str | None
    binary_data: bytes | None
    partition_key: str
    sequence_number: str
    sub_sequence_number: int | None
    timestamp_millis: int | None


def values_of(record: dict[str, Any]) -> Values:
    """What a record has to show, from the wire's values alone."""
    data = record["data"]
    return Values(
        data,
        None if data is None else base64.b64decode(data, validate=True),
        record["partitionKey"],
        record["sequenceNumber"],
        record.get("subSequenceNumber"),
        record["approximateArrivalTimestamp"],
    )


EXPECTED = [values_of(record) for record in RECORDS]


def seen(record: Record) -> Values:
    return Values(*(getattr(record, name) for name in Values._fields))


# ---- checks -----------------------------------------------------------------------------------------------------

Check = Callable[[ProcessRecordsInput], Callable[[], None] | None]
CHECKS: dict[str, Check] = {}
RECORD_CLASSES: dict[str, type[Record]] = {}
"""Of checks that put a class of their own in the place of `Record`."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


@check
def values(given: ProcessRecordsInput) -> Callable[[], None]:
    records = given.records

    def compare() -> None:
        assert [seen(record) for record in records] == EXPECTED
        types = [tuple(map(type, seen(record))) for record in records]
        assert types == [tuple(map(type, row)) for row in EXPECTED]

    compare()
    return compare


@check
def one_kept_of_all(given: ProcessRecordsInput) -> Callable[[], None]:
    kept = given.records[6]

    def compare() -> None:
        assert seen(kept) == EXPECTED[6]

    return compare


@check
def wire_names(given: ProcessRecordsInput) -> Callable[[], None]:
    records = list(given.records)

    def compare() -> None:
        for record, sent in zip(records, RECORDS, strict=True):
            for field in FIELDS:
                assert record[field] == record.get(field) == sent.get(field)
                assert type(record[field]) is type(sent.get(field))
            assert record["action"] == record.get("action") == "record"
            for unknown in ("binary_data", "partition_key", "Data", ""):
                with pytest.raises(KeyError) as raised:
                    record[unknown]
                assert raised.value.args == (unknown,)
                with pytest.raises(KeyError):
                    record.get(unknown)

    compare()
    return compare


@check
def new_bytes_at_each_access(given: ProcessRecordsInput) -> Callable[[], None]:
    record = given.records[4]

    def compare() -> None:
        first, second = record.binary_data, record.binary_data
        assert first == second == EXPECTED[4].binary_data
        assert first is not second
        assert type(first) is bytes

    compare()
    return compare


@check
def local_time(given: ProcessRecordsInput) -> Callable[[], None]:
    """Naive, and only an access can fail: the batch with an impossible time has come as a whole."""
    records = list(given.records)

    def compare() -> None:
        for record, sent in zip(records, EXPECTED, strict=True):
            if sent.timestamp_millis == YEAR_10000:
                with pytest.raises((ValueError, OverflowError, OSError)):
                    record.approximate_arrival_timestamp  # noqa: B018
                assert record.timestamp_millis == YEAR_10000
            elif sent.timestamp_millis is None:
                assert record.approximate_arrival_timestamp is None
            else:
                arrival = record.approximate_arrival_timestamp
                assert arrival.tzinfo is None
                assert round(arrival.timestamp() * 1000) == sent.timestamp_millis

    compare()
    return compare


def assert_copies_are_equal(record: Record) -> None:
    """By pickle, copy and deepcopy: the same values and class, with attributes, as the original's records."""
    before, attributes = seen(record), dict(vars(record))
    record.note = ["attribute"]
    record.itself = record
    twins = [pickle.loads(pickle.dumps(record, protocol)) for protocol in PROTOCOLS]
    shallow, deep = copy.copy(record), copy.deepcopy(record)
    for twin in (*twins, shallow, deep):
        assert type(twin) is type(record)
        assert twin is not record
        assert seen(twin) == before
        assert twin["data"] == twin.get("data") == before.data
        assert twin.note == ["attribute"]
        # A copy of a copy: what was restored is as good as what came.
        assert seen(pickle.loads(pickle.dumps(twin))) == before
    assert all(twin.itself is twin for twin in (*twins, deep))
    assert shallow.itself is record
    assert shallow.note is record.note
    assert deep.note is not record.note
    record.note = record.itself = None
    del record.note, record.itself
    assert vars(record) == attributes
    assert seen(record) == before


@check
def copies(given: ProcessRecordsInput) -> Callable[[], None]:
    """What multiprocessing needs."""
    records = list(given.records)

    def compare() -> None:
        for record in records:
            assert_copies_are_equal(record)
        twins = pickle.loads(pickle.dumps([records, records[0], {"first": records[0]}]))
        assert [seen(twin) for twin in twins[0]] == EXPECTED
        assert twins[0][0] is twins[1] is twins[2]["first"]

    compare()
    return compare


@check
def copies_made_before(given: ProcessRecordsInput) -> Callable[[], None]:
    """A copy does not live on its original's batch."""
    twins = [copy.copy(record) for record in given.records], copy.deepcopy(given.records)

    def compare() -> None:
        assert [[seen(twin) for twin in some] for some in twins] == [EXPECTED, EXPECTED]

    return compare


@check
def attributes(given: ProcessRecordsInput) -> Callable[[], None]:
    first, second = given.records[:2]
    first.topic = "news"
    vars(first)["count"] = 3

    def compare() -> None:
        assert (first.topic, first.count) == ("news", 3)
        assert {"topic": "news", "count": 3}.items() <= vars(first).items()
        assert not hasattr(second, "topic")
        with pytest.raises(AttributeError):  # a property, as it is in the original
            first.data = "QQ=="

    compare()
    return compare


@check
def private_attributes(given: ProcessRecordsInput) -> Callable[[], None]:
    """A program that looks at, or sets, what the original keeps its values in finds the original's ways."""
    seen_whole, changed = given.records[:2]
    names = [
        *("_sequence_number", "_sub_sequence_number", "_timestamp_millis", "_approximate_arrival_timestamp"),
        *("_partition_key", "_data", "_json_dict"),
    ]
    assert [name for name in names if not hasattr(seen_whole, name)] == []
    assert list(vars(seen_whole)) == names
    assert seen(seen_whole) == EXPECTED[0]
    changed._data = "ZGVm"
    changed._partition_key = "other"

    def compare() -> None:
        assert seen(seen_whole) == EXPECTED[0]
        assert (changed.binary_data, changed.data, changed.partition_key) == (b"def", "ZGVm", "other")
        assert (changed.sequence_number, vars(changed)["_data"]) == (given.records[1].sequence_number, "ZGVm")
        twin = pickle.loads(pickle.dumps(changed))
        assert (twin.binary_data, twin.partition_key) == (b"def", "other")
        del changed._data
        with pytest.raises(AttributeError):
            changed.binary_data  # noqa: B018
        changed._data = "ZGVm"

    compare()
    return compare


@check
def the_whole_input_is_copied(given: ProcessRecordsInput) -> Callable[[], None]:
    twin = copy.copy(given)
    records = pickle.loads(pickle.dumps(given.records))

    def compare() -> None:
        assert [seen(record) for record in twin.records] == EXPECTED
        assert [seen(record) for record in records] == EXPECTED
        assert twin.batch is None

    return compare


@check
def weak_references(given: ProcessRecordsInput) -> Callable[[], None]:
    kept = given.records[0]
    gone: list[object] = []
    references = [weakref.ref(record, gone.append) for record in given.records[:2]]
    named = weakref.WeakValueDictionary(first=kept)
    assert [reference() for reference in references] == given.records[:2]

    def after() -> None:
        assert references[0]() is named["first"] is kept
        assert references[1]() is None
        assert gone == references[1:]

    return after


@check
def identity(given: ProcessRecordsInput) -> Callable[[], None]:
    """Records are equal to themselves alone, as any objects; one row is one object."""
    records = list(given.records)
    assert given.records is given.records
    assert all(one is other for one, other in zip(given.records, records, strict=True))
    ids = [id(record) for record in records]
    places = {record: place for place, record in enumerate(records)}

    def compare() -> None:
        assert [id(record) for record in records] == ids
        assert len(set(ids)) == len(places) == len(RECORDS)
        assert [places[record] for record in records] == list(range(len(RECORDS)))
        assert records[0] != records[1]
        assert records[0] != copy.copy(records[0])

    compare()
    return compare


@check
def the_list_is_the_callers(given: ProcessRecordsInput) -> Callable[[], None]:
    """It is a list, which user code sorts, empties and fills; what was taken out of it lives on."""
    records = given.records
    assert type(records) is list
    everything = list(records)
    records.sort(key=lambda record: record.partition_key)
    assert [record.partition_key for record in records] == sorted(row.partition_key for row in EXPECTED)
    records.reverse()
    last = records.pop()
    assert last.partition_key == ""
    first = records.pop(0)
    assert last in everything
    assert last not in records
    del records[2:4]
    tail = records[-3:]
    records.clear()
    made = Record(wire(partitionKey="made"))
    records.extend([made, last])
    records.insert(0, first)
    records += tail
    assert given.records == [first, made, last, *tail]
    assert len(everything) == len(RECORDS)

    def after() -> None:
        assert [seen(record) for record in everything] == EXPECTED
        assert records == [first, made, last, *tail]
        assert made.partition_key == "made"

    return after


@check
def the_input_is_kept(given: ProcessRecordsInput) -> Callable[[], None]:
    def compare() -> None:
        assert [seen(record) for record in given.records] == EXPECTED
        assert given.action == "processRecords"
        assert given.millis_behind_latest == 12
        assert type(given.checkpointer) is kcl.Checkpointer
        assert [record.data for record in given.batch] == [row.binary_data for row in EXPECTED]

    compare()
    return compare


@check
def an_emptied_input_is_kept(given: ProcessRecordsInput) -> Callable[[], None]:
    one = given.records.pop(3)
    given.records.clear()

    def after() -> None:
        assert given.records == []
        assert seen(one) == EXPECTED[3]
        assert given.batch.num_rows == len(RECORDS)

    return after


@check
def cycles_are_collected(given: ProcessRecordsInput) -> Callable[[], None]:
    """Records that only a cycle of their own keeps: of one record, of two, of a record and another object."""
    gc.collect()
    gc.disable()
    own, first, second, holder_of = given.records[:4]
    own.itself = own
    first.other, second.other = second, first
    holder_of.holder = [holder_of]
    references = [weakref.ref(record) for record in given.records[:4]]
    given.records.clear()
    del own, first, second, holder_of
    gc.collect()
    assert [seen(reference()) for reference in references] == EXPECTED[:4]

    def after() -> None:
        try:
            assert [seen(reference()) for reference in references] == EXPECTED[:4]
            gc.collect()
            assert [reference() for reference in references] == [None] * 4
        finally:
            gc.enable()

    return after


@check
def a_record_holds_its_input(given: ProcessRecordsInput) -> Callable[[], None]:
    """A cycle that holds the whole batch is collected as any other."""
    gc.collect()
    gc.disable()
    given.records[0].given = given
    references = [weakref.ref(given), weakref.ref(given.batch), *map(weakref.ref, given.records)]

    def after() -> None:
        try:
            assert [seen(reference()) for reference in references[2:]] == EXPECTED
            gc.collect()
            assert [reference() for reference in references] == [None] * len(references)
        finally:
            gc.enable()

    del given
    return after


@check
def collections_in_between_harm_nobody(given: ProcessRecordsInput) -> Callable[[], None]:
    """Records with attributes, in containers that the collector walks over, before and after the end of the batch."""
    kept = {}
    for place, record in enumerate(given.records):
        record.neighbours = given.records[place - 1 : place + 1]
        kept[place] = [record]
        gc.collect(place % 3)

    def compare() -> None:
        gc.collect()
        assert [seen(record) for (record,) in kept.values()] == EXPECTED

    compare()
    return compare


class Upper(Record):
    """Changes two values, and asks for one of them by its wire name."""

    @property
    def binary_data(self) -> bytes:
        return super().binary_data.upper()

    @property
    def data(self) -> str:
        return self.get("data").swapcase()


@check
def class_of_a_record_is_changed(given: ProcessRecordsInput) -> Callable[[], None]:
    """What a record has received does not depend on what a class makes of it."""
    record = given.records[0]
    record.__class__ = Upper

    def compare() -> None:
        for one in (record, copy.copy(record), pickle.loads(pickle.dumps(record))):
            assert type(one) is Upper
            assert (one.binary_data, one.data, one["data"]) == (b"HELLO", "AgvSBg8=", "aGVsbG8=")

    compare()
    return compare


class Parsed(Record):
    """As user code derives from the original: its own __init__, attributes, properties, methods that are overridden."""

    made = 0

    def __init__(self, json_dict: dict[str, Any]) -> None:
        super().__init__(json_dict)
        type(self).made += 1
        self.place = self.made
        self.length = len(self.binary_data or b"")

    @property
    def partition_key(self) -> str:
        return super().partition_key + "!"

    def get(self, field: str) -> Any:
        return self.place if field == "place" else super().get(field)


@check
def a_class_that_derives(given: ProcessRecordsInput) -> Callable[[], None]:
    records = list(given.records)
    first = records[0].place

    def compare() -> None:
        assert [type(record) for record in records] == [Parsed] * len(RECORDS)
        assert [seen(record) for record in records] == [
            row._replace(partition_key=row.partition_key + "!") for row in EXPECTED
        ]
        made = Parsed.made
        for place, (record, row) in enumerate(zip(records, EXPECTED, strict=True), first):
            assert (record.place, record["place"], record.length) == (place, place, len(row.binary_data or b""))
            assert record["partitionKey"] == row.partition_key
            assert_copies_are_equal(record)
        assert Parsed.made == made  # a copy is no call of __init__

    compare()
    return compare


RECORD_CLASSES["a_class_that_derives"] = Parsed


# ---- where the records come from --------------------------------------------------------------------------------


class Checks(processor.RecordProcessorBase):
    """Makes one check: with the first batch, and when it is over."""

    def __init__(self, name: str) -> None:
        self._check = CHECKS[name]
        self._after: Callable[[], None] | None = None
        self.batches = 0

    def initialize(self, initialize_input: Any) -> None:
        pass

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        self.batches += 1
        if self.batches == 1:
            self._after = self._check(process_records_input)
        elif self._after is not None:
            self._after()

    def lease_lost(self, lease_lost_input: Any) -> None:
        pass


OTHER = line([wire(data="b3RoZXI=", partitionKey="of another batch", sequenceNumber="2")] * 50)
DIALOGUE = [kcl_helpers.INITIALIZE, line(RECORDS), OTHER, kcl_helpers.LEASE_LOST]


def over_text(processor: Any, dialogue: list[bytes]) -> None:
    """Serve a dialogue on text files; raises what the processor raises."""
    files = io.StringIO(b"".join(dialogue).decode()), io.StringIO(), io.StringIO()
    try:
        kcl.KCLProcess(processor, *files, on_error="stop").run()
    except SystemExit:
        pytest.fail(files[2].getvalue())


def received(records: list[dict[str, Any]]) -> list[Record]:
    """Records of a batch that is over."""
    kept: list[Record] = []

    class Keep(processor.RecordProcessorBase):
        def process_records(self, process_records_input: ProcessRecordsInput) -> None:
            kept.extend(process_records_input.records)

    over_text(Keep(), [line(records)])
    return kept


@pytest.mark.parametrize("name", CHECKS)
def test_over_text_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in RECORD_CLASSES:
        monkeypatch.setitem(dispatch._serializers, "record", RECORD_CLASSES[name])
    checks = Checks(name)
    over_text(checks, DIALOGUE)
    assert checks.batches == 2


@pytest.mark.parametrize("name", CHECKS)
def test_over_a_pipe(name: str) -> None:
    with kcl_helpers.Child(__file__, name) as child:
        child.daemon.send(b"".join(DIALOGUE))
        child.daemon.end_input()
        answers = []
        while (answer := child.daemon.receive()) is not None:
            answers.append(answer["responseFor"])
        assert child.wait() == (0, "")
    assert answers == ["initialize", "processRecords", "processRecords", "leaseLost"]


def test_a_check_that_fails_is_seen() -> None:
    """Over a pipe, a check that does not hold must end the child."""
    with kcl_helpers.Child(__file__, "values") as child:
        child.daemon.start()
        child.daemon.send(OTHER)
        result = child.finish()
    assert result.exit == 1
    assert "AssertionError" in result.stderr


# ---- records that are made from a dict --------------------------------------------------------------------------


@pytest.mark.parametrize("sent", RECORDS[:-1])
def test_made_from_a_dict(sent: dict[str, Any]) -> None:
    record = Record(sent)
    assert seen(record) == values_of(sent)
    assert [record[field] for field in FIELDS] == [sent[field] for field in FIELDS]
    assert_copies_are_equal(record)


@pytest.mark.parametrize("field", FIELDS)
def test_a_dict_without_a_field(field: str) -> None:
    with pytest.raises(KeyError) as raised:
        Record({name: value for name, value in wire().items() if name != field})
    assert raised.value.args == (field,)


def test_a_dict_has_what_it_has() -> None:
    """get and [] look into the dict itself, as the original's do."""
    sent = wire(extra=["more"])
    record = Record(sent)
    assert record["extra"] is record.get("extra") is sent["extra"]
    del sent["action"]
    with pytest.raises(KeyError):
        record["action"]


@pytest.mark.parametrize("millis", [MILLIS, str(MILLIS), MILLIS + 0.5])
def test_arrival_in_a_dict_is_what_int_takes(millis: Any) -> None:
    record = Record(wire(approximateArrivalTimestamp=millis))
    assert record.timestamp_millis == MILLIS
    assert type(record.timestamp_millis) is int


def test_arrival_in_a_dict_is_no_number() -> None:
    with pytest.raises(ValueError, match="soon"):
        Record(wire(approximateArrivalTimestamp="soon"))


def test_data_is_canonical_text() -> None:
    """Whatever way the daemon wrote it; in a dict it is what was given. Python's b64decode would lose a byte."""
    for record, data in ((received([wire(data="QQ==QQ==")])[0], "QUE="), (Record(wire(data="QQ==QQ==")), "QQ==QQ==")):
        assert record.data == record["data"] == data
        assert record.binary_data == b"AA"


@pytest.mark.parametrize(
    ("data", "reason"), [("QUI==", "bad_padding"), ("QUJD!", "invalid_character"), ("QUJ", "truncated")]
)
def test_data_in_a_dict_is_no_base64(data: str, reason: str) -> None:
    """The text is there, as it was given; bytes that would not be what was meant are not."""
    record = Record(wire(data=data))
    assert record.data == data
    for _ in range(2):
        with pytest.raises(binascii.Error, match="base64: ") as raised:  # the original's error for others of these
            record.binary_data  # noqa: B018
        assert isinstance(raised.value.__cause__, DecodeError)
        assert raised.value.__cause__.reason == reason


def test_data_in_a_dict_may_be_bytes() -> None:
    assert Record(wire(data=b"aGVsbG8=")).binary_data == b"hello"


# ---- classes that derive ----------------------------------------------------------------------------------------


class WithSlots(Record):
    __slots__ = ("place",)

    def __init__(self, json_dict: dict[str, Any], place: int) -> None:
        super().__init__(json_dict)
        self.place = place


class WithState(Record):
    """Holds what cannot be pickled, and says what shall be."""

    def __init__(self, json_dict: dict[str, Any]) -> None:
        super().__init__(json_dict)
        self.stream = sys.stdin

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "stream"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, stream=None)


class WithArguments(Record):
    """Takes more than the dict, by name, in __new__ as well."""

    def __new__(cls, json_dict: dict[str, Any] | None = None, *, topic: str = "") -> WithArguments:
        record = super().__new__(cls)
        record.topic = topic
        return record

    def __init__(self, json_dict: dict[str, Any], *, topic: str = "") -> None:
        super().__init__(json_dict)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_slots_are_pickled(protocol: int) -> None:
    record = WithSlots(wire(), 5)
    record.note = "attribute"
    for twin in (pickle.loads(pickle.dumps(record, protocol)), copy.copy(record), copy.deepcopy(record)):
        assert (twin.place, twin.note, seen(twin)) == (5, "attribute", values_of(wire()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_own_state_is_pickled(protocol: int) -> None:
    record = WithState(wire())
    for twin in (pickle.loads(pickle.dumps(record, protocol)), copy.copy(record), copy.deepcopy(record)):
        assert (twin.stream, seen(twin)) == (None, values_of(wire()))
    assert record.stream is sys.stdin


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_own_arguments(protocol: int) -> None:
    record = WithArguments(wire(), topic="news")
    twin = pickle.loads(pickle.dumps(record, protocol))
    assert (twin.topic, seen(twin)) == ("news", values_of(wire()))


def test_private_attributes() -> None:
    """Those of the original, which classes that derive from it read."""
    for record in (*received([wire()]), Record(wire())):
        assert (record._data, record._partition_key, record._sub_sequence_number) == ("aGVsbG8=", "key", 0)
        assert (record._sequence_number, record._timestamp_millis) == (wire()["sequenceNumber"], MILLIS)
        assert record._json_dict == wire()


def test_records_of_unknown_origin_have_no_values() -> None:
    """Made without a dict, as by __new__ alone: an AttributeError that names what is missing, as of any object."""
    record = Record.__new__(Record)
    for name in Values._fields:
        with pytest.raises(AttributeError, match="_" + name.replace("binary_", "")):
            getattr(record, name)


# ---- local time -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[("XST-05:45", timedelta(hours=5, minutes=45)), ("YST8", timedelta(hours=-8))], ids=str)
def offset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[timedelta]:
    """This process is in a zone that is so far ahead of UTC."""
    zone, ahead = request.param
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield ahead
    time.tzset()


@pytest.mark.parametrize("make", [received, lambda sent: [Record(one) for one in sent]], ids=["received", "dict"])
def test_local_time_of_two_zones(make: Callable[..., list[Record]], offset: timedelta) -> None:
    times = [MILLIS, 0, 951_782_399_999, 4_102_444_800_000]
    records = make([wire(approximateArrivalTimestamp=millis) for millis in times])
    assert [record.approximate_arrival_timestamp for record in records] == [
        datetime(1970, 1, 1) + timedelta(milliseconds=millis) + offset for millis in times
    ]


if __name__ == "__main__":
    name = sys.argv[1]
    if name in RECORD_CLASSES:
        dispatch._serializers["record"] = RECORD_CLASSES[name]
    kcl.KCLProcess(Checks(name), on_error="stop").run()
