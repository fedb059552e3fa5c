"""The HTTP client of signed calls, against servers that speak well, badly, late and not at all."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest
from fastkcl.kinesis import http
from fastkcl.kinesis.http import Answer, Http, ProxyError
from http_servers import OK, answering, request_of, server


def body_of(answer: Answer) -> tuple[int, bytes]:
    return answer.status, bytes(answer.body)


def post(url: str, body: bytes = b"{}", **options: object) -> tuple[int, bytes]:
    with Http(url, **options) as client:  # type: ignore[arg-type]
        return client.post({"X-Test": "1"}, body, body_of)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, (200, b"ok")),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad", (400, b"bad")),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (200, b"")),
        (b"HTTP/1.1 204 No\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (200, b"ok")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", (200, b"until the end")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\nA\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
            (200, b"ok0123456789"),
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (200, b"")),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_an_answer_in_any_form_and_in_any_pieces(answer: bytes, expected: tuple[int, bytes], piece: int) -> None:
    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        for begin in range(0, len(answer), piece):
            link.sendall(answer[begin : begin + piece])

    with server(talk) as address:
        assert post(f"http://{address}") == expected


@pytest.mark.parametrize("size", [0, 65_536, 131_072, 131_073, 10_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_any_size(size: int, chunked: bool) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    if chunked:
        pieces = [content[begin : begin + 100_000] for begin in range(0, size, 100_000)]
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = head + b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, content)
    with server(answering(answer, answer)) as address, Http(f"http://{address}") as client:
        for _ in range(2):
            assert client.post({}, b"", body_of) == (200, content)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "a line that is no header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", "a line that is no header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "at most"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n", "at most"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "in the middle"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", "headers"),
        (b"", "in the middle"),
    ],
)
def test_what_is_no_answer(answer: bytes, said: str) -> None:
    with server(answering(answer)) as address, pytest.raises(ConnectionError, match=said):
        post(f"http://{address}")


def test_a_kept_connection_serves_again_and_is_replaced_when_closed() -> None:
    numbers = []

    def talk(link: socket.socket, number: int) -> None:
        for _ in range(3 if number == 0 else 1):
            if not request_of(link):
                return
            numbers.append(number)
            link.sendall(OK)

    with server(talk) as address, Http(f"http://{address}") as client:
        for _ in range(4):
            assert client.post({}, b"", body_of) == (200, b"ok")
        assert numbers == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "answer", [OK + b"more", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"]
)
def test_a_connection_with_something_left_is_not_kept(answer: bytes) -> None:
    numbers = []

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            numbers.append(number)
            link.sendall(answer)

    with server(talk) as address, Http(f"http://{address}") as client:
        assert [client.post({}, b"", body_of) for _ in range(2)] == [(200, b"ok")] * 2
        assert numbers == [0, 1]


def test_a_server_that_is_silent_or_slow_is_left_in_time() -> None:
    done = threading.Event()

    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        for _ in range(1000):
            if done.wait(0.05):
                return
            link.sendall(b"H" if number == 0 else b"")

    with server(talk) as address:
        for _ in range(2):
            began = monotonic()
            with pytest.raises(TimeoutError):
                post(f"http://{address}", timeout=0.4)
            assert monotonic() - began < 5
        done.set()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        post(f"http://127.0.0.1:{port}")


def test_the_request_has_what_it_was_given() -> None:
    seen = []

    def talk(link: socket.socket, number: int) -> None:
        seen.append(request_of(link))
        link.sendall(OK)

    with server(talk) as address, Http(f"http://{address}/path") as client:
        client.post({"X-Amz-Target": "K.ListShards"}, b'{"a":1}', body_of)
    assert seen == [
        f"POST /path HTTP/1.1\r\nHost: {address}\r\nContent-Length: 7\r\nX-Amz-Target: K.ListShards\r\n\r\n".encode()
        + b'{"a":1}'
    ]


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\ny", "a\ry"])
def test_a_header_with_a_line_end_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        Http("http://127.0.0.1:1").post({"X-Amz-Security-Token": value}, b"", body_of)


@pytest.mark.parametrize("url", ["ftp://x", "https://", "x:80", "http://user:secret@x"])
def test_a_url_that_is_none_of_a_service(url: str) -> None:
    with pytest.raises(ValueError, match="endpoint must be") as error:
        Http(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://kinesis.eu-central-1.amazonaws.com", "kinesis.eu-central-1.amazonaws.com"),
        ("https://x:443", "x"),
        ("https://x:8443", "x:8443"),
        ("http://[::1]:4566", "[::1]:4566"),
    ],
)
def test_the_host_header(url: str, host: str) -> None:
    assert Http(url).host == host


def test_a_reader_sees_the_body_and_nobody_after_it() -> None:
    with server(answering(OK)) as address, Http(f"http://{address}") as client:
        body = client.post({}, b"", lambda answer: answer.body)
    with pytest.raises(ValueError, match="released"):
        bytes(body)


def test_an_error_of_the_reader_closes_the_connection() -> None:
    numbers = []

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            numbers.append(number)
            link.sendall(OK)

    def fail(answer: Answer) -> None:
        raise KeyError(answer.status)

    with server(talk) as address, Http(f"http://{address}") as client:
        with pytest.raises(KeyError):
            client.post({}, b"", fail)
        assert client.post({}, b"", body_of) == (200, b"ok")
    assert numbers == [0, 1]


def test_threads_share_the_connections() -> None:
    numbers: set[int] = set()

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            numbers.add(number)
            link.sendall(OK)

    with server(talk) as address, Http(f"http://{address}") as client:

        def work() -> None:
            for _ in range(50):
                assert client.post({}, b"x" * 1000, body_of) == (200, b"ok")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(numbers) <= 8


def test_idle_connections_keep_a_few_large_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGE_KEPT", 1)
    size = 1 << 20
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, bytes(size))
    together = threading.Barrier(3)

    def read(body: Answer) -> int:
        together.wait(30)  # so that each has a connection
        return len(body.body)

    with server(answering(answer)) as address, Http(f"http://{address}") as client:
        threads = [threading.Thread(target=client.post, args=({}, b"", read)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(connection.is_large for connection in client._idle) == [False, False, True]


def test_a_forked_process_makes_connections_of_its_own() -> None:
    numbers = []

    def talk(link: socket.socket, number: int) -> None:
        while request_of(link):
            numbers.append(number)
            link.sendall(OK)

    with server(talk) as address:
        program = f"""
