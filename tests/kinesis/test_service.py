"""Signed calls without an event loop: against local AWS, and against services that refuse, are late or lie."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import CredentialRetrievalError
from fastkcl.kinesis import access, service
from fastkcl.kinesis.access import Access, AccessError
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.service import Service, ServiceError
from fastkcl.local_aws import Fault, LocalAws
from http_servers import Talk, request_of, server
from local_aws_helpers import SHARD_0, client, make_stream, new_name
from waiting import wait_until

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "verysecret"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys, and nothing else of this machine's."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def service_at(url: str, **options: Any) -> Service:
    return Service(Access(endpoint_url=url, region="us-east-1"), **options)


def answering_json(status: int, value: object, *headers: str) -> bytes:
    body = json.dumps(value).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(body)}",
        "Content-Type: application/x-amz-json-1.1",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def always(answer: bytes, seen: list[bytes] | None = None) -> Talk:
    def talk(link: socket.socket, number: int) -> None:
        while request := request_of(link):
            if seen is not None:
                seen.append(request)
            link.sendall(answer)

    return talk


# Calls.


def test_records_come_as_columns(aws: LocalAws) -> None:
    name = make_stream(aws)
    client(aws).put_records(StreamName=name, Records=[{"Data": bytes([n]), "PartitionKey": str(n)} for n in range(10)])
    calls = service_at(aws.url)
    shards, date = calls.json("ListShards", {"StreamName": name})
    assert [shard["ShardId"] for shard in shards["Shards"]] == [SHARD_0]
    assert date is not None
    assert abs(date - time.time() * 1000) < 60_000
    request = {"StreamName": name, "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
    answer, _ = calls.json("GetShardIterator", request)
    records, _ = calls.get_records(answer["ShardIterator"], 7, shard_id=SHARD_0, address={})
    assert [record.data for record in records.batch] == [bytes([n]) for n in range(7)]
    records, _ = calls.get_records(str(records.next_shard_iterator), 7, shard_id=SHARD_0, address={})
    assert [record.data for record in records.batch] == [bytes([n]) for n in range(7, 10)]
    calls.close()


def test_no_such_stream(aws: LocalAws) -> None:
    calls = service_at(aws.url)
    with pytest.raises(ServiceError, match="ResourceNotFoundException") as error:
        calls.json("ListShards", {"StreamName": new_name()})
    assert error.value.failure is Failure.NOT_FOUND
    calls.close()


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("AccessDeniedException", Failure.DENIED),
        ("ProvisionedThroughputExceededException", Failure.THROTTLED),
        ("ExpiredIteratorException", Failure.EXPIRED_ITERATOR),
        ("InternalFailure", Failure.UNAVAILABLE),
        ("KMSAccessDeniedException", Failure.DENIED),
        ("InvalidArgumentException", Failure.OTHER),
    ],
)
def test_kinds_of_failures(own_aws: LocalAws, name: str, failure: Failure) -> None:
    own_aws.faults(Fault("ListShards", name))
    calls = service_at(own_aws.url)
    with pytest.raises(ServiceError, match=name) as error:
        calls.json("ListShards", {"StreamName": "x"})
    assert (error.value.failure, error.value.code) == (failure, name)
    calls.close()


@pytest.mark.parametrize(
    ("answer", "failure", "said"),
    [
        (b"HTTP/1.1 503 Slow Down\r\nContent-Length: 4\r\n\r\nbusy", Failure.UNAVAILABLE, "busy"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n[]", Failure.OTHER, "Unknown"),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 2\r\n\r\n[]", Failure.THROTTLED, "status 429"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Failure.OTHER, "not an object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{x", Failure.OTHER, "Expecting"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", Failure.UNAVAILABLE, "in the middle"),
        (b"SSH-2.0\r\n\r\n", Failure.UNAVAILABLE, "not HTTP"),
        (
            answering_json(400, {"__type": "com.amazonaws.kinesis#LimitExceededException", "message": "m" * 9000}),
            Failure.THROTTLED,
            "LimitExceededException: mmm",
        ),
    ],
)
def test_answers_that_are_none(answer: bytes, failure: Failure, said: str) -> None:
    def talk(link: socket.socket, number: int) -> None:
        if request_of(link):
            link.sendall(answer)

    with server(talk) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match=said) as error:
            calls.json("ListShards", {})
        calls.close()
    assert error.value.failure is failure
    assert len(str(error.value)) < 3000


def test_a_body_that_is_no_answer_of_get_records() -> None:
    with server(always(answering_json(200, {"Records": [{"Data": "%"}]}))) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match=f"{SHARD_0}: an answer of GetRecords cannot be read") as error:
            calls.get_records("i", 1, shard_id=SHARD_0, address={})
        calls.close()
    assert error.value.failure is Failure.OTHER


def test_a_service_that_is_silent_and_one_that_is_not_there() -> None:
    def talk(link: socket.socket, number: int) -> None:
        while link.recv(65536):
            pass

    with server(talk) as address:
        calls = service_at(f"http://{address}", timeout=0.3)
        with pytest.raises(ServiceError, match="cannot be reached") as error:
            calls.json("ListShards", {})
        assert error.value.failure is Failure.UNAVAILABLE
    with pytest.raises(ServiceError, match="cannot be reached") as error:
        calls.json("ListShards", {})
    assert error.value.failure is Failure.UNAVAILABLE


def test_an_arn_goes_along_with_get_records() -> None:
    seen: list[bytes] = []
    arn = "arn:aws:kinesis:us-east-1:1:stream/s"
    with server(always(answering_json(200, {"Records": [], "MillisBehindLatest": 0}), seen)) as address:
        calls = service_at(f"http://{address}")
        calls.get_records("i", 5, shard_id=SHARD_0, address={"StreamARN": arn})
        calls.get_records("i", 5, shard_id=SHARD_0, address={"StreamName": "s"})
        calls.close()
    assert json.loads(seen[0].partition(b"\r\n\r\n")[2]) == {"ShardIterator": "i", "Limit": 5, "StreamARN": arn}
    assert json.loads(seen[1].partition(b"\r\n\r\n")[2]) == {"ShardIterator": "i", "Limit": 5}


# Signatures.


def checking_time(ahead: timedelta, seen: list[str]) -> Talk:
    """A service whose clock is so far ahead, and which refuses signatures of another time."""

    def talk(link: socket.socket, number: int) -> None:
        while request := request_of(link):
            found = re.search(rb"X-Amz-Date: (\S+)", request, re.IGNORECASE)
            assert found is not None
            signed = datetime.strptime(found[1].decode(), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            now = datetime.now(UTC) + ahead
            date = f"Date: {format_datetime(now, usegmt=True)}"
            if abs(now - signed) > timedelta(minutes=5):
                seen.append("refused")
                message = {"__type": "InvalidSignatureException", "message": "Signature expired"}
                link.sendall(answering_json(400, message, date))
            else:
                seen.append("taken")
                link.sendall(answering_json(200, {}, date))

    return talk


@pytest.mark.parametrize("ahead", [timedelta(hours=7), timedelta(days=-2)])
def test_the_service_has_another_time(ahead: timedelta, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    with server(checking_time(ahead, seen)) as address, caplog.at_level(logging.WARNING):
        calls = service_at(f"http://{address}")
        for _ in range(3):
            assert calls.json("ListShards", {})[0] == {}
        calls.close()
    assert seen == ["refused", "taken", "taken", "taken"]
    (line,) = [record.getMessage() for record in caplog.records]
    off = re.match(r"the clock of this machine is (-?\d+) s off: calls are signed with the service's time", line)
    assert off is not None
    assert abs(int(off[1]) + ahead.total_seconds()) <= 2


def test_calls_that_are_refused_together_for_their_time_are_all_repeated() -> None:
    both = threading.Barrier(2, timeout=60)

    def talk(link: socket.socket, number: int) -> None:
        date = f"Date: {format_datetime(datetime.now(UTC) + timedelta(hours=7), usegmt=True)}"
        assert request_of(link)
        both.wait()
        link.sendall(answering_json(403, {"__type": "SignatureDoesNotMatch"}, date))
        while request_of(link):
            link.sendall(answering_json(200, {}, date))

    with server(talk) as address, ThreadPoolExecutor(2) as pool:
        calls = service_at(f"http://{address}")
        assert [answer for answer, _ in pool.map(lambda _: calls.json("ListShards", {}), range(2))] == [{}, {}]
        calls.close()


def test_an_error_does_not_show_the_session_token() -> None:
    said = "it does not match. The Canonical String should have been 'POST\n/\nx-amz-security-token:TOKEN/+=\nx-amz'"
    with server(always(answering_json(403, {"__type": "SignatureDoesNotMatch", "message": said}))) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match="it does not match") as error:
            calls.json("ListShards", {})
        calls.close()
    assert "TOKEN" not in str(error.value)


def test_a_signature_that_is_wrong_for_another_reason_is_not_repeated() -> None:
    seen: list[bytes] = []
    date = f"Date: {format_datetime(datetime.now(UTC), usegmt=True)}"
    refused = answering_json(403, {"__type": "SignatureDoesNotMatch"}, date)
    with server(always(refused, seen)) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match="SignatureDoesNotMatch") as error:
            calls.json("ListShards", {})
        calls.close()
    assert error.value.failure is Failure.DENIED
    assert len(seen) == 1


def test_a_signature_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.auth
    from botocore.session import get_session

    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: moment)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    seen: list[bytes] = []
    with server(always(answering_json(200, {}), seen)) as address:
        calls = service_at(f"http://{address}")
        calls.json("DescribeStreamSummary", {"StreamName": "orders"})
        calls.close()
    signed = dict(line.split(": ", 1) for line in seen[0].decode().partition("\r\n\r\n")[0].split("\r\n")[1:])
    assert signed["X-Amz-Date"] == "20260102T030405Z"
    assert signed["X-Amz-Security-Token"] == "token"
    scope = "AKIDEXAMPLE/20260102/us-east-1/kinesis/aws4_request"
    names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
    assert re.fullmatch(
        rf"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature=[0-9a-f]{{64}}",
        signed["Authorization"],
    )
    request = botocore.awsrequest.AWSRequest(
        "POST",
        f"http://{address}/",
        data=seen[0].partition(b"\r\n\r\n")[2],
        headers={name: signed[name] for name in ("Content-Type", "X-Amz-Target", "Host")},
    )
    botocore.auth.SigV4Auth(get_session().get_credentials(), "kinesis", "us-east-1").add_auth(request)
    assert request.headers["Authorization"] == signed["Authorization"]


# Credentials.


def given_by(monkeypatch: pytest.MonkeyPatch, function: Callable[[], object]) -> str:
    monkeypatch.setattr(access, "given_in_a_test", function, raising=False)
    return "fastkcl.kinesis.access:given_in_a_test"


def keys_of(seen: list[bytes]) -> list[str]:
    found = [re.search(rb"Credential=([^/]+)/", request) for request in seen]
    return [match[1].decode() for match in found if match is not None]


def test_credentials_of_a_function_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def give() -> tuple[str, str, str | None, datetime]:
        asked.append(1)
        return f"KEY{len(asked)}", "s", None, datetime.now(UTC) + timedelta(seconds=2)

    seen: list[bytes] = []
    with server(always(answering_json(200, {}), seen)) as address:
        path = given_by(monkeypatch, give)
        calls = Service(Access(endpoint_url=f"http://{address}", region="r", credentials=path))
        for _ in range(3):
            calls.json("ListShards", {})
        calls.close()
    keys = keys_of(seen)
    assert len(set(keys)) == 3, keys


def test_credentials_of_a_function_that_do_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with server(always(answering_json(200, {}), seen)) as address:
        path = given_by(monkeypatch, lambda: ("KEY", "s", "t", None))
        calls = Service(Access(endpoint_url=f"http://{address}", region="r", credentials=path))
        calls.json("ListShards", {})
        calls.close()
    assert keys_of(seen) == ["KEY"]


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("fastkcl", None, "module:function"),
        ("nothing.here:f", None, "executors need the module"),
        ("fastkcl.kinesis.access:nothing", None, "executors need the module"),
        ("fastkcl.kinesis.access:ROLE_SESSION_NAME", None, "is not a function"),
        ("", ("a", "b"), "must return key, secret, token and expiry"),
        ("", ("a", "b", 3, None), "the token text or None"),
        ("", ("a", "b", None, datetime(2026, 1, 1)), "time zone"),  # noqa: DTZ001
    ],
)
def test_credentials_that_are_none(monkeypatch: pytest.MonkeyPatch, path: str, given: object, said: str) -> None:
    path = path or given_by(monkeypatch, lambda: given)
    calls = Service(Access(endpoint_url="http://127.0.0.1:1", region="r", credentials=path))
    with pytest.raises(ServiceError, match=said) as error:
        calls.json("ListShards", {})
    assert error.value.failure is Failure.DENIED


def test_a_process_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that it has printed is told."""
    (tmp_path / "config").write_text("[profile p]\ncredential_process = sh -c 'echo secret >&2; false'\n")
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "p")
    calls = Service(Access(endpoint_url="http://127.0.0.1:1", region="r"))
    with pytest.raises(ServiceError, match="credential_process of the profile 'p': it has failed") as caught:
        calls.json("ListShards", {})
    assert caught.value.failure is Failure.DENIED
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    calls = service_at("http://127.0.0.1:1")
    with pytest.raises(ServiceError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") as error:
        calls.json("ListShards", {})
    assert error.value.failure is Failure.DENIED


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_keys_of_a_file_that_were_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    seen: list[bytes] = []

    def keys(name: str) -> None:
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id={name}\naws_secret_access_key=s\n")

    def talk(link: socket.socket, number: int) -> None:
        while request := request_of(link):
            seen.append(request)
            is_good = keys_of([request]) == ["NEW"]
            link.sendall(answering_json(200, {}) if is_good else answering_json(400, {"__type": code}))

    keys("OLD")
    with server(talk) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match=code) as error:
            calls.json("ListShards", {})
        assert error.value.failure is Failure.DENIED
        keys("NEW")
        assert calls.json("ListShards", {})[0] == {}
        calls.close()
    assert keys_of(seen) == ["OLD", "OLD", "NEW"]


