"""The calls of each registry: their requests, and the answers that they believe."""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastkcl import ConfigurationError
from fastkcl.local_aws import LocalAws
from fastkcl.payloads import AvroPayload, BatchOpener
from fastkcl.payloads.registries import ConfluentRegistry, FolderRegistry, GlueRegistry
from fastkcl.payloads.registries.answers import AwayError, MissingError, UnusableError
from fastkcl.payloads.registries.confluent import ConfluentClient
from fastkcl.payloads.registries.folder import FolderClient
from fastkcl.payloads.registries.glue import GlueClient
from fastkcl.payloads.registries.options import registry_of
from fastkcl.payloads.registries.references import inlined
from fastkcl.stdio import given_files
from http_servers import request_of
from http_servers import server as http_server
from local_aws_helpers import make_registry

RECORD = '{"type":"record","name":"a.Click","fields":[{"name":"id","type":"long"}]}'


@contextmanager
def registry(answers: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server of answers by path, each a status and a body; and what it was asked, with the credentials."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            status, body = answers.get(self.path, (404, {"error_code": 40403}))
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


ANSWERS: list[tuple[int, Any, type[Exception], str]] = [
    (404, {"error_code": 40403}, MissingError, "status 404"),
    (401, {}, AwayError, "status 401"),
    (403, {}, AwayError, "status 403"),
    (429, {}, AwayError, "status 429"),
    (503, b"", AwayError, "status 503"),
    (400, {"error_code": 40001, "message": "no id"}, UnusableError, "status 400: .*no id"),
    (400, b"no id", AwayError, "status 400: not the answer of a registry, but no JSON: no id"),
    (404, b"<html>", AwayError, "status 404: not the answer of a registry"),
    (404, {"message": "no such route"}, AwayError, "status 404: .*no such route"),
    (302, b"", AwayError, "status 302"),
    (200, b"<html>", AwayError, "no JSON"),
    (200, b"\xff", AwayError, "no UTF-8"),
    (200, [1], AwayError, "no object"),
    (200, {"schema": 7}, AwayError, "format and text"),
    (200, {"schema": " "}, UnusableError, "no text"),
    (200, {"schema": "x", "schemaType": 0}, AwayError, "format and text"),
    (200, {"schema": "x", "id": True}, UnusableError, "no id of 4 bytes"),
    (200, {"schema": "x", "references": {}}, UnusableError, "no list"),
    (200, {"schema": "x", "schemaType": "THRIFT"}, UnusableError, "THRIFT"),
    (200, deep(100).encode(), UnusableError, "deeper than 64"),
    (200, b'"' + b"x" * (9 << 20) + b'"', UnusableError, "more than 8388608 bytes"),
    (200, {"schema": "x", "references": 3}, UnusableError, "no list"),
    (200, {"schema": "x", "references": [{"name": "r"}]}, UnusableError, "no subject"),
    (200, {"schema": "x", "references": [{"name": "r", "subject": "s", "version": True}]}, UnusableError, "no subject"),
    (200, {"schema": "x", "references": [{"name": "r", "subject": "s", "version": 1}]}, UnusableError, "missing"),
]


@pytest.mark.parametrize(("status", "body", "error", "message"), ANSWERS, ids=[f"{a[0]} {a[3]}" for a in ANSWERS])
def test_an_answer_of_confluents_registry_is_checked(
    status: int, body: Any, error: type[Exception], message: str
) -> None:
    with registry({"/schemas/ids/7": (status, body)}) as (url, _), pytest.raises(error, match=message) as raised:
        ConfluentClient(ConfluentRegistry(url, token="a-secret-token")).by_id("7")
    assert "secret" not in str(raised.value)


def test_confluents_registry_is_asked_with_credentials() -> None:
    answers = {"/v/schemas/ids/7": (200, {"schema": RECORD}), "/v/subjects/a%2Fb/versions/latest": (200, {
        "schema": "m", "schemaType": "PROTOBUF", "version": 3, "id": 9})}  # fmt: skip
    with registry(answers) as (url, asked):
        found = ConfluentClient(ConfluentRegistry(f"{url}/v/", user="u", password="p")).by_id("7")
        newest = ConfluentClient(ConfluentRegistry(f"{url}/v", token="t")).latest("a/b")
    assert (found.format, found.text) == ("avro", RECORD)
    assert (newest.format, newest.text, newest.version, newest.id) == ("protobuf", "m", 3, "9")
    assert [authorization for _, authorization in asked] == ["Basic dTpw", "Bearer t"]


def test_a_registry_that_nobody_serves_is_away() -> None:
    with registry({}) as (url, _):
        pass
    with pytest.raises(AwayError, match="GET http://127.0.0.1:"):
        ConfluentClient(ConfluentRegistry(url)).by_id("7")


def test_what_is_no_http_is_away() -> None:
    with http_server(lambda link, _: link.sendall(b"SSH-2.0\r\n\r\n")) as address, pytest.raises(AwayError):
        ConfluentClient(ConfluentRegistry(f"http://{address}")).by_id("7")


def test_references_are_followed_and_put_where_they_are_used() -> None:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "Unit"}]}
    unit = {"type": "enum", "name": "Unit", "namespace": "geo", "symbols": ["M"]}
    click = {"type": "record", "name": "web.Click", "fields": [
        {"name": "at", "type": ["null", "geo.Point"]}, {"name": "from", "type": "geo.Point"},
        {"name": "units", "type": {"type": "array", "items": "geo.Unit"}}]}  # fmt: skip

    def answer(schema: Any, *references: str) -> tuple[int, dict[str, Any]]:
        listed = [{"name": name, "subject": name, "version": 1} for name in references]
        return 200, {"schema": json.dumps(schema), "references": listed}

    answers = {
        "/schemas/ids/7": answer(click, "geo.Point", "geo.Unit"),
        "/subjects/geo.Point/versions/1": answer(point, "geo.Unit"),
        "/subjects/geo.Unit/versions/1": answer(unit, "geo.Point"),  # a circle, which ends
    }
    with registry(answers) as (url, asked):
        found = ConfluentClient(ConfluentRegistry(url)).by_id("7")
    assert len(asked) == 3
    whole = json.loads(inlined(found.text, found.references))
    assert whole["fields"][0]["type"][1]["name"] == "geo.Point"
    assert whole["fields"][0]["type"][1]["fields"][0]["type"]["symbols"] == ["M"]
    assert whole["fields"][1]["type"] == "geo.Point"
    assert whole["fields"][2]["type"]["items"] == "geo.Unit"


