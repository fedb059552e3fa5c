"""Secrets of Iceberg's catalogs in commands: sent as they are meant, and never shown."""

from __future__ import annotations

import json
import os
import re
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from http_servers import request_of, server

pytest.importorskip("pyiceberg")


def echo(seen: list[str]) -> Callable[[socket.socket, int], None]:
    """A proxy that is being debugged: it answers with the request's headers."""

    def talk(link: socket.socket, _: int) -> None:
        lines = [line.partition(": ") for line in request_of(link).decode().split("\r\n") if ": " in line]
        headers = {name: value for name, _, value in lines}
        seen.append(headers.get("Authorization", ""))
        body = json.dumps({"headers": headers}).encode()
        head = f"HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        link.sendall(head.encode() + body)

    return talk


def inspect(*catalog: str) -> str:
    args = [part for text in catalog for part in ("--catalog", text)]
    done = CliRunner().invoke(cli, ["sink", "inspect", "db.t", *args])
    assert done.exit_code != 0
    assert "SECRET" not in done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize("end", ["", "\n", " \r\n"])
@pytest.mark.parametrize("variable", [False, True])
def test_a_token_as_files_have_it(monkeypatch: pytest.MonkeyPatch, end: str, variable: bool) -> None:
    seen: list[str] = []
    if variable:
        monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TOKEN", f"A-SECRET{end or ' '}")
    given = "name=mine" if variable else f"token=A-SECRET{end}"
    with server(echo(seen)) as address:
        inspect("type=rest", f"uri=http://{address}", given)
    assert set(seen) == {"Bearer A-SECRET"}


def test_a_token_that_no_request_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = ("type=rest", "uri=http://127.0.0.1:1")
    assert "catalog: token has a line feed" in inspect(*rest, "token=A\nSECRET")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TOKEN", "A\nSECRET")
    assert "catalog: token (PYICEBERG_CATALOG__MINE__… or .pyiceberg.yaml) has" in inspect(*rest, "name=mine")


def test_a_token_that_the_server_repeats_alone() -> None:
    def talk(link: socket.socket, _: int) -> None:
        sent = re.search("A-SECRET-TOKEN", request_of(link).decode())
        body = json.dumps({"error": {"message": f"nobody has {sent and sent[0]}", "type": "Denied", "code": 403}})
        link.sendall(f"HTTP/1.1 403 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with server(talk) as address:
        assert "nobody has …" in inspect("type=rest", f"uri=http://{address}", "token=A-SECRET-TOKEN")


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    """It took all memory there was."""
    pack = zlib.compressobj(wbits=31)
    monkeypatch.setattr("fastkcl.tables.iceberg.rest.MOST_BYTES", 8 << 20)

    def talk(link: socket.socket, _: int) -> None:
        request_of(link)
        coding = "Content-Encoding: gzip\r\n" if packed else ""
        link.sendall(f"HTTP/1.1 200 OK\r\n{coding}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(200):
            piece = b" " * (1 << 20)
            if packed:
                piece = pack.compress(piece) + pack.flush(zlib.Z_SYNC_FLUSH)
            link.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    with server(talk) as address:
        said = inspect("type=rest", f"uri=http://{address}")
    assert "the catalog's answer has more than 8 MiB" in said


@pytest.mark.parametrize("kind", ["rest", "glue"])
@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    """The clients would open it, and wait without an end."""
    os.mkfifo(tmp_path / "ca.pem")
    monkeypatch.setenv(name, str(tmp_path / "ca.pem"))
    said = inspect(f"type={kind}", "uri=https://127.0.0.1:1", "glue.endpoint=https://127.0.0.1:1")
    assert f"ca.pem ({name}) is a pipe, and it is read more than once: give a file" in said


@pytest.mark.parametrize("text", ["token:SECRET", "=SECRET", "token SECRET"])
def test_what_is_no_property_is_not_shown(text: str) -> None:
    assert "must be NAME=VALUE" in inspect(text)
