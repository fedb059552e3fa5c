"""The way of registries' calls: TLS by the certificates that are trusted, proxies, and drips within both."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from fastkcl.payloads.registries import ConfluentRegistry, GlueRegistry
from fastkcl.payloads.registries.answers import AwayError, UnusableError
from fastkcl.payloads.registries.confluent import ConfluentClient
from fastkcl.payloads.registries.glue import GlueClient
from fastkcl.payloads.registries.registry import Client
from http_servers import request_of, server

SCHEMA = '"long"'
ID = "5a1f6c3e-1111-4222-8333-abcdefabcdef"
SECONDS = 0.4
"""Of one answer, where it drips."""
PATIENT = 20.0


def answer(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def talk(link: socket.socket, _: int) -> None:
    """Both services: each answer has what either wants."""
    request_of(link)
    link.sendall(answer({"schema": SCHEMA, "SchemaDefinition": SCHEMA, "DataFormat": "AVRO", "SchemaVersionId": ID}))


@pytest.mark.parametrize(
    "said",
    [
        b"SECRET-TOKEN\r\n\r\n",
        b"HTTP/SECRET-TOKEN 200 OK\r\n\r\n",
        b"HTTP/1.1 SECRET-TOKEN\r\n\r\n",
        answer({"schemaType": "SECRET-TOKEN", "schema": SCHEMA}),
        answer({"schema": SCHEMA, "references": [{"name": "SECRET-TOKEN", "subject": 1}]}),
    ],
)
def test_no_token_that_a_registry_repeats(said: bytes) -> None:
    def repeat(link: socket.socket, _: int) -> None:
        request_of(link)
        link.sendall(said)

    with server(repeat) as address, pytest.raises((AwayError, UnusableError), match="…") as raised:
        ConfluentClient(ConfluentRegistry(f"http://{address}", token="SECRET-TOKEN")).by_id("1")
    assert "SECRET" not in str(raised.value)


def drip(link: socket.socket, _: int) -> None:
    request_of(link)
    link.settimeout(0.02)
    link.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        try:
            if not link.recv(1):
                return
        except TimeoutError:
            link.sendall(b"x")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost, with its key."""
    made = tmp_path_factory.mktemp("certificate") / "localhost.pem"
    key = made.with_name("key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:registry.example"]
    subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True, timeout=60)
    made.write_bytes(made.read_bytes() + key.read_bytes())
    return made


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "local")


def glue(url: str) -> GlueClient:
    return GlueClient(GlueRegistry(endpoint_url=url, region="us-east-1"), longest=PATIENT)


def test_tls_by_the_certificates_that_are_given(
    certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(talk, tls) as address:
        url = f"https://localhost:{address.split(':')[1]}"
        assert ConfluentClient(ConfluentRegistry(url, ca_bundle=str(certificate)), PATIENT).by_id("7").text == SCHEMA
        clients: list[Client] = [ConfluentClient(ConfluentRegistry(url), PATIENT), glue(url)]
        for client in clients:
            with pytest.raises(AwayError, match="CERTIFICATE_VERIFY_FAILED"):
                client.by_id(ID)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        assert glue(url).by_id(ID).text == SCHEMA
        with pytest.raises(AwayError, match="CERTIFICATE_VERIFY_FAILED"):
            ConfluentClient(ConfluentRegistry(f"https://{address}", ca_bundle=str(certificate)), PATIENT).by_id("7")


def test_an_answer_that_drips_through_tls(certificate: Path, tls: ssl.SSLContext) -> None:
    with server(drip, tls) as address:
        url = f"https://localhost:{address.split(':')[1]}"
        with pytest.raises(AwayError, match=r"may take 0\.4 s"):
            ConfluentClient(ConfluentRegistry(url, ca_bundle=str(certificate)), SECONDS).by_id("7")


def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def proxy(link: socket.socket, number: int) -> None:
        seen.append(link.recv(4096, socket.MSG_PEEK).split(b"\r\n")[0])
        talk(link, number)

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with server(proxy) as address:
        monkeypatch.setenv("http_proxy", f"http://{address}")
        assert ConfluentClient(ConfluentRegistry("http://registry.example"), PATIENT).by_id("7").text == SCHEMA
        assert glue("http://glue.example").by_id(ID).text == SCHEMA
    assert seen == [b"GET http://registry.example/schemas/ids/7 HTTP/1.1", b"POST http://glue.example/ HTTP/1.1"]


def test_a_tunnel_of_a_proxy_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with server(drip) as address:
        monkeypatch.setenv("https_proxy", f"http://{address}")
        with pytest.raises(AwayError, match=r"may take 0\.4 s"):
            ConfluentClient(ConfluentRegistry("https://registry.example"), SECONDS).by_id("7")
