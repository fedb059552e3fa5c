"""Files of a table on S3, and on stores that speak its protocol, by obstore (object_store).

    create   PUT with If-None-Match: *; one request, because multipart uploads cannot be conditional
    claim    an empty object with the text in its metadata: polars refuses a folder with files of other kinds
    files    pages of 1,000 keys

412 (it exists) and 409 (another request for it is running) come as one error, so after False it may still be absent.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import urlsplit

from fastkcl import ConfigurationError
from fastkcl.checks import check_sendable
from fastkcl.credentials import text_of
from fastkcl.http_bodies import bound_session
from fastkcl.masking import remember, without_sent
from fastkcl.stdio.given_files import MOST_CERTIFICATES, check_bundle, read_given
from fastkcl.tables.base import SinkError
from fastkcl.tables.store import Entry, Found, StoreError, is_visible

__all__ = ["ObjectStore", "S3Storage"]

_TEXT: Final = "fastkcl"  # of an object's metadata
_REQUEST_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 5
_RETRY_SECONDS: Final = 60
_CREDENTIAL_SECONDS: Final = 300
_READ_BYTES: Final = 256 * 1024
_AT_ONCE: Final = 16  # requests
_KEY: Final = re.compile(r"[A-Za-z0-9!_.*'()=@/-]*", re.ASCII)  # what no reader decodes
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_REMEDIES: Final = {
    "PermissionDeniedError": (
        "the credentials lack a right: a table needs s3:PutObject, s3:GetObject and s3:ListBucket of its bucket"
    ),
    "UnauthenticatedError": "the credentials are refused: are they expired, or those of another endpoint?",
    "FileNotFoundError": "does the bucket exist, at this endpoint and in this region?",
    "PanicException": "is the endpoint a URL, as http://127.0.0.1:9000, and the region a name?",
}
_EXPIRED: Final = re.compile("ExpiredToken|RequestExpired|TokenRefreshRequired")
_CERTIFICATE: Final = re.compile("invalid peer certificate|UnknownIssuer")  # as rustls has it
_PROVEN: Final[set[tuple[str | None, str]]] = set()  # endpoints and buckets, of this process

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Storage:
    """How an ``s3://`` URL is reached. What is unset is found as boto3 finds it, if that is installed; otherwise in the
    environment, or from the container or instance.

    Raises:
        ValueError: an endpoint that is not a URL, a key without its secret, or one that no request can carry.
    """  # noqa: D205 - one sentence of two lines

    endpoint: str | None = None
    """Of a store that is not AWS: ``"http://127.0.0.1:9000"``. FASTKCL_S3_ENDPOINT, AWS_ENDPOINT_URL_S3 or
    AWS_ENDPOINT_URL if None."""
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    ca: str | os.PathLike[str] | None = None
    """File with the certificate (PEM) of a private authority that has signed the endpoint's."""

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            _check_endpoint(self.endpoint, "endpoint")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key: give both, or none")
        for name in ("access_key", "secret_key", "session_token"):
            if (value := getattr(self, name)) is not None:
                check_sendable(name, value, is_header=name != "secret_key")
        remember(self.session_token)

    def __repr__(self) -> str:
        """Without secrets."""
        return f"S3Storage(endpoint={self.endpoint!r}, region={self.region!r})"