def test_a_service_of_roles_that_is_away_is_an_outage() -> None:
    role = Access(
        endpoint_url="http://127.0.0.1:1",
        region="us-east-1",
        role_arn="arn:aws:iam::123456789012:role/reader",
        sts_endpoint="http://127.0.0.1:1",
    )
    with pytest.raises(ServiceError, match="Could not connect") as error:
        Service(role).json("ListShards", {})
    assert error.value.failure is Failure.UNAVAILABLE


@pytest.mark.parametrize("was_there", [True, False])
def test_credentials_that_cannot_be_had_again(monkeypatch: pytest.MonkeyPatch, was_there: bool) -> None:
    def refuse() -> object:
        raise CredentialRetrievalError(provider="container", error_msg="no answer")

    found = SimpleNamespace(get_frozen_credentials=lambda: Credentials("KEY", "s"))
    monkeypatch.setattr(Access, "find_credentials", lambda self: found)
    with server(always(answering_json(200, {}))) as address:
        calls = service_at(f"http://{address}")
        if was_there:
            calls.json("ListShards", {})
        found.get_frozen_credentials = refuse
        with pytest.raises(ServiceError, match="no answer") as error:
            calls.json("ListShards", {})
        calls.close()
    assert error.value.failure is (Failure.UNAVAILABLE if was_there else Failure.DENIED)


