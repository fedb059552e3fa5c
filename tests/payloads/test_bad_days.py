"""Bad days of registries: a record that waits is not corrupt, and a corrupt one costs no neighbour.

Each row of `DAYS` is a day of each registry: its answer about one id, and the outcome for the records of a batch.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pytest
from clocks import Clock
from fastkcl.payloads.framed import FramedReader
from fastkcl.payloads.options import AvroPayload
from fastkcl.payloads.registries import ConfluentRegistry, FolderRegistry, GlueRegistry
from fastkcl.payloads.registries.answers import MAX_DEPTH, AwayError
from fastkcl.payloads.registries.confluent import ConfluentClient
from fastkcl.payloads.registries.folder import FolderClient
from fastkcl.payloads.registries.glue import GlueClient
from fastkcl.payloads.registries.http import LARGEST_ANSWER
from fastkcl.payloads.registries.lookups import SECOND_LOOK
from fastkcl.payloads.registries.registry import Client, Registry, RegistryAwayError
from fastkcl.payloads.writing import AvroWriter
from http_servers import request_of
from http_servers import server as http_server
from opened_payloads import batch_of
from waiting import PATIENCE

SCHEMA = '{"type":"record","name":"Click","fields":[{"name":"user","type":"string"}]}'
ANSWER_SECONDS = 0.3
"""Of one answer, for the drips."""
FINE, OTHER = 1, 2
"""Ids: of records that are good on each day, and of those that the day is about."""

Service: TypeAlias = Literal["confluent", "glue"]
Reply: TypeAlias = "Callable[[Service, socket.socket, int], None]"


def http(status: int, body: bytes | str, *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + data


def of_schema(service: Service, number: int, text: object = SCHEMA, format: object = "AVRO") -> bytes:
    """A registry's answer that an id is there."""
    if service == "glue":
        found = {
            "SchemaVersionId": uuid_of(number),
            "SchemaDefinition": text,
            "DataFormat": format,
            "Status": "AVAILABLE",
        }
        return http(200, json.dumps(found), "Content-Type: application/x-amz-json-1.1")
    return http(200, json.dumps({"schema": text, "schemaType": format}), "Content-Type: application/json")


def refusal(confluent: tuple[int, int], glue: str) -> Reply:
    """A registry's error: a status and a code, or an exception's name."""

    def talk(service: Service, link: socket.socket, number: int) -> None:
        if service == "glue":
            return link.sendall(http(400, json.dumps({"__type": glue, "Message": "m"})))
        status, code = confluent
        return link.sendall(
            http(status, json.dumps({"error_code": code, "message": "m"}), "Content-Type: application/json")
        )

    return talk


def raw(*parts: bytes) -> Reply:
    return lambda _service, link, _number: link.sendall(b"".join(parts))


def schema(text: object = SCHEMA, format: object = "AVRO") -> Reply:
    return lambda service, link, number: link.sendall(of_schema(service, number, text, format))


def drips(before: bytes, byte: bytes) -> Reply:
    """A beginning, and then a byte now and then, for ever."""

    def talk(_service: Service, link: socket.socket, _number: int) -> None:
        link.sendall(before)
        link.settimeout(0.02)
        while True:
            try:
                if not link.recv(1):
                    return  # the caller has gone
            except TimeoutError:
                link.sendall(byte)

    return talk


def cut(service: Service, link: socket.socket, number: int) -> None:
    """An answer that ends before its end."""
    link.sendall(of_schema(service, number)[:-5])


def uuid_of(number: int) -> str:
    return str(uuid.UUID(int=number))


THERE = schema()
UNKNOWN = refusal((404, 40403), "EntityNotFoundException")
LATE = r"may take 0\.3 s"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
HTML = "<html><body>Please sign in</body></html>"
DEEP = '{"schema":' + "[" * 100_000 + "]" * 100_000 + "}"