class ObjectStore:
    """Keys of a bucket below a prefix.

    Args:
        url: ``s3://bucket/prefix``.
        storage: how it is reached.

    Raises:
        ValueError: another URL, or one with characters that readers decode differently.
    """

    def __init__(self, url: str, storage: S3Storage) -> None:
        parts = urlsplit(url)
        prefix = url.partition("://")[2].partition("/")[2].strip("/")
        if parts.scheme != "s3":
            raise ValueError(f"{url}: must be a path, or a URL as s3://bucket/table")
        if not _BUCKET.fullmatch(parts.netloc):
            raise ValueError(f"{url}: {parts.netloc!r} is not a name of a bucket: s3://bucket/table")
        if not prefix or not _KEY.fullmatch(prefix) or "//" in prefix or {".", ".."} & set(prefix.split("/")):
            raise ValueError(
                f"{url}: the table needs a name in its bucket, of letters, digits and !_.*'()=@- alone, which readers"
                " do not decode"
            )
        self.url = f"s3://{parts.netloc}/{prefix}"
        self._bucket = parts.netloc
        self._prefix = prefix
        self._storage = storage
        self._opened: Any = None

    @property
    def identity(self) -> str:
        """See `Store.identity`."""
        return f"{self._endpoint() or ''} {self.url}"

    def create(self, key: str, body: bytes | memoryview) -> bool:
        """See `Store.create`."""
        return self._put(key, body, {})

    def claim(self, key: str, text: str) -> str:
        """See `Store.claim`."""
        for _ in range(3):
            self._put(key, b"", self.metadata_of(text))
            there = self.claimed(key)
            if there is not None:
                return there
        raise StoreError(f"{self._of(key)}: a conditional PUT is refused, and there is no object: try again")

    @staticmethod
    def metadata_of(text: str) -> dict[str, str]:
        """The metadata of an object that claims a table with a text."""
        return {_TEXT: text}

    def claimed(self, key: str) -> str | None:
        """See `Store.claimed`."""

        def call(store: Any) -> str | None:  # noqa: ANN401 - of obstore
            import obstore

            return str(obstore.get(store, self._key(key)).attributes.get(_TEXT, ""))

        return self._unless_absent("GET", key, call)

    def replace(self, key: str, body: bytes) -> None:
        """See `Store.replace`."""

        def call(store: Any) -> None:  # noqa: ANN401 - of obstore
            store.put(self._key(key), body, use_multipart=False)

        self._call("PUT", key, call)

    def remove(self, key: str) -> None:
        """See `Store.remove`."""
        self._call("DELETE", key, lambda store: store.delete(self._key(key)))

    def read(self, key: str, most: int) -> bytes | None:
        """See `Store.read`."""

        def call(store: Any) -> bytes:  # noqa: ANN401 - of obstore
            got = store.get(self._key(key))
            if got.meta["size"] > most:
                raise SinkError(f"{self._of(key)}: damaged, {got.meta['size']:,} bytes, and at most {most:,} are read")
            return bytes(got.bytes())

        return self._unless_absent("GET", key, call)

    def open(self, key: str) -> BinaryIO | None:
        """See `Store.open`."""
        (size,) = self.sizes([key])
        return None if size is None else BufferedReader(_Ranges(self, key, size), _READ_BYTES)

    def part(self, key: str, begin: int, end: int) -> bytes | None:
        """The bytes [begin, end) of a file, which has them; None if there is none."""

        def call(store: Any) -> bytes:  # noqa: ANN401 - of obstore
            return bytes(store.get_range(self._key(key), start=begin, end=end))

        return self._unless_absent("GET", key, call) if end > begin else b""

    def tail(self, key: str, count: int) -> bytes | None:
        """See `Store.tail`."""

        def call(store: Any) -> bytes:  # noqa: ANN401 - of obstore
            import obstore

            size = obstore.head(store, self._key(key))["size"]
            begin = max(0, size - count)
            return bytes(obstore.get_range(store, self._key(key), start=begin, end=size)) if size else b""

        return self._unless_absent("GET", key, call)

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        """See `Store.sizes`: a HEAD each, some at once."""

        def size(key: str) -> int | None:
            return self._unless_absent("GET", key, lambda store: int(store.head(self._key(key))["size"]))

        if len(keys) < 2:
            return [size(key) for key in keys]
        self._store()  # opened once
        with ThreadPoolExecutor(min(len(keys), _AT_ONCE)) as pool:
            return list(pool.map(size, keys))

    def files(self, folder: str, after: str = "") -> list[Entry]:
        """See `Store.files`."""
        objects = self._listed_after(folder, after) if after else self._listed(folder)["objects"]
        cut = len(self._prefix) + 1
        return sorted(Entry(each["path"][cut:], each["size"]) for each in objects)

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        return sorted(each.rstrip("/").rpartition("/")[2] for each in self._listed(folder)["common_prefixes"])

    def walk(self) -> list[Found]:
        """See `Store.walk`."""
        pages = self._call("LIST", "", lambda store: list(store.list(self._key(""))))
        cut = len(self._prefix) + 1
        found = (
            Found(each["path"][cut:], each["size"], each["last_modified"].timestamp())
            for page in pages
            for each in page
        )
        return sorted(each for each in found if is_visible(each.key))

    def settle(self, key: str, *others: str) -> None:
        """Does nothing: a stored object is durable."""

    def prove(self) -> None:
        """Create an object twice."""
        place = (self._endpoint(), self._bucket)
        if place in _PROVEN:
            return
        key = f"_fastkcl/probe-{secrets.token_hex(8)}"
        twice = self.create(key, b"") and self.create(key, b"")
        with suppress(StoreError):  # a role need not have the right to delete
            self._call("DELETE", key, lambda store: store.delete(self._key(key)))
        if twice:
            raise SinkError(
                f"{self.url}: this store ignores If-None-Match: two writers would both succeed. A table cannot be kept"
                " there"
            )
        _PROVEN.add(place)

    def library_options(self) -> dict[str, str]:
        """How deltalake reaches the bucket, with the credentials of now."""
        storage = self._storage
        endpoint = self._endpoint()
        options: dict[str, str | None] = {
            "AWS_REGION": storage.region,
            "AWS_ACCESS_KEY_ID": storage.access_key,
            "AWS_SECRET_ACCESS_KEY": storage.secret_key,
            "AWS_SESSION_TOKEN": storage.session_token,
        }
        if storage.access_key is None:
            provider, region = _provider()
            options["AWS_REGION"] = storage.region or region
            if provider is not None:
                found = provider()
                options["AWS_ACCESS_KEY_ID"] = found["access_key_id"]
                options["AWS_SECRET_ACCESS_KEY"] = found["secret_access_key"]
                options["AWS_SESSION_TOKEN"] = found.get("token")
        if endpoint is not None:
            options["AWS_ENDPOINT_URL"] = endpoint
            options["AWS_REGION"] = options["AWS_REGION"] or "us-east-1"
            options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false"
            if endpoint.startswith("http://"):
                options["AWS_ALLOW_HTTP"] = "true"
        return {name: value for name, value in options.items() if value is not None}

    @property
    def has_private_authority(self) -> bool:
        """Whether the endpoint's certificate is known by a file alone, which deltalake cannot be given."""
        return self._storage.ca is not None

    def _put(self, key: str, body: bytes | memoryview, attributes: dict[str, str]) -> bool:
        def call(store: Any) -> bool:  # noqa: ANN401 - of obstore
            import obstore
            from obstore.exceptions import AlreadyExistsError, PreconditionError

            try:
                obstore.put(
                    store, self._key(key), body, mode="create", use_multipart=False, attributes=attributes or None
                )
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self._call("PUT", key, call)

    def _listed(self, folder: str) -> Any:  # noqa: ANN401 - of obstore
        def call(store: Any) -> Any:  # noqa: ANN401
            import obstore

            return obstore.list_with_delimiter(store, self._key(folder))

        return self._call("LIST", folder, call)

    def _listed_after(self, folder: str, after: str) -> list[Any]:
        """Objects in a folder itself whose names come after one; the service begins there, whatever is before."""

        def call(store: Any) -> list[Any]:  # noqa: ANN401 - of obstore
            pages = store.list(self._key(folder), offset=self._key(f"{folder}/{after}"))
            return [each for page in pages for each in page]

        cut = len(self._key(folder)) + 1
        return [each for each in self._call("LIST", folder, call) if "/" not in each["path"][cut:]]

    def _unless_absent(self, what: str, key: str, function: Callable[[Any], T]) -> T | None:
        try:
            return self._call(what, key, function)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._error(what, key, error) from None
            return None

    def _call(self, what: str, key: str, function: Callable[[Any], T]) -> T:
        """Call obstore.

        Raises:
            FileNotFoundError: there is nothing of this name, or no bucket.
            StoreError: it was refused, or there was no answer.
        """
        try:
            return function(self._store())
        except (KeyboardInterrupt, SystemExit, GeneratorExit, ConfigurationError, SinkError):
            raise
        except FileNotFoundError as error:  # obstore's own for GET and HEAD
            if what == "GET":
                raise
            raise self._error(what, key, error) from None
        except BaseException as error:  # a panic in Rust is not an Exception
            raise self._error(what, key, error) from None

    def _error(self, what: str, key: str, error: BaseException) -> StoreError:
        kind = type(error).__name__
        remedy = _REMEDIES.get(kind, f"is the store at {self._endpoint() or 'AWS'} reachable?")
        said = " ".join(without_sent(str(error).partition("Debug source:")[0]).split())[:600]
        if "NoSuchBucket" in said:
            remedy = f"there is no bucket {self._bucket} at {self._endpoint() or 'AWS'}: make it, or correct the URL"
        elif _EXPIRED.search(said):
            remedy = "the credentials have expired: have them renewed; they are asked for again at each start"
        if _CERTIFICATE.search(str(error)):  # its cause is in what is cut off above
            remedy = "its certificate is of an unknown authority: give S3Storage(ca=…)"
        return StoreError(f"{what} {self._of(key)}: {remedy} ({kind}: {said})")

    def _of(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}" if key else self._prefix

    def _endpoint(self) -> str | None:
        if self._storage.endpoint:
            return self._storage.endpoint
        for name in ("FASTKCL_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            if text := os.environ.get(name):
                _check_endpoint(text, name)
                return text
        return None

    def _store(self) -> Any:  # noqa: ANN401 - of obstore
        if self._opened is None:
            self._opened = _open(self._bucket, self._endpoint(), self._storage)
        return self._opened


class _Ranges(RawIOBase):
    """An object, read in parts.

    Args:
        store: that has it.
        key: its own.
        size: bytes.
    """

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever has bytes
        end = min(self._size, self._at + len(buffer))
        part = self._store.part(self._key, self._at, end)
        if part is None:
            raise FileNotFoundError(f"{self._store.url}/{self._key}: it was there, and is gone")
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def _open(bucket: str, endpoint: str | None, storage: S3Storage) -> Any:  # noqa: ANN401 - of obstore
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise ConfigurationError("obstore is not installed: pip install 'fastkcl[s3]'") from error
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=_REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
    }
    options: dict[str, Any] = {}
    if endpoint is not None:
        options |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        if endpoint.startswith("http://"):
            client["allow_http"] = True
    if storage.ca is not None:
        try:
            client["root_certificate"] = read_given(storage.ca, MOST_CERTIFICATES)
        except OSError as error:
            raise ConfigurationError(f"ca: {os.fspath(storage.ca)} cannot be read: {error.strerror}") from None
    region = storage.region
    if storage.access_key is not None:
        options |= {"access_key_id": storage.access_key, "secret_access_key": storage.secret_key}
        options |= {} if storage.session_token is None else {"session_token": storage.session_token}
    else:
        provider, found = _provider()
        region = region or found
        if provider is not None:
            options["credential_provider"] = provider
    if region is None and endpoint is not None:
        region = "us-east-1"
    options |= {} if region is None else {"region": region}
    made: Any = S3Store
    return made(
        bucket,
        client_options=client,
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
        **options,
    )