def role_answer(key: str) -> bytes:
    expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>{expiry}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>""".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_role_is_assumed() -> None:
    seen: list[bytes] = []
    asked: list[bytes] = []
    with (
        server(always(answering_json(200, {}), seen)) as address,
        server(always(role_answer("ROLEKEY"), asked)) as sts,
    ):
        role = Access(
            endpoint_url=f"http://{address}",
            region="us-east-1",
            role_arn="arn:aws:iam::123456789012:role/reader",
            role_external_id="ext",
            role_session_name="nightly",
            sts_endpoint=f"http://{sts}",
        )
        calls = Service(role)
        for _ in range(3):
            calls.json("ListShards", {})
        calls.close()
    assert keys_of(seen) == ["ROLEKEY"] * 3
    assert len(asked) == 1
    for part in (b"RoleSessionName=nightly", b"ExternalId=ext", b"role%2Freader"):
        assert part in asked[0]


def test_a_role_that_is_denied() -> None:
    body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
    denied = b"HTTP/1.1 403 No\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    arn = "arn:aws:iam::123456789012:role/reader"
    with server(always(denied)) as sts:
        calls = Service(
            Access(endpoint_url="http://127.0.0.1:1", region="r", role_arn=arn, sts_endpoint=f"http://{sts}")
        )
        with pytest.raises(ServiceError, match=f"sts:AssumeRole on {arn} is denied") as error:
            calls.json("ListShards", {})
    assert error.value.failure is Failure.DENIED


@pytest.mark.parametrize(
    "said",
    [
        "X-Amz-Security-Token: SESSIONTOKEN/+=",
        '{"headers": {"x-amz-security-token": "SESSIONTOKEN/+="}}',
        "the request had SESSIONTOKEN/+= and verysecret",
        f"{'x' * 1_990}SESSIONTOKEN/+=",
        '{"Authorization": "AWS4-HMAC-SHA256 Credential=SESS/us-east-1, Signature=0123"}',
        '{"message": "no {\\"Authorization\\": \\"AWS4-HMAC-SHA256 Credential=SESS, Signature=0123\\"}"}',
    ],
)
def test_neither_token_nor_secret_is_in_what_a_proxy_says(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SESSIONTOKEN/+=")
    body = said.encode()
    refused = b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with server(always(refused)) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match="status 403") as error:
            calls.json("ListShards", {})
        calls.close()
    assert "SESS" not in str(error.value)
    assert "verysecret" not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 No\r\nContent-Length: 96100\r\n\r\n" + b"%s " * 100,
        b'HTTP/1.1 400 No\r\nContent-Length: 96115\r\n\r\n{"message": "' + b"%s " * 100 + b'"}',
        b"%s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n%s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n\r\n",
    ],
)
def test_no_part_of_a_long_token_is_shown(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    token = "IQoJb3JpZ2lu" * 80
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    with server(always(answer.replace(b"%s", token.encode()))) as address:
        calls = service_at(f"http://{address}")
        with pytest.raises(ServiceError, match="…") as error:
            calls.json("ListShards", {})
        calls.close()
    assert "IQoJ" not in str(error.value)


@pytest.mark.parametrize("url", ["http://user:S/SECRET@127.0.0.1:1", "http://user:SECRET@h:port", "http://h:SECRET"])
def test_an_endpoint_that_is_none_is_not_shown(url: str) -> None:
    with pytest.raises(AccessError) as error:
        Service(Access(endpoint_url=url, region="r"))
    assert "S/" not in str(error.value)
    assert "SECRET" not in str(error.value)


def failure_of_a_call(calls: Service) -> ServiceError | None:
    try:
        calls.json("ListShards", {})
    except ServiceError as error:
        return error
    return None


@pytest.mark.parametrize("was_there", [True, False])
def test_a_function_of_credentials_that_fails(monkeypatch: pytest.MonkeyPatch, was_there: bool) -> None:
    asked: list[int] = []

    def give() -> tuple[str, str, None, datetime]:
        asked.append(1)
        if len(asked) > was_there:
            raise RuntimeError("the vault is sealed")
        return "KEY", "s", None, datetime.now(UTC) + timedelta(seconds=10.5)  # anew from 10 s before it on

    path = given_by(monkeypatch, give)
    with server(always(answering_json(200, {}))) as address:
        calls = Service(Access(endpoint_url=f"http://{address}", region="r", credentials=path))
        if was_there:
            calls.json("ListShards", {})
        error = wait_until(lambda: failure_of_a_call(calls), "the function's failure")
        assert error is not None
        calls.close()
    assert f"credentials={path} has failed: RuntimeError: the vault is sealed" in str(error)
    assert error.failure is (Failure.UNAVAILABLE if was_there else Failure.DENIED)


@pytest.mark.parametrize(("seconds", "said"), [(None, None), (-5, "have expired")])
def test_new_credentials_that_do_not_expire_or_have(
    monkeypatch: pytest.MonkeyPatch, seconds: int | None, said: str | None
) -> None:
    given = [
        datetime.now(UTC) + timedelta(seconds=2),
        None if seconds is None else datetime.now(UTC) + timedelta(0, seconds),
    ]
    path = given_by(monkeypatch, lambda: ("KEY", "s", None, given.pop(0) if len(given) > 1 else given[0]))
    with server(always(answering_json(200, {}))) as address:
        calls = Service(Access(endpoint_url=f"http://{address}", region="r", credentials=path))
        if said is None:
            assert [calls.json("ListShards", {})[0] for _ in range(3)] == [{}] * 3
        else:
            with pytest.raises(ServiceError, match=said):
                calls.json("ListShards", {})
        calls.close()


def test_a_role_of_keys_that_were_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    asked: list[bytes] = []
    body = b"<ErrorResponse><Error><Code>InvalidClientTokenId</Code><Message>no</Message></Error></ErrorResponse>"
    refused = b"HTTP/1.1 403 No\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def keys(name: str) -> None:
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id={name}\naws_secret_access_key=s\n")

    def roles(link: socket.socket, number: int) -> None:
        while request := request_of(link):
            asked.append(request)
            is_good = keys_of([request]) == ["NEW"]
            link.sendall(role_answer("ROLEKEY") if is_good else refused)
            keys("NEW")

    keys("OLD")
    arn = "arn:aws:iam::123456789012:role/reader"
    with server(always(answering_json(200, {}))) as address, server(roles) as sts:
        calls = Service(
            Access(endpoint_url=f"http://{address}", region="r", role_arn=arn, sts_endpoint=f"http://{sts}")
        )
        assert calls.json("ListShards", {})[0] == {}
        calls.close()
    assert keys_of(asked) == ["OLD", "NEW"]


def test_a_service_of_roles_that_hangs_is_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert access.ROLE_TIMEOUT <= 10
    monkeypatch.setattr(access, "ROLE_TIMEOUT", 0.5)
    silent = threading.Event()

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            silent.wait(60)

    arn = "arn:aws:iam::123456789012:role/reader"
    began = time.monotonic()
    try:
        with server(talk) as sts:
            calls = Service(
                Access(endpoint_url="http://127.0.0.1:1", region="r", role_arn=arn, sts_endpoint=f"http://{sts}")
            )
            with pytest.raises(ServiceError, match="Read timeout") as error:
                calls.json("ListShards", {})
            silent.set()
    finally:
        silent.set()
    assert error.value.failure is Failure.UNAVAILABLE
    assert time.monotonic() - began < 10


def test_a_forked_process_goes_on(aws: LocalAws) -> None:
    name = make_stream(aws)
    program = f"""
