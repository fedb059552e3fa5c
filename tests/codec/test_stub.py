"""The contract `_core.pyi` against the extension as it is: names, signatures, types, docstrings, frozenness."""

import ast
import base64
import datetime
import hashlib
import inspect
import json
import os
import subprocess
import sys
from typing import Literal, get_args, get_origin

import pytest
from fastkcl import _core
from paths import ROOT

PACKAGE_ROOT = ROOT / "python"
STUB = ast.parse((PACKAGE_ROOT / "fastkcl" / "_core.pyi").read_text(encoding="utf-8"))

# Aliases that exist for type checkers only.
ALIASES = {
    node.target.id: ast.unparse(node.value)
    for node in STUB.body
    if isinstance(node, ast.AnnAssign)
    and isinstance(node.target, ast.Name)
    and node.value is not None
    and ast.unparse(node.annotation) == "TypeAlias"
}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
PROPERTIES = {
    (name, member.name): member
    for name, node in CLASSES.items()
    for member in node.body
    if isinstance(member, ast.FunctionDef) and any(ast.unparse(line) == "property" for line in member.decorator_list)
}

FULL_LINE = (
    b'{"action":"processRecords","records":[{"data":"aGVsbG8=","partitionKey":"k","sequenceNumber":"4959",'
    b'"approximateArrivalTimestamp":1700000000123,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":1234}'
)
BARE_LINE = b'{"action":"processRecords","records":[{"data":null,"partitionKey":"","sequenceNumber":"0"}]}'
EMPTY_LINE = b'{"action":"processRecords","records":[]}'


def decoded(line: bytes) -> _core.ProcessRecords:
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message


def batch_in_a_shard() -> _core.RecordBatch:
    decoder = _core.Decoder()
    decoder.feed(b'{"action":"initialize","shardId":"s"}\n' + FULL_LINE + b"\n")
    _, message = decoder
    return message.batch


def a_schema_reader() -> _core.SchemaReader:
    schema = b'{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
    return _core.SchemaReader(format="avro", framing="confluent", schema=schema, max_payload_bytes=1000)


def a_payload_reader() -> _core.PayloadReader:
    return _core.PayloadReader(json=True, max_payload_bytes=1000)


AGGREGATE = bytes.fromhex("f3899ac20a01611201351a07080010001a0178")
AGGREGATE += hashlib.md5(AGGREGATE[4:]).digest()