def _provider() -> tuple[Any, str | None]:
    """Credentials as boto3 finds them, and its region; None where it is not installed, or finds none."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from botocore.session import get_session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        remember(os.environ.get("AWS_SESSION_TOKEN"))
        return None, None

    class Provider(Boto3CredentialProvider):
        def __call__(self) -> Any:  # noqa: ANN401 - obstore's dict
            found = super().__call__()
            remember(found.get("token"))
            return found

    try:
        own = bound_session(get_session())
        check_bundle(own)
        session = boto3.Session(botocore_session=own)
        provider = Provider(session, ttl=timedelta(seconds=_CREDENTIAL_SECONDS))
    except ValueError:  # its text may have what a credential_process has printed
        raise ConfigurationError(
            "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or S3Storage(…)"
        ) from None
    except (BotoCoreError, OSError) as error:
        raise ConfigurationError(f"AWS credentials: {text_of(error)}") from None
    return provider, session.region_name


def _check_endpoint(text: str, name: str) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not re.search(r"\s", text)
    except ValueError:
        good = False
    if not good or "@" in text or "?" in text:  # neither is shown: it may be a secret
        text = "…" if "@" in text or "?" in text else text
        raise ValueError(
            f"{name}={text!r}: must be a URL without a user and a query, as http://127.0.0.1:9000; keys are access_key"
            " and secret_key"
        )