def test_references_that_grow_are_bounded() -> None:
    endless = {
        f"/subjects/{n}/versions/1": (
            200,
            {"schema": RECORD, "references": [{"name": str(n + 1), "subject": str(n + 1), "version": 1}]},
        )
        for n in range(100)
    }
    with registry({"/schemas/ids/7": endless["/subjects/0/versions/1"], **endless}) as (url, asked):
        with pytest.raises(UnusableError, match="deeper than 64"):
            ConfluentClient(ConfluentRegistry(url)).by_id("7")
        assert len(asked) < 70


def test_glues_registry_answers(aws: LocalAws) -> None:
    name = make_registry(aws)
    client = GlueClient(GlueRegistry(endpoint_url=aws.url, region="us-east-1"))
    first = client.register(f"{name}/clicks", "avro", RECORD)
    found = client.by_id(first)
    assert (found.format, found.text, found.version, found.id) == ("avro", RECORD, 1, first)
    newer = RECORD.replace('"long"}', '"long"},{"name":"n","type":["null","int"],"default":null}')
    second = client.register(f"{name}/clicks", "avro", newer)
    assert second != first
    newest = client.latest(f"{name}/clicks")
    assert (newest.text, newest.version, newest.id) == (newer, 2, second)
    with pytest.raises(MissingError, match="glue get_schema_version of .*EntityNotFoundException"):
        client.by_id(str(uuid.uuid4()))
    with pytest.raises(MissingError, match="a name is REGISTRY/SCHEMA"):
        client.latest(f"{name}/none")


