"""Secrets of Iceberg's catalogs in commands: sent as they are meant, and never shown."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from fastkcl import http_bodies
from fastkcl.cli.main import cli
from fastkcl.masking import without_sent
from http_servers import request_of, server

rest = pytest.importorskip("fastkcl.tables.iceberg.rest")
catalog = pytest.importorskip("fastkcl.tables.iceberg.catalog")


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
    away = ("type=rest", "uri=http://127.0.0.1:1")
    assert "catalog: token has a line feed" in inspect(*away, "token=A\nSECRET")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__TOKEN", "A\nSECRET")
    assert "catalog: token (PYICEBERG_CATALOG__MINE__… or .pyiceberg.yaml) has" in inspect(*away, "name=mine")


def test_a_token_that_the_server_repeats_alone() -> None:
    def talk(link: socket.socket, _: int) -> None:
        sent = re.search("A-SECRET-TOKEN", request_of(link).decode())
        body = json.dumps({"error": {"message": f"nobody has {sent and sent[0]}", "type": "Denied", "code": 403}})
        link.sendall(f"HTTP/1.1 403 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with server(talk) as address:
        assert "nobody has …" in inspect("type=rest", f"uri=http://{address}", "token=A-SECRET-TOKEN")


def repeats(header: str, part: str) -> Callable[[socket.socket, int], None]:
    """A catalog that gives a token, and repeats what is sent with it."""

    def talk(link: socket.socket, _: int) -> None:
        request = request_of(link).decode()
        sent = re.search(rf"(?i)^{header}: .*?({part}\S*)", request, re.MULTILINE)
        is_asked = "/oauth/" in request.partition("\r\n")[0]
        given = {"access_token": "GIVEN-SECRET-TOKEN", "token_type": "bearer", "expires_in": 600}
        said = {"error": {"message": f"nobody has {sent and sent[1]}.", "type": "Denied", "code": 403}}
        said |= {"__type": "AccessDeniedException", "Message": said["error"]["message"]}
        body = json.dumps(given if is_asked else said)
        status = "200 OK" if is_asked else "403 No"
        link.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    return talk


def test_a_token_that_the_catalog_has_given() -> None:
    with server(repeats("Authorization", "GIVEN")) as address:
        said = inspect(
            "type=rest",
            f"uri=http://{address}",
            f"oauth2-server-uri=http://{address}/oauth/tokens",
            "credential=me:MY-SECRET-PART",
        )
    assert "nobody has …" in said


def configured(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str, **options: object) -> None:
    """Have a REST catalog `mine` in pyiceberg's file."""
    catalog = {"type": "rest", "uri": f"http://{address}", **options}
    (folder / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"mine": catalog}}, default_flow_style=False))
    monkeypatch.setenv("PYICEBERG_HOME", str(folder))


def oauth2(address: str) -> dict[str, object]:
    mine = {"client_id": "me", "client_secret": "MY-SECRET-PART", "token_url": f"http://{address}/oauth/tokens"}
    return {"type": "oauth2", "oauth2": mine}


def test_a_token_that_a_server_of_tokens_has_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(repeats("Authorization", "GIVEN")) as address:
        configured(monkeypatch, tmp_path, address, auth=oauth2(address))
        assert "nobody has …" in inspect("name=mine")


BODY = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
PACKED = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "silent": ("", b""),
    "status line": ("HTTP/1.1 200 ", b"O"),
    "headers": ("HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "body": (BODY, b" "),
    "packed": (PACKED, b"14\r\n" + gzip.compress(b"", mtime=0) + b"\r\n"),
}
"""How a server begins, and what it sends on and on."""


def talks_on(begins: str, drip: bytes, ends: threading.Event) -> Callable[[socket.socket, int], None]:
    def talk(link: socket.socket, _: int) -> None:
        request_of(link)
        with suppress(OSError):
            link.sendall(begins.encode())
            while not ends.wait(0.05):
                link.sendall(drip)

    return talk


@pytest.mark.parametrize("is_of_tokens", [False, True])
@pytest.mark.parametrize("name", DRIPS)
def test_a_server_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_of_tokens: bool
) -> None:
    """It was waited for without an end."""
    monkeypatch.setattr(rest, "SILENT_SECONDS" if name == "silent" else "ANSWER_SECONDS", 0.3)
    ends = threading.Event()
    with server(talks_on(*DRIPS[name], ends)) as address:
        configured(monkeypatch, tmp_path, address, **({"auth": oauth2(address)} if is_of_tokens else {}))
        said = inspect("name=mine")
        ends.set()
    expected = (
        "Read timed out. (read timeout=0.3)" if name == "silent" else "the catalog's answer takes more than 0.3 s"
    )
    assert expected in said
    assert "is the catalog reachable" in said


