"""An object store of a private authority, whose keys expire and which denies some methods.

It forwards to local AWS, which believes every key and grants everything.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastkcl.tables import S3Storage
from fault_proxy import NOT_FORWARDED, answer, forwarded

SECRET = "s3cret-of-mine"
_KEY = re.compile(r"Credential=([^/]+)/")
_LIVE_SECONDS = 60


class GuardedStore:
    """A store for one test.

    Args:
        upstream: the address of local AWS.
        folder: for its certificates and the credentials of now.
    """

    def __init__(self, upstream: str, folder: Path) -> None:
        self.upstream = upstream
        self.ca = folder / "ca.pem"
        self.denied: set[str] = set()
        """Methods that nobody may call."""
        self.refused: list[str] = []
        """What was: method and code."""
        self.url = ""
        self.last = ""
        """The key of the newest request."""
        self._folder = folder
        self._number = 0
        self._valid: set[str] = set()
        _make_certificates(folder)
        self.renew()

    def renew(self) -> None:
        """Give out new keys; those before are good for a while."""
        self._number += 1
        self._valid.add(self.key)
        expires = datetime.now(UTC) + timedelta(seconds=_LIVE_SECONDS)
        keys = {"AccessKeyId": self.key, "SecretAccessKey": SECRET, "SessionToken": "token", "Version": 1}
        (self._folder / "keys.json").write_text(json.dumps(keys | {"Expiration": expires.isoformat()}))

    def expire(self) -> None:
        """Refuse all keys but the newest."""
        self._valid = {self.key}

    @property
    def key(self) -> str:
        """The newest one."""
        return f"key{self._number}"

    def use_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have a program give out the keys, as a company's does: ``credential_process`` of the default profile."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        program = self._folder / "keys.py"
        program.write_text(f"print(open({str(self._folder / 'keys.json')!r}).read())\n")
        config = self._folder / "config"
        config.write_text(f"[default]\nregion = us-east-1\ncredential_process = {sys.executable} {program}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(self._folder / "none"))

    def storage(self, **options: Any) -> S3Storage:
        """How a user reaches it, with the keys of now."""
        return S3Storage(
            **{"endpoint": self.url, "ca": self.ca, "access_key": self.key, "secret_key": SECRET, **options}
        )

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """The store's answer, or a refusal."""
        key = _KEY.search(headers.get("authorization", ""))
        self.last = "" if key is None else key[1]
        if self.last not in self._valid:
            return self._refuse(method, 400, "ExpiredToken")
        if method in self.denied:
            return self._refuse(method, 403, "AccessDenied")
        return forwarded(urlsplit(self.upstream).netloc, method, path, headers, body)

    def _refuse(self, method: str, status: int, code: str) -> tuple[int, Any, bytes]:
        self.refused.append(f"{method} {code}")
        return status, [("content-type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode()


@contextmanager
def guarded_store(upstream: str, folder: Path) -> Iterator[GuardedStore]:
    """A store that listens at its `url`."""
    store = GuardedStore(upstream, folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients refuse the certificate
    store.url = f"https://localhost:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(store: GuardedStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 60

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED}
            answer(self, *store.answer(self.command, self.path, headers, body))

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - as http.server has them

        def log_message(self, *_: Any) -> None: ...

    return Handler


def _make_certificates(folder: Path) -> None:
    """An authority of our own, and a certificate of localhost that it has signed."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=ours", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
