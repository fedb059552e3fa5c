"""processv1-frames, -json and -args.jsonl: every case, frames and messages whole and a byte at a time."""

import base64
from collections.abc import Iterable
from typing import Any

import case_files
import pytest
from fastkcl import _core
from fastkcl.processv1 import AddressError, ArgumentError, Arguments, GroupName, InstanceAddress

FROM_STITCH = {
    "Command": "command",
    "Id": "id",
    "DataChannel": "data_channel",
    "Data": "data",
    "Logs": "logs",
    "ToGroupName": "to_group_name",
    "ToStitchInstanceId": "to_stitch_instance_id",
}
TO_STITCH = {
    "Id": "id",
    "FromStitchInstanceId": "from_stitch_instance_id",
    "NodeId": "node_id",
    "ChannelName": "channel_name",
    "Data": "data",
}
PIECES = [pytest.param(1 << 20, id="whole"), pytest.param(1, id="byte-by-byte")]


def load(file: str, kind: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in case_files.load(file, kind)]


def cut(data: bytes, size: int) -> Iterable[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("case", load("processv1-frames", "frames"))
def test_processv1_case_is_framed(case: dict[str, Any], size: int) -> None:
    framer = _core.EndLineFramer()
    frames = []
    for piece in cut(base64.b64decode(case["input_b64"]), size):
        framer.feed(piece)
        frames += framer
    last = framer.finish()
    frames += [last] if last is not None else []
    assert frames == [(frame["text"].encode(), frame["terminated"]) for frame in case["frames"]]


@pytest.mark.parametrize("case", load("processv1-frames", "write"))
def test_processv1_case_is_written(case: dict[str, Any]) -> None:
    message = _core.FromStitchMessage(**{FROM_STITCH[name]: value for name, value in case["message"].items()})
    assert message.to_frame().decode("ascii") == case["bytes"]


def outcome(case: dict[str, Any], size: int) -> dict[str, Any] | str:
    """The message of a case's frame by the wire's names, "ignored", or the kind of its error with "error" before it."""
    decoder = _core.StitchDecoder(direction=case["role"])
    for piece in cut(case["text"].encode() + b"\nend\n", size):
        decoder.feed(piece)
    try:
        message = next(decoder, None)
    except _core.DecodeError as error:
        return f"error {error.kind}"
    assert next(decoder, None) is None
    assert decoder.finish() is None
    if message is None:
        return "ignored"
    names = TO_STITCH if case["role"] == "to_stitch" else FROM_STITCH
    values = {name: getattr(message, attribute) for name, attribute in names.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def test_finish_waits_for_what_came_before() -> None:
    """Before messages, errors and frames are taken it takes none of them."""
    stream = b'{"Id":1}\nend\n{"Id":\nend\n{"Id":3}\nend\n{"Id":4}'
    decoder = _core.StitchDecoder()
    decoder.feed(stream)
    seen: list[object] = []
    while len(seen) < 3:
        with pytest.raises(RuntimeError, match="iterate"):
            decoder.finish()
        try:
            seen.append(next(decoder))
        except _core.DecodeError as error:
            seen.append(error.kind)
    seen.append(decoder.finish())
    assert seen == [_core.ToStitchMessage(id=1), "json", _core.ToStitchMessage(id=3), _core.ToStitchMessage(id=4)]
    assert decoder.finish() is None
    framer = _core.EndLineFramer()
    framer.feed(stream)
    with pytest.raises(RuntimeError, match="iterate"):
        framer.finish()
    assert [text for text, _ in framer] == [b'{"Id":1}', b'{"Id":', b'{"Id":3}']
    assert framer.finish() == (b'{"Id":4}', False)


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("case", load("processv1-json", "json"))
def test_processv1_case_is_read(case: dict[str, Any], size: int) -> None:
    assert outcome(case, size) == case["message"]


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("case", load("processv1-json", "json_either"))
def test_processv1_case_is_read_or_refused(case: dict[str, Any], size: int) -> None:
    result = outcome(case, size)
    assert result == case["message"] or str(result).startswith("error ")


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("case", load("processv1-json", "json_error"))
def test_processv1_case_is_refused(case: dict[str, Any], size: int) -> None:
    assert str(outcome(case, size)).startswith("error ")


@pytest.mark.parametrize("case", load("processv1-args", "args"))
def test_processv1_case_of_arguments(case: dict[str, Any]) -> None:
    arguments = Arguments.parse(case["args"])
    assert arguments.core == case["core"]
    assert list(arguments.custom) == case["custom"]
    parameters = arguments.parameters
    application, component, version = map(str, parameters.groups)
    assert {
        "core_id": parameters.core_id,
        "core_pid": parameters.core_pid,
        "instance_id": parameters.instance_id,
        "channel": parameters.channel,
        "serializer": parameters.serializer,
        "application_group": application,
        "component_group": component,
        "version_group": version,
    } == case["derived"]


@pytest.mark.parametrize("case", load("processv1-args", "args_error"))
def test_processv1_case_of_arguments_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as caught:
        Arguments.parse(case["args"])
    assert caught.value.kind == case["error"]["kind"]


@pytest.mark.parametrize("case", load("processv1-args", "group"))
def test_processv1_case_of_groups(case: dict[str, Any]) -> None:
    group = GroupName.parse(case["group"])
    assert (group.application, group.component, group.version) == (
        case["application"],
        case["component"],
        case["version"],
    )
    if "other" in case:
        assert group.contains(GroupName.parse(case["other"])) is case["contains"]


@pytest.mark.parametrize("case", load("processv1-args", "address"))
def test_processv1_case_of_addresses(case: dict[str, Any]) -> None:
    def address() -> InstanceAddress:
        return InstanceAddress(*case["input"]) if len(case["input"]) == 2 else InstanceAddress.parse(*case["input"])

    if "error" in case:
        with pytest.raises(AddressError) as caught:
            address()
        assert caught.value.kind == case["error"]["kind"]
    else:
        assert (address().node, address().instance, str(address())) == (case["node"], case["instance"], case["full"])


def test_what_a_core_writes_is_what_a_stitch_reads() -> None:
    arguments = Arguments({"coreid": "n", "component": "", "datadir": "/a=b"}, ["--", "x=y"])
    assert arguments.to_argv() == ["coreid=n", "datadir=/a=b", "--", "--", "x=y"]
    assert Arguments.parse(arguments.to_argv()) == Arguments({"coreid": "n", "datadir": "/a=b"}, ["--", "x=y"])
