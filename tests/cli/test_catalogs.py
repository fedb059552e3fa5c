"""Secrets of Iceberg's catalogs in commands: sent as they are meant, and never shown."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

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


@pytest.mark.parametrize("text", ["token:SECRET", "=SECRET", "token SECRET"])
def test_what_is_no_property_is_not_shown(text: str) -> None:
    assert "must be NAME=VALUE" in inspect(text)
