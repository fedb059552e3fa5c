"""Who may ask the local server: programs by loopback names and those that were given, and no web page in a browser."""

import gzip
import http.client
import json
import socket
from collections import deque
from collections.abc import Iterator
from itertools import repeat

import pytest
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.access import Access
from local_aws_helpers import JSON, client, headers, make_stream, post, post_by_http2

EVIL = "http://evil.example"
LIST_STREAMS = headers("ListStreams", JSON)
CONTROL = {"X-Local-Aws": "1"}


def ask(
    aws: LocalAws, method: str, path: str, fields: dict[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """What one request is answered with: status, headers with names in lower case, body."""
    connection = http.client.HTTPConnection("127.0.0.1", int(aws.url.rpartition(":")[2]), timeout=60)
    try:
        connection.request(method, path, body, fields)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "fields", "body"),
    [
        ("POST", "/_faults", {"Origin": EVIL, "Content-Type": "text/plain"}, b"[]"),  # fetch(…, {mode: "no-cors"})
        ("POST", "/_faults", {"Origin": "null", "Content-Type": "text/plain"}, b"[]"),  # from a sandboxed frame
        ("POST", "/_faults", {"Content-Type": "text/plain"}, b"[]"),  # a simple request, without anything telling
        ("GET", "/_faults", {}, b""),
        ("POST", "/_clock", {"Content-Type": "text/plain"}, b"1"),
        ("POST", "/moto-api/reset", {}, b""),
        ("POST", "//moto-api/reset", {}, b""),
        ("POST", "/%6doto-api/reset", {}, b""),
        ("GET", "/moto-api/seed?a=1", {}, b""),
        ("GET", "/moto-api/data.json", {"Sec-Fetch-Site": "cross-site", **CONTROL}, b""),  # an image
        ("POST", "/moto-api/reset", {"Origin": EVIL, **CONTROL}, b""),  # after a preflight that was not asked for
        ("OPTIONS", "/moto-api/reset", {"Origin": EVIL, "Access-Control-Request-Method": "POST"}, b""),
        ("OPTIONS", "/", {"Origin": EVIL, "Access-Control-Request-Headers": "x-amz-target"}, b""),
        ("POST", "/", {"Origin": EVIL, **LIST_STREAMS}, b"{}"),
        ("POST", "/?Action=CreateQueue&QueueName=q&Version=2012-11-05", {"Origin": EVIL}, b""),
        ("GET", "/?Action=CreateQueue&QueueName=q&Version=2012-11-05", {"Sec-Fetch-Site": "cross-site"}, b""),
        ("GET", "/?Action=CreateQueue&QueueName=q&Version=2012-11-05", {"Sec-Fetch-Site": "same-site"}, b""),
    ],
)
def test_a_page_of_another_site_cannot_drive_it(
    aws: LocalAws, method: str, path: str, fields: dict[str, str], body: bytes
) -> None:
    stream = make_stream(aws)
    status, answered, text = ask(aws, method, path, fields, body)
    assert status == 403, text
    assert json.loads(text)["__type"] == "AccessDeniedException"
    assert not [name for name in answered if name.startswith("access-control")]
    assert stream in client(aws).list_streams(Limit=10_000)["StreamNames"]


def test_a_path_is_decoded_once(aws: LocalAws) -> None:
    assert ask(aws, "POST", "/%256doto-api/reset", {})[0] != 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4567",
        "localhost:80@evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0",
        "10.1.2.3",
        "",
        "[::1].evil.example",
        "[::1]evil.example:4567",
        "[::1",
    ],
)
def test_a_name_that_was_bent_to_loopback_is_refused(aws: LocalAws, host: str) -> None:
    """DNS rebinding: the page's own name has this address now, so its requests are of the same origin."""
    for path, fields in (("/", LIST_STREAMS), ("/_faults", CONTROL)):
        status, _, text = ask(aws, "POST", path, {"Host": host, **fields}, b"{}")
        assert status == 403, text
        assert "--allow-host" in json.loads(text)["message"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "127.1.2.3", "localhost", "LOCALHOST.:4567", "kinesis.localhost", "[::1]:4567"]
)
def test_loopback_has_many_names(aws: LocalAws, host: str) -> None:
    assert ask(aws, "POST", "/", {"Host": host, **LIST_STREAMS}, b"{}")[0] == 200


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("aws:4567", "aws"),
        ("AWS.", "aws:1"),
        ("fd00::1", "[fd00::1]:4567"),
        ("[FD00::1]", "[fd00:0::1]"),
        ("::1", "[0:0:0:0:0:0:0:1]:4567"),
    ],
)
def test_a_name_may_be_given_in_any_spelling(given: str, host: str) -> None:
    access = Access([given])
    assert access.refusal("/", {"host": host}) is None
    assert access.refusal("/", {"host": "[fd00::2]"}) is not None
    assert access.refusal("/", {"host": "other"}) is not None