def answer(*, full: bool) -> _core.GetRecordsAnswer:
    """With everything that an answer can have, or without."""
    record = {"Data": base64.b64encode(AGGREGATE).decode(), "PartitionKey": "k", "SequenceNumber": "1"}
    child = {
        "ShardId": "s",
        "ParentShards": ["p"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
    }
    others = {"NextShardIterator": "next", "MillisBehindLatest": 1, "ChildShards": [child]} if full else {}
    return _core.decode_get_records(json.dumps({"Records": [{**record, "EncryptionType": "KMS"}], **others}).encode())


def an_aggregate() -> _core.Aggregate:
    aggregate = _core.Aggregate()
    aggregate.add("k", b"", "5")
    return aggregate


def an_open_descriptor_reader() -> _core.Reader:
    return _core.Reader(sys.__stderr__.fileno())


def marker_events() -> list[_core.MarkerEvent]:
    """One of each kind."""
    decoder = _core.MarkerDecoder(end_of_message=b"\n", end_of_process=b"\0", at_boundary=b"B")
    decoder.feed(b"a\nb\0B")
    events = list(decoder)
    decoder.collect(1)
    decoder.feed(b"c\nrest")
    events += [*decoder]
    decoder.finish()
    return [*events, *decoder]


def a_marker_reader() -> _core.MarkerReader:
    return _core.MarkerReader(sys.__stderr__.fileno(), end_of_message=b"\n")


# For each class, objects that between them show every property with each type that it can have.
SAMPLES = {
    "Position": lambda: [_core.Position("1"), _core.Position("1", 2)],
    "Record": lambda: [
        decoded(FULL_LINE).batch[0],
        decoded(BARE_LINE).batch[0],
        *_core.deaggregate(answer(full=True).batch).batch,
    ],
    "ChildShard": lambda: [*answer(full=True).child_shards],
    "GetRecordsAnswer": lambda: [answer(full=True), answer(full=False)],
    "Deaggregated": lambda: [_core.deaggregate(answer(full=True).batch)],
    "Aggregate": lambda: [_core.Aggregate(), an_aggregate()],
    "RecordBatch": lambda: [batch_in_a_shard(), decoded(FULL_LINE).batch, decoded(EMPTY_LINE).batch],
    "Capabilities": lambda: [*_core.DIALECTS.values()],
    "Initialize": lambda: [
        _core.Initialize(shard_id="s", dialect="legacy"),
        _core.Initialize(shard_id="s", sequence_number="1", sub_sequence_number=2),
    ],
    "ProcessRecords": lambda: [decoded(FULL_LINE), decoded(BARE_LINE)],
    "Shutdown": lambda: [_core.Shutdown(reason="TERMINATE"), _core.Shutdown(reason="ZOMBIE")],
    "Checkpoint": lambda: [
        _core.Checkpoint(),
        _core.Checkpoint(sequence_number="1", sub_sequence_number=2, error="ThrottlingException"),
    ],
    "ToStitchMessage": lambda: [
        _core.ToStitchMessage(),
        _core.ToStitchMessage(id=1, channel_name="c", data="d", from_stitch_instance_id="s", node_id="n"),
    ],
    "FromStitchMessage": lambda: [
        _core.FromStitchMessage(),
        _core.FromStitchMessage(
            command="data",
            id=1,
            data="d",
            data_channel="c",
            logs=["l"],
            to_group_name="A.B",
            to_stitch_instance_id="n:s",
        ),
    ],
    "Reader": lambda: [an_open_descriptor_reader()],
    "MessageBatch": lambda: [_core.message_batch([b"a"])],
    "MarkerEvent": marker_events,
    "MarkerReader": lambda: [a_marker_reader()],
    "PayloadReader": lambda: [a_payload_reader()],
    "SchemaReader": lambda: [a_schema_reader()],
    "OpenedPayloads": lambda: [a_payload_reader().open(decoded(FULL_LINE).batch, 0, 1000)],
    "KclpyRecordBase": lambda: [
        *_core.kclpy_records(decoded(FULL_LINE).batch, _core.KclpyRecordBase),
        *_core.kclpy_records(decoded(BARE_LINE).batch, _core.KclpyRecordBase),
    ],
}


def alternatives(annotation: str) -> list[object]:
    """The types or literal values that an annotation of the stub allows; of a generic type the type alone."""
    names = {**vars(_core), "datetime": datetime.datetime, "Literal": Literal}
    allowed: list[object] = []
    for part in ALIASES.get(annotation, annotation).split(" | "):
        value = eval(part, names)  # the stub is ours
        is_generic = isinstance(get_origin(value), type)
        allowed += [get_origin(value)] if is_generic else list(get_args(value)) or [value]
    return allowed


def fits(value: object, alternative: object) -> bool:
    if isinstance(alternative, type):
        return type(value) is alternative
    return value == alternative


def test_stub_and_module_agree_on_names_and_signatures(tmp_path):
    allowed = tmp_path / "aliases"
    allowed.write_text("".join(f"fastkcl._core.{name}\n" for name in ALIASES), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--concise", "--allowlist", str(allowed), "fastkcl._core"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PACKAGE_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_class_with_properties_has_samples():
    assert {name for name, _ in PROPERTIES} == set(SAMPLES)


@pytest.mark.parametrize(("class_name", "name"), PROPERTIES)
def test_property_types(class_name, name):
    """Each value is of a type that the stub names, and each type that it names comes up."""
    returns = PROPERTIES[class_name, name].returns
    assert returns is not None
    allowed = alternatives(ast.unparse(returns))
    values = [getattr(sample, name) for sample in SAMPLES[class_name]()]
    for value in values:
        assert any(fits(value, alternative) for alternative in allowed), f"{value!r} is none of {allowed}"
    for alternative in allowed:
        assert any(fits(value, alternative) for value in values), f"{alternative} is in no sample: {values}"


@pytest.mark.parametrize(("class_name", "name"), PROPERTIES)
def test_properties_are_read_only(class_name, name):
    sample = SAMPLES[class_name]()[0]
    with pytest.raises(AttributeError):
        setattr(sample, name, getattr(sample, name))


@pytest.mark.parametrize("class_name", SAMPLES)
def test_no_attributes_can_be_added(class_name):
    with pytest.raises(AttributeError):
        SAMPLES[class_name]()[0].something = 1


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("DecodeError", "KclpyRecordBase")])
def test_final_classes_cannot_be_subclassed(name):
    assert [ast.unparse(line) for line in CLASSES[name].decorator_list] == ["final"]
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (getattr(_core, name),), {})


def test_decode_error_attributes():
    """The attributes of the stub, on a real error and on the class."""
    attributes = {
        node.target.id: node.annotation for node in CLASSES["DecodeError"].body if isinstance(node, ast.AnnAssign)
    }
    assert list(attributes) == ["kind", "field", "record", "offset", "reason", "context"]
    with pytest.raises(_core.DecodeError) as caught:
        _core.decode_line(BARE_LINE.replace(b"null", b'"a"'))
    assert set(vars(caught.value)) == set(attributes)
    for name, annotation in attributes.items():
        allowed = alternatives(ast.unparse(annotation))
        for value in (getattr(caught.value, name), getattr(_core.DecodeError, name)):
            assert any(fits(value, alternative) for alternative in allowed), (name, value)


def documented():
    for name in (*CLASSES, *FUNCTIONS):
        yield name, getattr(_core, name)
        for member in CLASSES[name].body if name in CLASSES else ():
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                yield f"{name}.{member.name}", inspect.getattr_static(getattr(_core, name), member.name)


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in documented()])
def test_docstrings(value):
    assert value.__doc__
    assert value.__doc__ == value.__doc__.strip()


@pytest.mark.parametrize(
    "name",
    [
        "Capabilities",
        "ChildShard",
        "Deaggregated",
        "GetRecordsAnswer",
        "MarkerEvent",
        "MessageBatch",
        "Record",
        "RecordBatch",
        "ProcessRecords",
    ],
)
def test_only_the_decoder_makes(name):
    with pytest.raises(TypeError, match="cannot create|No constructor defined"):
        getattr(_core, name)()