Fate: TypeAlias = Literal["opens", "corrupt", "waits"]
DAYS: dict[str, tuple[list[Reply], Fate, str]] = {
    "registered": ([THERE], "opens", ""),
    "registered just now": ([UNKNOWN, THERE], "opens", ""),
    "an unknown id": ([UNKNOWN], "corrupt", "404|EntityNotFoundException"),
    "throttled": ([refusal((429, 42901), "ThrottlingException")], "waits", "429|ThrottlingException"),
    "denied": ([refusal((403, 40301), "AccessDeniedException")], "waits", "403|AccessDeniedException"),
    "unauthorised": ([refusal((401, 401), "UnrecognizedClientException")], "waits", "401|UnrecognizedClient"),
    "broken": ([refusal((500, 50001), "InternalServiceException")], "waits", "500|InternalService"),
    "unavailable, by a proxy": ([raw(http(503, HTML, "Content-Type: text/html"))], "waits", "503"),
    "closed without an answer": ([raw()], "waits", "closed|reset|without"),
    "two formats under one id": ([schema('{"type": "object"}', "JSON")], "corrupt", "its schema is JSON, and the"),
    "a format that nobody knows": ([schema(SCHEMA, "THRIFT")], "corrupt", "THRIFT"),
    "a schema that is none": ([schema("{")], "corrupt", "no JSON"),
    "a schema that cannot be read as the reader's": ([schema('"long"')], "corrupt", "cannot be read as record"),
    "a schema too deep": ([schema(json.dumps(json.loads("[" * 80 + "]" * 80)))], "corrupt", f"deeper than {MAX_DEPTH}"),
    "headers that drip": ([drips(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")], "waits", LATE),
    "one header that drips": ([drips(b"HTTP/1.1 200 OK\r\nX: ", b"y")], "waits", LATE),
    "a status that drips": ([drips(b"HTTP/1.1 200 ", b"O")], "waits", LATE),
    "a body that drips": ([drips(MUCH + b'{"', b"x")], "waits", LATE),
    "chunks that drip": ([drips(CHUNKED, b"1\r\nx\r\n")], "waits", LATE),
    "a chunk's size that drips": ([drips(CHUNKED, b"0")], "waits", LATE),
    "an error whose body drips": ([drips(MUCH.replace(b"200", b"404"), b"x")], "waits", LATE),
    "cut short": ([cut], "waits", "IncompleteRead|5 more expected"),
    "a page of a proxy": ([raw(http(200, HTML, "Content-Type: text/html"))], "waits", "text/html|SchemaVersionId"),
    "a page with no type": ([raw(http(200, HTML))], "waits", "no JSON|SchemaVersionId"),
    "a page of a wrong address": ([raw(http(404, HTML, "Content-Type: text/html"))], "waits", "404"),
    "a page that is not UTF-8": ([raw(http(200, b"\xff\xfe"))], "waits", "UTF-8|utf-8|SchemaVersionId"),
    "a list": ([raw(http(200, "[1]"))], "waits", "no object|structure|dict|SchemaVersionId"),
    "an object of another service": ([raw(http(200, '{"status":"ok"}'))], "waits", "format and text|SchemaVersionId"),
    "a text that is a number": ([schema(7)], "waits", "format and text"),
    "a format that is a list": ([schema(SCHEMA, ["AVRO"])], "waits", "format and text"),
    "a redirect": ([raw(http(302, b"", "Location: http://127.0.0.1:1/"))], "waits", "302"),
    "no HTTP": ([raw(b"SSH-2.0-x\r\n\r\n")], "waits", "SSH|[Bb]ad"),
    "an answer that is huge": ([raw(http(200, b" " * (LARGEST_ANSWER + 1)))], "corrupt", "than 8388608 bytes"),
    "an answer that is deep": ([raw(http(200, DEEP))], "corrupt", "deep"),
}  # fmt: skip


class Day:
    """A registry over HTTP whose answers about `OTHER` are given; the last one stays."""

    hasty: Client
    """Waits only `ANSWER_SECONDS` for an answer."""

    def __init__(self, service: Service) -> None:
        self.service: Service = service
        self.replies: list[Reply] = [THERE]

    def __call__(self, link: socket.socket, _: int) -> None:
        request = request_of(link)
        glue = re.search(rb'"SchemaVersionId": ?"([0-9a-f-]+)"', request)
        number = uuid.UUID(glue[1].decode()).int if glue else int(request.split()[1].rpartition(b"/")[2])
        if number == FINE:
            return THERE(self.service, link, number)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(self.service, link, number)


@pytest.fixture(scope="module", params=["confluent", "glue"])
def registry(request: pytest.FixtureRequest) -> Iterator[tuple[Day, Client]]:
    """A registry, and what calls it; `Day.hasty` calls it, too."""
    day = Day(request.param)
    with pytest.MonkeyPatch.context() as patch, http_server(day) as address:
        patch.setenv("AWS_ACCESS_KEY_ID", "a")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
        url = f"http://{address}"

        def client_of(longest: float) -> Client:
            if day.service == "glue":
                return GlueClient(GlueRegistry(endpoint_url=url, region="us-east-1"), longest=longest)
            return ConfluentClient(ConfluentRegistry(url, token="a-secret-token"), longest)

        day.hasty = client_of(ANSWER_SECONDS)
        yield day, client_of(PATIENCE)


def payload_of(framing: str, number: int, user: str) -> bytes:
    id_ = uuid_of(number) if framing == "glue" else str(number)
    return AvroWriter(SCHEMA, framing, schema_id=id_).write({"user": user})  # type: ignore[arg-type]


def reader_of(client: Client, framing: str, max_outage: float, clock: Clock) -> FramedReader:
    registry = Registry(client, max_outage, clock=clock, chance=lambda: 0.0, wait=clock.sleep)
    payload = AvroPayload(schema=SCHEMA, framing=framing, registry=FolderRegistry("."))  # type: ignore[arg-type]
    return FramedReader(payload, max_payload_bytes=1 << 20, registry=registry)


def rows_of(reader: FramedReader, data: list[bytes]) -> list[tuple[str | None, bytes | None]]:
    opened = pa.record_batch(reader.open(batch_of([*data]), 0, 1 << 20))
    return [(row["user"], row["_corrupt"]) for row in opened.to_pylist()]


def rows_within(reader: FramedReader, data: list[bytes], seconds: float) -> list[tuple[str | None, bytes | None]]:
    """The rows, read again while the registry's answers are late: a hasty client's machine may be busy."""
    ends = time.monotonic() + seconds
    while True:
        try:
            return rows_of(reader, data)
        except RegistryAwayError:
            if time.monotonic() > ends:
                raise


@pytest.mark.parametrize("day", DAYS)
def test_a_day_of_a_registry(registry: tuple[Day, Client], day: str, caplog: pytest.LogCaptureFixture) -> None:
    server, client = registry
    replies, fate, reason = DAYS[day]
    server.replies = list(replies)
    data = [payload_of(server.service, number, f"u{place}") for place, number in enumerate((OTHER, FINE, OTHER))]
    clock = Clock()
    if reason == LATE:
        client = server.hasty
    reader = reader_of(client, server.service, 0.0 if fate == "waits" else 60.0, clock)
    opened = [("u0", None), ("u1", None), ("u2", None)]
    if fate == "waits":
        with pytest.raises(RegistryAwayError, match=reason) as raised:
            rows_of(reader, data)
        assert client.where in str(raised.value)
        assert ("get_schema_version of SchemaVersionId=" if server.service == "glue" else "GET ") in str(raised.value)
        assert "secret" not in str(raised.value)
        server.replies = [THERE]  # the day after: the same batch, whole
        assert rows_within(reader, data, PATIENCE if reason == LATE else 0.0) == opened
    elif fate == "corrupt":
        assert rows_of(reader, data) == [(None, data[0]), ("u1", None), (None, data[2])]
        assert re.search(reason, caplog.text)
        assert clock.now == (SECOND_LOOK if day == "an unknown id" else 0.0)
    else:
        assert rows_of(reader, data) == opened


def test_an_outage_of_a_minute_is_waited_for(registry: tuple[Day, Client]) -> None:
    """By a clock that passes only while records wait."""
    server, client = registry
    clock = Clock()
    asked: list[float] = []

    def down(service: Service, link: socket.socket, number: int) -> None:
        asked.append(clock.now)
        (THERE if clock.now >= 60 else refusal((503, 50301), "ServiceUnavailable"))(service, link, number)

    server.replies = [down]
    data = [payload_of(server.service, number, "u") for number in (FINE, OTHER, OTHER)]
    assert rows_of(reader_of(client, server.service, 600.0, clock), data) == [("u", None)] * 3
    assert asked[0] == 0
    assert 60 <= asked[-1] <= 90
    assert len(asked) < 12


def a_file(path: Path, text: str = SCHEMA) -> None:
    path.write_text(text)


def not_text(path: Path) -> None:
    path.write_bytes(b"\xff")


def unmounted(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")


def two_formats(folder: Path) -> None:
    a_file(folder / "2.avsc")
    a_file(folder / "2.json", "{}")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def no_right(path: Path) -> None:
    """A name that cannot be opened, by root neither."""
    path.symlink_to(path)


FOLDER_DAYS: dict[str, tuple[Callable[[Path], None], Fate, str]] = {
    "there": (lambda folder: a_file(folder / "2.avsc"), "opens", ""),
    "an unknown id": (lambda _: None, "corrupt", r"has no 2\.avsc"),
    "two formats under one id": (two_formats, "corrupt", r"has 2\.avsc and 2\.json: keep one"),
    "of another format": (lambda folder: a_file(folder / "2.json", "{}"), "corrupt", "its schema is JSON"),
    "a folder of that name": (lambda folder: (folder / "2.avsc").mkdir(), "corrupt", r"2\.avsc is no file"),
    "a pipe that nobody writes to": (lambda folder: a_pipe(folder / "2.avsc"), "corrupt", r"2\.avsc is no file"),
    "not UTF-8": (lambda folder: not_text(folder / "2.avsc"), "corrupt", "no UTF-8"),
    "huge": (lambda folder: a_file(folder / "2.avsc", " " * ((4 << 20) + 1)), "corrupt", "more than 4194304 bytes"),
    "deep": (lambda folder: a_file(folder / "2.avsc", "[" * 100_000 + "]" * 100_000), "corrupt", "deeper than"),
    "HTML": (lambda folder: a_file(folder / "2.avsc", HTML), "corrupt", "no JSON"),
    "denied": (lambda folder: no_right(folder / "2.avsc"), "waits", r"2\.avsc cannot be read"),
    "not mounted": (unmounted, "waits", "is not there"),
}  # fmt: skip


@pytest.mark.parametrize("day", FOLDER_DAYS)
def test_a_day_of_a_folder(tmp_path: Path, day: str, caplog: pytest.LogCaptureFixture) -> None:
    spoil, fate, reason = FOLDER_DAYS[day]
    folder = tmp_path / "schemas"
    folder.mkdir()
    a_file(folder / "1.avsc")
    data = [payload_of("confluent", number, f"u{place}") for place, number in enumerate((OTHER, FINE, OTHER))]
    reader = reader_of(FolderClient(FolderRegistry(folder)), "confluent", 0.0, Clock())
    spoil(folder)
    opened = [("u0", None), ("u1", None), ("u2", None)]
    if fate == "waits":
        with pytest.raises(RegistryAwayError, match=reason):
            rows_of(reader, data)
        if not folder.exists():
            (tmp_path / "elsewhere").rename(folder)
        (folder / "2.avsc").unlink(missing_ok=True)
        a_file(folder / "2.avsc")
        assert rows_within(reader, data, PATIENCE if reason == LATE else 0.0) == opened
    elif fate == "corrupt":
        assert rows_of(reader, data) == [(None, data[0]), ("u1", None), (None, data[2])]
        assert re.search(reason, caplog.text)
    else:
        assert rows_of(reader, data) == opened


def test_references_that_never_end_are_given_up_in_time() -> None:
    """Each answer is quick; all of them together are more than a look may take."""

    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        more = [{"name": f"r{number}", "subject": f"s{number}", "version": 1}]
        body = json.dumps({"schema": SCHEMA, "references": more})
        # By the time that it takes alone: its bound is that of one answer, and a look's is two of them.
        drip, length = body.encode(), 0.1 * ANSWER_SECONDS
        link.settimeout(length)
        try:
            link.recv(1)
        except TimeoutError:
            link.sendall(http(200, drip))

    with http_server(talk) as address:
        client = ConfluentClient(ConfluentRegistry(f"http://{address}"), ANSWER_SECONDS)
        with pytest.raises(AwayError, match="references of a schema, and no more in the time of a look"):
            client.by_id("1")