def test_http2_is_judged_as_well(aws: LocalAws) -> None:
    assert post_by_http2(aws.url, b"{}", LIST_STREAMS)[0] == 200
    assert post_by_http2(aws.url, b"{}", {**LIST_STREAMS, "Origin": EVIL})[0] == 403
    assert post_by_http2(aws.url, b"{}", LIST_STREAMS, authority="evil.example")[0] == 403


def test_no_answer_opens_it_to_web_pages(aws: LocalAws) -> None:
    """moto's answers have CORS headers for every origin."""
    for path, fields in (("/moto-api/data.json", CONTROL), ("/a-bucket", {})):
        status, answered, _ = ask(aws, "GET", path, fields)
        assert status != 403
        assert not [name for name in answered if name.startswith("access-control")]


def test_a_web_socket_is_closed_without_a_traceback(aws: LocalAws) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    status, _, _ = ask(aws, "GET", "/", {**upgrade, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="})
    assert status == 403


@pytest.fixture
def for_containers() -> Iterator[LocalAws]:
    with LocalAws(host="0.0.0.0", allow_hosts=["host.docker.internal", "AWS"]) as aws:
        yield aws


def test_containers_call_it_by_names_that_were_given(for_containers: LocalAws) -> None:
    aws = for_containers
    for host, expected in (("host.docker.internal:4567", 200), ("aws", 200), ("other", 403), ("0.0.0.0", 403)):
        assert ask(aws, "POST", "/", {"Host": host, **LIST_STREAMS}, b"{}")[0] == expected, host
    assert client(aws).list_streams()["StreamNames"] == []
    assert post(f"{aws.url}/_faults", b"[]", CONTROL)[0] == 200


def test_what_a_client_has_packed(aws: LocalAws) -> None:
    """SDKs pack large calls of CloudWatch."""
    scope = "AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/monitoring/aws4_request, SignedHeaders=host, Signature=x"
    fields = {"Content-Encoding": "gzip", "Authorization": scope, "Content-Type": "application/x-www-form-urlencoded"}
    call = b"Action=ListMetrics&Version=2010-08-01"
    assert ask(aws, "POST", "/", fields, gzip.compress(call))[0] == 200
    status, _, body = ask(aws, "POST", "/", fields, gzip.compress(call + b" " * (64 << 20), 1))
    assert status == 413
    assert b"67108864 bytes when unpacked" in body


def test_a_body_that_no_service_takes(aws: LocalAws) -> None:
    """It is refused before it is there: with 10 GB announced, and in chunks without an end."""
    address = ("127.0.0.1", int(aws.url.rpartition(":")[2]))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers("PutRecord", JSON).items())
    for kind, part in (
        ("Content-Length: 10000000000", bytes(1 << 20)),
        ("Transfer-Encoding: chunked", b"100000\r\n" + bytes(1 << 20) + b"\r\n"),
    ):
        with socket.create_connection(address, timeout=60) as link:
            link.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\n{head}{kind}\r\n\r\n".encode())
            with pytest.raises(ConnectionError):
                deque(map(link.sendall, repeat(part, 1000)), maxlen=0)
    stream = make_stream(aws)
    client(aws).put_record(StreamName=stream, Data=bytes(1_000_000), PartitionKey="k")