def test_a_newest_version_that_is_not_there_is_named_once(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastkcl.payloads.registries.lookups.SECOND_LOOK", 0.0)
    registry = GlueRegistry(endpoint_url=aws.url, region="us-east-1")
    with pytest.raises(ConfigurationError, match="Schema is not found.*a name is REGISTRY/SCHEMA") as raised:
        BatchOpener(AvroPayload(schema="latest:web/none", framing="glue", registry=registry))
    assert str(raised.value).count("schema='latest:web/none'") == 1


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "InternalServiceException"])
def test_a_refusal_of_glues_registry_is_an_outage(own_aws: LocalAws, code: str) -> None:
    from fastkcl.local_aws import Fault

    own_aws.faults(Fault("GetSchemaVersion", code, times=1))
    client = GlueClient(GlueRegistry(endpoint_url=own_aws.url, region="us-east-1"))
    with pytest.raises(AwayError, match=f"glue get_schema_version of SchemaVersionId=.*{code}"):
        client.by_id(str(uuid.uuid4()))


def test_a_folder_has_schemas_by_id(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(RECORD)
    (tmp_path / "8.proto").write_text('syntax = "proto3"; message M {}')
    (tmp_path / "9.avsc").write_bytes(b"\xff")
    client = FolderClient(FolderRegistry(tmp_path))
    assert [client.by_id(id).format for id in ("7", "8")] == ["avro", "protobuf"]
    with pytest.raises(MissingError, match=r"has no 6\.avsc"):
        client.by_id("6")
    for id in ("9", "../7", "7/../7"):
        with pytest.raises(UnusableError):
            client.by_id(id)


OPTIONS = [
    ("glue", {}, GlueRegistry()),
    ("https://r:1/x", {}, ConfluentRegistry("https://r:1/x")),
    (
        "confluent",
        {"FASTKCL_REGISTRY_URL": "http://r", "FASTKCL_REGISTRY_TOKEN": "t"},
        ConfluentRegistry("http://r", token="t"),
    ),
    (
        "confluent",  # as a file's content comes into a variable
        {"FASTKCL_REGISTRY_URL": "http://r\n", "FASTKCL_REGISTRY_TOKEN": " t \n"},
        ConfluentRegistry("http://r", token="t"),
    ),
    (
        "http://r",
        {"FASTKCL_REGISTRY_USER": "u\n", "FASTKCL_REGISTRY_PASSWORD": "p\r\n"},
        ConfluentRegistry("http://r", user="u", password="p"),
    ),
    ("http://r", {"FASTKCL_REGISTRY_TOKEN": "u:p\nX: y"}, "^FASTKCL_REGISTRY_TOKEN has a line feed"),
    ("http://r", {"FASTKCL_REGISTRY_TOKEN": "u:p\u20ac"}, "^FASTKCL_REGISTRY_TOKEN has a character that is not ASCII"),
    (
        "http://r",
        {"FASTKCL_REGISTRY_USER": "u", "FASTKCL_REGISTRY_PASSWORD": "u:p\x00"},
        "^FASTKCL_REGISTRY_PASSWORD has a line feed",
    ),
    ("https://u:p/x@r", {}, "must hold no user"),
    ("https://r/?u:p", {}, "no query and no fragment"),
    ("https://r/#u:p", {}, "no query and no fragment"),
    ("https://r:port", {}, "must be a URL such as"),
    ("confluent", {}, "FASTKCL_REGISTRY_URL"),
    ("https://u:p@r", {}, "must hold no user"),
    ("ftp://r", {}, "there is no such folder"),
    ("confluent", {"FASTKCL_REGISTRY_URL": "http://r", "FASTKCL_REGISTRY_USER": "u"}, "come together"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "environment", "meant"), OPTIONS)
def test_a_text_names_a_registry(text: str, environment: dict[str, str], meant: Any) -> None:
    if isinstance(meant, str):
        with pytest.raises(ValueError, match=meant) as raised:
            registry_of(text, environment)
        assert "u:p" not in str(raised.value)
    else:
        assert registry_of(text, environment) == meant


def test_no_secret_is_shown() -> None:
    shown = repr(ConfluentRegistry("https://r", user="u", password="secret-1"))
    shown += repr(ConfluentRegistry("https://r", token="secret-2"))
    glue_registry = GlueRegistry(endpoint_url="http://user:secret-3@r")
    assert "secret" not in f"{shown}{glue_registry!r}{glue_registry}"
    with pytest.raises(ValueError, match="^the token of a registry has a line feed") as raised:
        ConfluentRegistry("https://r", token="secret-4\n")
    assert "secret" not in str(raised.value)


def echo(status: int, content_type: str) -> Callable[[socket.socket, int], None]:
    """A proxy that is being debugged."""

    def talk(link: socket.socket, _: int) -> None:
        lines = [line.partition(": ") for line in request_of(link).decode().split("\r\n") if ": " in line]
        body = json.dumps({"error_code": 40403, "message": f"no {json.dumps({n: v for n, _, v in lines})}"}).encode()
        head = f"HTTP/1.1 {status} No\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        link.sendall(head.encode() + body)

    return talk


@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
@pytest.mark.parametrize("status", [404, 422, 502])
def test_what_was_sent_does_not_come_back(status: int, content_type: str) -> None:
    with http_server(echo(status, content_type)) as address:
        for options in ({"token": "SECRET"}, {"token": "SECRET" * 50}, {"user": "u", "password": "SECRETSECRET"}):
            client = ConfluentClient(ConfluentRegistry(f"http://{address}", **options))
            with pytest.raises((MissingError, UnusableError, AwayError), match=f"status {status}") as raised:
                client.by_id("7")
            assert "SECRET" not in str(raised.value)
            assert "dTpTRUNSRVR" not in str(raised.value)  # u:SECRET in base64


def test_the_user_of_glues_endpoint_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with registry({}) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url.replace("http://", "http://user:SECRET@"))
    client = GlueClient(GlueRegistry(region="us-east-1"))
    with pytest.raises(AwayError, match="POST http://…@127.0.0.1:") as raised:
        client.by_id(str(uuid.UUID(int=7)))
    assert "SECRET" not in f"{raised.value}{client.where}"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE"])
@pytest.mark.parametrize(
    "url", ["http://user:S/SECRET@127.0.0.1:1", "http://user:SECRET@127.0.0.1:port", "http://[SECRET"]
)
def test_what_is_no_endpoint_of_glue(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    monkeypatch.setenv(name, url)
    with pytest.raises(ConfigurationError, match=f"{name}.* is not a URL such as") as raised:
        GlueClient(GlueRegistry(region="us-east-1"))
    assert "S/" not in str(raised.value)
    assert "SECRET" not in str(raised.value)
    with pytest.raises(ValueError, match="endpoint_url.* is not a URL") as refused:
        GlueRegistry(endpoint_url=url)
    assert "SECRET" not in str(refused.value)


def test_nobody_waits_for_certificates_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_files, "PATIENCE", 0.05)
    os.mkfifo(tmp_path / "ca")
    with pytest.raises(ConfigurationError, match="nobody has written"):
        ConfluentClient(ConfluentRegistry("https://r", ca_bundle=str(tmp_path / "ca")))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca"))
    with pytest.raises(ConfigurationError, match="nobody has written"):
        GlueClient(GlueRegistry(region="us-east-1"))