import os, sys
from fastkcl.kinesis.http import Http
client = Http("http://{address}")
body = lambda answer: bytes(answer.body)
assert client.post({{}}, b"", body) == b"ok"
child = os.fork()
assert client.post({{}}, b"", body) == b"ok"
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert client.post({{}}, b"", body) == b"ok"
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert sorted(numbers) == [0, 0, 0, 1]


# Proxies and TLS.


def test_a_proxy_is_given_the_whole_address_without_tls() -> None:
    seen = []

    def talk(link: socket.socket, number: int) -> None:
        seen.append(request_of(link))
        link.sendall(OK)

    service = "http://kinesis.example:4566"
    with server(talk) as address, Http(service, proxy=f"http://me:p%40ss@{address}") as client:
        assert client.post({}, b"", body_of) == (200, b"ok")
    assert seen[0].startswith(b"POST http://kinesis.example:4566/ HTTP/1.1\r\nHost: kinesis.example:4566\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in seen[0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost, with its key."""
    folder = tmp_path_factory.mktemp("certificate")
    made = folder / "localhost.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:kinesis.example"),
            *("-keyout", str(folder / "key.pem"), "-out", str(made)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    made.write_bytes(made.read_bytes() + (folder / "key.pem").read_bytes())
    return made


def local(address: str) -> str:
    """The same address by the name that the certificate has."""
    return f"https://localhost:{address.split(':')[1]}"


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_tls_with_a_trusted_certificate(certificate: Path, tls: ssl.SSLContext) -> None:
    with (
        server(answering(OK, OK), tls) as address,
        Http(local(address), ca_bundle=str(certificate)) as client,
    ):
        assert [client.post({}, b"", body_of) for _ in range(3)] == [(200, b"ok")] * 3


def test_tls_without_trust(tls: ssl.SSLContext) -> None:
    with server(answering(OK), tls) as address, pytest.raises(ssl.SSLCertVerificationError):
        post(local(address))


def test_tls_of_another_name(certificate: Path, tls: ssl.SSLContext) -> None:
    with server(answering(OK), tls) as address, pytest.raises(ssl.SSLCertVerificationError):
        post(f"https://{address}", ca_bundle=str(certificate))


def test_tls_through_a_proxy(certificate: Path, tls: ssl.SSLContext) -> None:
    seen = []

    def talk(link: socket.socket, number: int) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += link.recv(1)
        seen.append(head)
        link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with tls.wrap_socket(link, server_side=True) as inside:
            answering(OK)(inside, number)

    with (
        server(talk) as address,
        Http("https://kinesis.example", proxy=f"http://me:word@{address}", ca_bundle=str(certificate)) as client,
    ):
        assert client.post({}, b"", body_of) == (200, b"ok")
    assert seen[0].startswith(b"CONNECT kinesis.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6d29yZA==" in seen[0]


def test_a_proxy_that_refuses() -> None:
    def talk(link: socket.socket, number: int) -> None:
        link.recv(65536)
        link.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with server(talk) as address, pytest.raises(ProxyError, match="answered 407 to CONNECT kinesis.example"):
        post("https://kinesis.example", proxy=f"http://{address}")


@pytest.mark.parametrize("proxy", ["https://proxy:8080", "socks5://proxy", "http://"])
def test_a_proxy_that_is_none(proxy: str) -> None:
    with pytest.raises(ValueError, match="proxy must be"):
        Http("https://kinesis.example", proxy=proxy)


def test_no_password_is_shown() -> None:
    with pytest.raises(ValueError, match="proxy must be") as error:
        Http("https://kinesis.example", proxy="https://me:secret@proxy")
    assert "secret" not in str(error.value)
