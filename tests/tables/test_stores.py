"""The promises of every storage of tables; each case runs on POSIX and on S3."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastkcl import ConfigurationError
from fastkcl.local_aws import LocalAws
from fastkcl.tables import S3Storage, SinkError, storage
from fastkcl.tables import object_store as module
from fastkcl.tables.object_store import ObjectStore
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import StoreError
from http_servers import answering, request_of, server
from local_aws_helpers import new_name
from sink_helpers import SHARD
from table_helpers import Place, posix_place, s3_place
from waiting import PATIENCE, wait_until

BODY = b"0123456789"


def test_one_of_two_creations_makes_the_file(place: Place) -> None:
    assert place.store.create("a/b/c", BODY)
    assert not place.store.create("a/b/c", b"other")
    assert place.store.tail("a/b/c", 100) == BODY


def test_one_of_six_at_once(place: Place) -> None:
    made: list[tuple[int, int]] = []

    def race(who: int) -> None:
        store = place.store
        for turn in range(20):
            barrier.wait(PATIENCE)
            if store.create(f"races/{turn}", str(who).encode()):
                made.append((turn, who))

    barrier = threading.Barrier(6)
    threads = [threading.Thread(target=race, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(turn for turn, _ in made) == list(range(20))
    for turn, who in made:
        assert place.store.tail(f"races/{turn}", 10) == str(who).encode()


@pytest.mark.parametrize(("count", "end"), [(1, b"9"), (4, b"6789"), (10, BODY), (11, BODY), (10**6, BODY)])
def test_the_end_of_a_file(place: Place, count: int, end: bytes) -> None:
    place.store.create("a/b", BODY)
    assert place.store.tail("a/b", count) == end


def test_what_is_empty_or_absent(place: Place) -> None:
    place.store.create("a/empty", b"")
    assert place.store.tail("a/empty", 10) == b""
    assert place.store.tail("a/absent", 10) is None
    assert place.store.files("absent") == []
    assert place.store.folders("absent") == []
    assert place.store.claimed("absent") is None


def test_sizes_of_files_that_are_there_and_of_those_that_are_not(place: Place) -> None:
    place.store.create("a/ten", BODY)
    place.store.create("a/empty", b"")
    many = ["a/ten", "a/absent", "a/empty", "a", "b/ten"] * 10
    assert place.store.sizes(many) == [10, None, 0, None, None] * 10
    assert place.store.sizes(["a/absent"]) == [None]
    assert place.store.sizes([]) == []


def test_sizes_in_the_place_of_which_something_else_is(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    (tmp_path / "file").write_bytes(BODY)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "circle").symlink_to("circle")
    assert store.sizes(["file", "file/in", "fifo", "circle", "circle/in"]) == [10, None, None, None, None]


def test_files_and_folders_of_a_folder_alone_in_order(place: Place) -> None:
    for key in ("t/b", "t/a", "t/c=1/x", "t/c=1/y", "t/B", "t/date=2026-11-22/x", "tt/x"):
        place.store.create(key, BODY)
    assert place.store.files("t") == [("t/B", 10), ("t/a", 10), ("t/b", 10)]
    assert place.store.folders("t") == ["c=1", "date=2026-11-22"]
    assert set(place.store.folders("")) >= {"t", "tt"}


def test_names_of_folders_as_they_are_spelt(place: Place) -> None:
    key = "stream=@@C3@BC/shard=@007/after-001.7.02.10.parquet"
    place.store.create(key, BODY)
    assert place.store.folders("") == ["stream=@@C3@BC"] or "stream=@@C3@BC" in place.store.folders("")
    assert place.store.files(key.rpartition("/")[0]) == [(key, 10)]
    assert place.store.tail(key, 1) == b"9"


def test_a_claim_is_one_text_for_all(place: Place) -> None:
    assert place.store.claim("_fastkcl/table", '{"id":"1"}') == '{"id":"1"}'
    assert place.store.claim("_fastkcl/table", '{"id":"2"}') == '{"id":"1"}'
    assert place.store.claimed("_fastkcl/table") == '{"id":"1"}'


def test_a_claim_of_six_at_once(place: Place) -> None:
    barrier = threading.Barrier(6)
    texts: list[str] = []

    def claim(who: int) -> None:
        store = place.store
        barrier.wait(PATIENCE)
        texts.append(store.claim("_fastkcl/table", f"text {who}"))

    threads = [threading.Thread(target=claim, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(texts) == 6
    assert len(set(texts)) == 1


def test_a_body_of_12_megabytes_is_one_request(place: Place) -> None:
    """obstore would make parts of it, which cannot be conditional."""
    body = bytes(range(256)) * (12 * 4096)
    assert place.store.create("large", body)
    assert not place.store.create("large", body[:-1])
    assert place.store.tail("large", 1000) == body[-1000:]
    assert [entry.size for entry in place.store.files("") if entry.key.strip("/") == "large"] == [len(body)]


def test_more_than_a_page_of_files(aws: LocalAws) -> None:
    place = s3_place(aws)
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    s3 = aws.client("s3")
    with ThreadPoolExecutor(16) as pool:
        keys = [f"{prefix}/many/{number:04}" for number in range(1005)]
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b""), keys))
    assert [entry.key for entry in place.store.files("many")] == [f"many/{number:04}" for number in range(1005)]


def test_proof_passes_and_leaves_nothing(aws: LocalAws) -> None:
    place = s3_place(aws)
    place.store.prove()
    assert place.store.files("_fastkcl") == []


# ---- errors -----------------------------------------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_refused_before_the_table_is_claimed(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore

    put = obstore.put
    place = s3_place(aws)
    monkeypatch.setattr(obstore, "put", lambda *arguments, **options: put(*arguments, **{**options, "mode": None}))
    with pytest.raises(SinkError, match=r"s3://.*: this store ignores If-None-Match: two writers would both succeed"):
        place.table().open(SHARD)
    monkeypatch.undo()
    assert place.store.claimed("_fastkcl/table") is None


def test_a_bucket_that_is_absent(aws: LocalAws) -> None:
    storage = S3Storage(endpoint=aws.url, access_key="local", secret_key="s3cret-of-mine")
    store = ObjectStore("s3://absent-bucket/table", storage)
    calls: list[Any] = [
        lambda: store.claimed("_fastkcl/table"),
        lambda: store.create("a", b""),
        lambda: store.files("a"),
    ]
    for call in calls:
        with pytest.raises(
            StoreError, match="there is no bucket absent-bucket at .*: make it, or correct the URL"
        ) as e:
            call()
        assert "s3://absent-bucket/table" in str(e.value)
        assert "s3cret" not in str(e.value)


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (403, "AccessDenied", "a table needs s3:PutObject, s3:GetObject and s3:ListBucket"),
        (400, "ExpiredToken", "the credentials have expired"),
        (403, "RequestExpired", "the credentials have expired"),
    ],
)
def test_a_refusal_names_call_resource_and_remedy(status: int, code: str, remedy: str) -> None:
    text = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    answer = f"HTTP/1.1 {status} No\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
    with server(answering(answer)) as address:
        storage = S3Storage(endpoint=f"http://{address}", access_key="local", secret_key="s3cret-of-mine")
        store = ObjectStore("s3://lake/clicks", storage)
        with pytest.raises(StoreError) as e:
            store.create("a/b", BODY)
    assert str(e.value).startswith("PUT s3://lake/clicks/a/b: ")
    assert remedy in str(e.value)
    assert "s3cret" not in str(e.value)


def test_a_store_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore("s3://lake/clicks", S3Storage(endpoint="http://127.0.0.1:9", access_key="a", secret_key="b"))
    with pytest.raises(StoreError, match=r"GET s3://lake/clicks/a: is the store at http://127.0.0.1:9 reachable"):
        store.tail("a", 1)


@pytest.mark.parametrize("call", [lambda store: store.tail("a", 1), lambda store: store.create("a", BODY)])
def test_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch, call: Callable[[ObjectStore], Any]) -> None:
    """A request has 30 s for its answer, and is made again for 60 s. Here they have less."""
    assert module._REQUEST_SECONDS + module._RETRY_SECONDS <= 120
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.4)
    requests: list[bytes] = []

    def hangs(link: socket.socket, _number: int) -> None:
        requests.append(request_of(link))
        link.recv(1)  # until the client hangs up

    with server(hangs) as address:
        store = ObjectStore("s3://lake/clicks", S3Storage(endpoint=f"http://{address}", access_key="a", secret_key="b"))
        with pytest.raises(StoreError, match="s3://lake/clicks/a"):
            call(store)
    assert 1 <= len(requests) <= 6


def test_a_panic_is_an_error_of_the_store(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    class PanicException(BaseException):  # noqa: N818 - as pyo3 calls it
        pass

    def panics(*_: Any, **__: Any) -> None:
        raise PanicException("request valid: InvalidUri")

    monkeypatch.setattr(obstore, "put", panics)
    with pytest.raises(StoreError, match="is the endpoint a URL"):
        s3_place(aws).store.create("a", b"")


@pytest.mark.parametrize("endpoint", ["http://me:s3cret@127.0.0.1:9000", "https://x/?token=s3cret", "me:s3cret@x"])
def test_an_endpoint_with_a_secret_is_refused_and_not_shown(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="endpoint=.* without a user and a query") as raised:
        S3Storage(endpoint=endpoint)
    assert "s3cret" not in str(raised.value)
    monkeypatch.setenv("FASTKCL_S3_ENDPOINT", endpoint)
    with pytest.raises(ValueError, match="FASTKCL_S3_ENDPOINT=") as raised:
        ObjectStore("s3://lake/clicks", S3Storage()).tail("a", 1)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:9000", "ftp://x", "http://", "http://bad host/", "http://[::1", "http://x:99999"]
)
def test_an_endpoint_that_is_no_url_is_refused_at_once(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="endpoint=.* must be a URL"):
        S3Storage(endpoint=endpoint)
    if endpoint:
        monkeypatch.setenv("FASTKCL_S3_ENDPOINT", endpoint)
        with pytest.raises(ValueError, match="FASTKCL_S3_ENDPOINT=.* must be a URL"):
            ObjectStore("s3://lake/clicks", S3Storage(access_key="a", secret_key="b")).tail("a", 1)


@pytest.mark.parametrize(
    "url",
    [
        *("gs://lake/clicks", "s3://", "s3://lake", "s3://lake/", "s3://LAKE/x", "s3://lake/a%2Fb", "s3://lake/ü"),
        *("s3://lake/a b", "s3://lake/a//b", "s3://lake/../b", "s3://lake/a?b", "s3://lake/a#b"),
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="s3://"):
        ObjectStore(url, S3Storage())


def test_a_key_without_its_secret() -> None:
    with pytest.raises(ValueError, match="^session_token has a line feed"):
        S3Storage(access_key="a", secret_key="b", session_token="c\n")
    with pytest.raises(ValueError, match="give both, or none"):
        S3Storage(access_key="a")


def test_no_secret_is_shown() -> None:
    assert "mine" not in repr(S3Storage(access_key="a-of-mine", secret_key="s-of-mine", session_token="t-of-mine"))


def test_credentials_as_boto3_finds_them(aws: LocalAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = s3_place(aws).url
    profile = tmp_path / "credentials"
    profile.write_text("[lake]\naws_access_key_id = local\naws_secret_access_key = local\nregion = eu-west-1\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", aws.url)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    store = ObjectStore(url, S3Storage())
    assert store.create("a", BODY)
    assert store.tail("a", 1) == b"9"


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigurationError, match="there are no AWS credentials"):
        ObjectStore(f"s3://{new_name()}/x", S3Storage(endpoint="http://127.0.0.1:9")).tail("a", 1)


@pytest.mark.parametrize(
    ("process", "said"),
    [("sh -c 'echo secret >&2; false'", "it has failed"), ("/nowhere/p secret", "/nowhere/p: No such file")],
)
def test_a_process_without_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process: str, said: str
) -> None:
    """Nothing that it has printed is told."""
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process = {process}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(ConfigurationError, match=f"credential_process of the profile 'lake': {said}") as caught:
        ObjectStore(f"s3://{new_name()}/x", S3Storage(endpoint="http://127.0.0.1:9")).tail("a", 1)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_profile_that_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(ConfigurationError, match=r"AWS credentials: .*profile \(lake\) could not be found"):
        ObjectStore(f"s3://{new_name()}/x", S3Storage(endpoint="http://127.0.0.1:9")).tail("a", 1)


def test_without_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fastkcl\[s3\]'"):
        ObjectStore("s3://lake/x", S3Storage(access_key="a", secret_key="b")).tail("a", 1)


def test_folders_are_synced_once_while_they_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = posix_place(tmp_path).store
    synced: list[Path] = []
    real = storage.sync_folder

    def sync_folder(folder: Path) -> None:
        synced.append(folder)
        real(folder)

    monkeypatch.setattr(storage, "sync_folder", sync_folder)
    root = Path(store.url)
    assert store.create("a/b/one", b"1")
    assert {root.parent, root, root / "a", root / "a/b"} <= set(synced)
    assert store.create("a/b/zero", b"0")  # the table's own folder has got names since the sync of the first
    synced.clear()
    assert store.create("a/b/two", b"2")
    assert synced == [root / "a/b"]
    (root / "a").rename(root / "gone")  # a table was restored, or replaced
    assert store.create("a/b/three", b"3")
    assert {root, root / "a", root / "a/b"} <= set(synced)
    assert store.read("a/b/three", 10) == b"3"
    synced.clear()
    (root / "a").rename(root / "again")
    (root / "a").symlink_to(root / "again")
    assert store.create("a/b/four", b"4")
    assert root / "a/b" in synced


def test_a_folder_that_was_made_again_is_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can have the number of the one that was removed, and who has made it may have died before its sync."""
    root = tmp_path / "table"
    kept: storage.Kept = {}
    storage.make_folder(root / "day", kept)
    real, number = Path.lstat, (root / "day").lstat().st_ino
    changed, times = root.stat().st_ctime_ns, (root.stat().st_atime_ns, root.stat().st_mtime_ns)

    def made_again() -> bool:
        (root / "day").rmdir()
        (root / "day").mkdir()
        os.utime(root, ns=times)  # as `cp -a` of a copy does
        return root.stat().st_ctime_ns != changed  # it has steps of some milliseconds

    wait_until(made_again, "another time of the last change")

    def lstat(path: Path) -> os.stat_result:
        found = real(path)
        return os.stat_result((found.st_mode, number, *found[2:])) if path == root / "day" else found

    monkeypatch.setattr(Path, "lstat", lstat)
    synced: list[Path] = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    storage.make_folder(root / "day", kept)
    assert synced == [root]
    storage.make_folder(root / "day", kept)
    assert synced == [root]