import os
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.service import Service
calls = Service(Access(endpoint_url={aws.url!r}, region="us-east-1"))
for n in range(2):
    assert len(calls.json("ListShards", {{"StreamName": {name!r}}})[0]["Shards"]) == 1
    if n == 0:
        child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_access_travels_and_holds_no_secret() -> None:
    given = Access(region="r", role_arn="a", credentials="m:f")
    assert pickle.loads(pickle.dumps(given)) == given
    calls = service_at("http://127.0.0.1:1")
    with pytest.raises(ServiceError) as error:
        calls.json("ListShards", {})
    assert "verysecret" not in f"{given!r} {calls!r} {error.value!r} {pickle.dumps(given)!r}"


# Where the service is.


def test_the_endpoint_is_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Access(region="eu-central-1").endpoint()
    assert (found.url, found.region) == ("https://kinesis.eu-central-1.amazonaws.com", "eu-central-1")
    assert found.proxy is None
    assert Path(str(found.ca_bundle)).exists()
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    assert Access(region="us-east-1").endpoint().url == "https://kinesis-fips.us-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "https://vpce-1.kinesis.us-east-1.vpce.amazonaws.com")
    monkeypatch.delenv("AWS_USE_FIPS_ENDPOINT")
    assert Access().endpoint().url == "https://vpce-1.kinesis.us-east-1.vpce.amazonaws.com"


def test_proxies_are_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert Access(region="r").endpoint().proxy == "http://proxy:3128"
    monkeypatch.setenv("NO_PROXY", "kinesis.r.amazonaws.com")
    assert Access(region="r").endpoint().proxy is None


def test_a_ca_bundle_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    with pytest.raises(AccessError, match="there is no CA bundle"):
        Access(region="r").endpoint()
    bundle.touch()
    assert Access(region="r").endpoint().ca_bundle == str(bundle)
    assert Access(region="r", endpoint_url="http://127.0.0.1:1").endpoint().ca_bundle is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Access(), "region"),
        (Access(region="not a region"), "not a region"),
        (Access(region="r", endpoint_url="nonsense"), "nonsense"),
    ],
)
def test_an_access_that_cannot_be(monkeypatch: pytest.MonkeyPatch, given: Access, said: str) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(AccessError, match=said):
        Service(given)


def test_dates_that_are_none() -> None:
    assert service._date_of("yesterday") is None
    assert service._date_of("") is None
    assert service._date_of("Thu, 01 Jan 1970 00:00:01 GMT") == 1000