@pytest.mark.parametrize("name", [*DRIPS, "endless"])
def test_an_answer_of_glue_without_an_end(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(http_bodies, "_SECONDS", 5 if name == "endless" else 0.3)
    monkeypatch.setattr(http_bodies, "_MOST_BYTES", 1 << 20)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    ends = threading.Event()
    begins, drip = DRIPS["body"] if name == "endless" else DRIPS[name]
    if name == "endless":
        begins, drip = begins.replace("1000000", "9000000"), b" " * (1 << 20)
    with server(talks_on(begins, drip, ends)) as address:
        said = inspect("type=glue", "client.region=eu-west-1", f"glue.endpoint=http://{address}")
        ends.set()
    fault = "has more than 1 MiB" if name == "endless" else "takes more than 0.3 s"
    assert f"the answer of http://{address}/ to GetTable {fault}" in said


def test_a_catalog_chooses_no_code_and_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg takes properties of the server's as its own: this one would start a program."""
    os.mkfifo(tmp_path / "ca.pem")
    made = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(tmp_path / "made")]}}
    config = {"defaults": {"auth": made}, "overrides": {"auth": made, "ssl": {"cabundle": str(tmp_path / "ca.pem")}}}
    config["overrides"]["py-io-impl"] = "subprocess.Popen"

    def talk(link: socket.socket, _: int) -> None:
        is_config = b"/v1/config" in request_of(link).partition(b"\r\n")[0]
        body = json.dumps(config if is_config else {"error": {"message": "none", "type": "NoSuchTableException"}})
        status = "200 OK" if is_config else "404 No"
        link.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with server(talk) as address:
        configured(monkeypatch, tmp_path, address)
        inspect("name=mine")
        opened = catalog.open_catalog({"name": "mine"})
    assert not (tmp_path / "made").exists()
    assert opened.properties["py-io-impl"] == catalog._IO
    assert not {"auth", "ssl"} & set(opened.properties)
    given = {"py-io-impl": "subprocess.Popen", "s3.secret-access-key": "VENDED-SECRET-KEY"}  # of a table
    assert type(opened._load_file_io(given)).__name__ == "StoreFileIO"
    assert without_sent("no VENDED-SECRET-KEY") == "no …"


@pytest.mark.parametrize("expires", [600, "600", None])
def test_tokens_for_a_secret_that_is_not_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expires: object
) -> None:
    seen: list[str] = []

    def talk(link: socket.socket, _: int) -> None:
        request = request_of(link).decode()
        seen.extend(re.findall(r"(?i)^authorization: (.*?)\r", request, re.MULTILINE))
        is_asked = "/oauth/" in request.partition("\r\n")[0]
        given = {"access_token": "GIVEN-SECRET-TOKEN", **({} if expires is None else {"expires_in": expires})}
        body = json.dumps(given if is_asked else {"error": {"message": "no", "type": "Denied"}})
        status = "200 OK" if is_asked else "403 No"
        link.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password OTHER")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with server(talk) as address:
        auth = oauth2(address)
        auth["oauth2"] |= {"client_secret": "zażółć", **({"expires_in": 300} if expires is None else {})}  # type: ignore[operator]
        configured(monkeypatch, tmp_path, address, auth=auth)
        inspect("name=mine")
    assert seen[:2] == [f"Basic {b64encode('me:zażółć'.encode()).decode()}", "Bearer GIVEN-SECRET-TOKEN"]


@pytest.mark.parametrize("kind", ["rest", "glue"])
def test_a_sessions_token_of_the_catalogs_own(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "AKIA",
        "SECRET_ACCESS_KEY": "key",
        "SESSION_TOKEN": "OWN-SECRET-TOKEN",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with server(repeats("X-Amz-Security-Token", "OWN")) as address:
        signed = ("rest.sigv4-enabled=true", "rest.signing-name=glue", "rest.signing-region=eu-west-1")
        options = (f"uri=http://{address}", *signed) if kind == "rest" else (f"glue.endpoint=http://{address}",)
        said = inspect(f"type={kind}", "client.region=eu-west-1", *options)
    assert "nobody has …" in said


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


@pytest.mark.parametrize("what", ["cabundle", "client.cert", "client.key"])
def test_certificates_of_a_file_of_options_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    os.mkfifo(pipe := tmp_path / "ca.pem")
    trusted = {what: str(pipe)} if what == "cabundle" else {"client": {what.partition(".")[2]: str(pipe)}}
    configured(monkeypatch, tmp_path, "127.0.0.1:1", ssl=trusted)
    assert f"ca.pem (ssl.{what}) is a pipe, and it is read more than once: give a file" in inspect("name=mine")


def test_certificates_of_a_profile_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "ca.pem")
    (tmp_path / "config").write_text(f"[profile mine]\nca_bundle = {tmp_path / 'ca.pem'}\n")
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    said = inspect("type=glue", "glue.endpoint=https://127.0.0.1:1", "client.profile-name=mine")
    assert "ca.pem (ca_bundle of the profile) is a pipe" in said


FLOW = "catalog:\n  mine:\n    token: [SECRET\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLOW, "FlowMappingDisallowed in line 3: correct or remove it"),
        ("catalog:\n  mine:\n    token: SECRET\n   uri: x\n", "in line 4: correct or remove it"),
        ("catalog: SECRET\n", "Catalog configurations needs to be an object: mine"),
        ("catalog:\n  mine:\n    uri: \udcff\n", "UnicodeDecodeError"),
        (None, "Input/output error: correct"),
    ],
    ids=["flow", "indent", "no-object", "bytes", "unreadable"],
)
def test_a_file_of_pyiceberg_s_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    file = tmp_path / ".pyiceberg.yaml"
    if text is None:
        file.symlink_to("/proc/self/mem")
    else:
        file.write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    shown = inspect("name=mine")
    assert "pyiceberg cannot read its .pyiceberg.yaml" in shown
    assert said in shown


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("inspect", FLOW, "FlowMappingDisallowed in line 3: correct or remove it"),
        ("orphans", "manifest-cache-size: many\n", "manifest-cache-size should be an integer"),
    ],
)
def test_a_file_that_pyiceberg_reads_when_it_is_imported(tmp_path: Path, command: str, text: str, said: str) -> None:
    """It was a traceback."""
    (tmp_path / ".pyiceberg.yaml").write_text(text)
    args = [sys.executable, "-m", "fastkcl", "sink", command, "db.t", "--catalog", "name=mine"]
    env = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
    done = subprocess.run(args, capture_output=True, timeout=60, env=env, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "SECRET" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["token:SECRET", "=SECRET", "token SECRET"])
def test_what_is_no_property_is_not_shown(text: str) -> None:
    assert "must be NAME=VALUE" in inspect(text)
