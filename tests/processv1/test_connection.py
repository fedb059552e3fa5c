"""The stitch's state table: the action for each message in each state, without input or output."""

import pytest
from fastkcl.processv1 import Connection, FromStitchMessage, LocalProtocolError, ToStitchMessage
from fastkcl.processv1.connection import Deliver, Exit, Write

HEARTBEAT = ToStitchMessage(id=7, channel_name="_heartbeat", data="")
DATA = ToStitchMessage(id=9, channel_name="c", data="x", from_stitch_instance_id="s", node_id="n")
GROUP = ToStitchMessage(data="x", from_stitch_instance_id="s")
EXIT = ToStitchMessage(id=3, channel_name="_exit")
SYNC = Write(b'{"Command":"sync","Id":7}\nend\n')
GONE = ToStitchMessage(id=1, channel_name="_exit")


def connection(*, stopping: bool = False, **flags: bool) -> Connection:
    made = Connection(**flags)
    made.start()
    if stopping:
        made.receive_exit = True
        made.receive_data(EXIT.to_frame())
        assert made.next_event() == Deliver(EXIT)
        assert made.state == "STOPPING"
    return made


def events(made: Connection) -> list[object]:
    return list(iter(made.next_event, None))


@pytest.mark.parametrize(
    ("flags", "message", "expected", "state"),
    [
        ({}, HEARTBEAT, [SYNC], "RUNNING"),
        ({"receive_heartbeats": True}, HEARTBEAT, [Deliver(HEARTBEAT)], "RUNNING"),
        ({}, DATA, [Deliver(DATA)], "RUNNING"),
        ({}, GROUP, [Deliver(GROUP)], "RUNNING"),
        ({}, EXIT, [Exit(3)], "EXITED"),
        ({"receive_exit": True}, EXIT, [Deliver(EXIT)], "STOPPING"),
        ({"stopping": True}, HEARTBEAT, [SYNC], "STOPPING"),
        ({"stopping": True}, DATA, [], "STOPPING"),
        ({"stopping": True}, EXIT, [], "STOPPING"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_done_with_a_message(flags, message, expected, state, size):
    made = connection(**flags)
    frame = message.to_frame()
    for start in range(0, len(frame), size):
        made.receive_data(frame[start : start + size])
    assert events(made) == expected
    assert made.state == state


@pytest.mark.parametrize("gone", [Connection.receive_eof, Connection.core_gone])
@pytest.mark.parametrize(
    ("flags", "expected", "state", "code"),
    [
        ({}, [Exit(1)], "EXITED", 1),
        ({"receive_exit": True}, [Deliver(GONE)], "STOPPING", 1),
        ({"stopping": True}, [], "STOPPING", 3),
    ],
)
def test_a_core_that_is_gone(gone, flags, expected, state, code):
    made = connection(**flags)
    gone(made)
    assert (events(made), made.state, made.exit_code) == (expected, state, code)


@pytest.mark.parametrize("shown", [False, True])
def test_a_frame_that_cannot_be_read_is_logged_and_the_next_one_read(shown):
    made = connection(receive_errors=shown)
    made.receive_data(b"{Id:null}\nend\n" + DATA.to_frame())
    logged, *rest = events(made)
    assert isinstance(logged, Write)
    assert b'"Command":"logs"' in logged.data
    assert b"wrong_type" in logged.data
    if shown:
        error = rest.pop(0).message
        assert (error.id, error.channel_name) == (0, "_error")
        assert "wrong_type" in error.data
    assert rest == [Deliver(DATA)]


def test_what_stands_at_the_end_of_input():
    made = connection()
    made.receive_data(b"{Id:9,Data:'x'}")
    made.receive_eof()
    assert events(made) == [Deliver(ToStitchMessage(id=9, data="x")), Exit(1)]
    made = connection()
    made.receive_data(b"{Id:9,Data:'x")
    made.receive_eof()
    logged, left = events(made)
    assert b"truncated_frame" in logged.data
    assert left == Exit(1)


def test_the_user_returns():
    made = connection(stopping=True)
    assert made.send(FromStitchMessage(command="ack", id=9)) == b'{"Command":"ack","Id":9}\nend\n'
    made.user_returned()
    assert (events(made), made.state) == ([Exit(3)], "EXITED")
    made.user_returned()
    made.receive_data(HEARTBEAT.to_frame())
    assert events(made) == []
    with pytest.raises(LocalProtocolError, match=r"^not_allowed: a message \(ack\) is not allowed in state EXITED$"):
        made.send(FromStitchMessage(command="ack", id=9))


@pytest.mark.parametrize(("id_", "code"), [(256 + 3, 3), (-1, 255), (0, 0)])
def test_exit_codes_have_eight_bits(id_, code):
    made = connection()
    made.receive_data(ToStitchMessage(id=id_, channel_name="_exit").to_frame())
    assert events(made) == [Exit(code)]


def test_nothing_happens_before_the_start():
    made = Connection()
    for what in (lambda: made.receive_data(b""), made.receive_eof, lambda: made.send(FromStitchMessage())):
        with pytest.raises(LocalProtocolError, match="STARTING"):
            what()
    made.start()
    with pytest.raises(LocalProtocolError, match="RUNNING"):
        made.start()
