"""An IcebergTable in each catalog, on each storage, as readers see it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl.local_aws import LocalAws
from fastkcl.tables import IcebergTable, Shard
from local_aws_helpers import new_name
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from sink_helpers import SHARD, Record
from table_helpers import arrived, as_they_are

NAME = "db.clicks"


class IcebergPlace:
    """Somewhere for a table.

    Args:
        catalog: options of pyiceberg's, by which the writer and the readers reach it.
    """

    def __init__(self, catalog: dict[str, str]) -> None:
        self.catalog = catalog
        self.name = NAME

    def table(self, **options: Any) -> IcebergTable:
        """A writer that commits alone, unless told otherwise: a test that stops one in its commit stops no others."""
        options.setdefault("share_commits", False)
        return IcebergTable(self.name, self.catalog, **options)

    @property
    def arguments(self) -> list[str]:
        """By which commands know it."""
        return [self.name, *(text for each in self.catalog.items() for text in ("--catalog", "=".join(each)))]

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which another process reaches it."""
        options = json.dumps({"catalog": self.catalog})
        return {"TABLE_URL": self.name, "TABLE_KIND": "IcebergTable", "TABLE_OPTIONS": options}

    def theirs(self) -> Catalog:
        """The catalog with pyiceberg's own files."""
        return load_catalog("default", **self.catalog)

    def handle(self) -> Table:
        return self.theirs().load_table(self.name)

    def read(self) -> pa.Table:
        """As pyiceberg has it."""
        try:
            return self.handle().scan().to_arrow()
        except (NoSuchTableError, NoSuchNamespaceError):
            return pa.table({})

    def numbers(self) -> list[int]:
        table = self.read()
        return sorted(map(int, table["sequenceNumber"].to_pylist())) if table.num_columns else []

    def records(self) -> Counter[Record]:
        table = self.read()
        if not table.num_columns:
            return Counter()
        names = ("stream", "shard", "sequenceNumber", "subSequenceNumber", "data")
        return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))

    def days(self) -> dict[str, list[int]]:
        """Numbers in the files of each partition."""
        found: dict[str, list[int]] = {}
        handle = self.handle()
        for task in handle.scan().plan_files():
            with handle.io.new_input(task.file.file_path).open() as file:
                numbers = pq.read_table(file)["sequenceNumber"].to_pylist()
            day = task.file.partition[0]
            found.setdefault("None" if day is None else str(pa.scalar(day, pa.date32())), []).extend(map(int, numbers))
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def sql_posix(folder: Path) -> IcebergPlace:
    return IcebergPlace(
        {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    )


def _bucket(aws: LocalAws) -> dict[str, str]:
    bucket = new_name("lake")
    aws.client("s3").create_bucket(Bucket=bucket)
    return {
        "warehouse": f"s3://{bucket}/warehouse",
        "s3.endpoint": aws.url,
        "s3.access-key-id": "local",
        "s3.secret-access-key": "local",
        "s3.region": "us-east-1",
    }


def sql_s3(aws: LocalAws, folder: Path) -> IcebergPlace:
    return IcebergPlace({"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", **_bucket(aws)})


def glue(aws: LocalAws) -> IcebergPlace:
    """Databases of one account have one list, so each place has an account."""
    own = {"glue.endpoint": aws.url, "glue.region": "us-east-1"}
    own |= {"glue.access-key-id": "local", "glue.secret-access-key": "local"}
    return GluePlace({"type": "glue", **own, **_bucket(aws)}, new_name("db").replace("-", "_"))


class GluePlace(IcebergPlace):
    """In a database of its own: all places share the account's.

    Args:
        catalog: see there.
        database: its name.
    """

    def __init__(self, catalog: dict[str, str], database: str) -> None:
        super().__init__(catalog)
        self.name = f"{database}.clicks"


def written(place: IcebergPlace, *runs: tuple[int, int], shard: Shard = SHARD, **options: Any) -> IcebergTable:
    """A table that a writer has opened, and has given these runs."""
    table = place.table(**options)
    table.open(shard)
    for first, last in runs:
        table.append(arrived(range(first, last + 1)), as_they_are)
    return table


@contextmanager
def every_place(request: pytest.FixtureRequest, folder: Path) -> Iterator[IcebergPlace]:
    """The one that a fixture's parameter names."""
    with place_of(request.param, request, folder) as place:
        yield place


@contextmanager
def place_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[IcebergPlace]:
    """Of a kind: ``sql``, ``sql-s3``, ``glue``, ``rest``."""
    if kind == "rest":
        with rest_catalog(sql_posix(folder).table()._head._catalog) as address:
            yield IcebergPlace({"type": "rest", "uri": address})
    elif kind == "sql":
        yield sql_posix(folder)
    else:
        aws = request.getfixturevalue("aws")
        yield glue(aws) if kind == "glue" else sql_s3(aws, folder)


# ---- a REST catalog ---------------------------------------------------------------------------------------------


@contextmanager
def rest_catalog(catalog: Catalog, hear: Callable[[str, str], None] = lambda *_: None) -> Iterator[str]:
    """A REST catalog over another one, which does the work; its address.

    Args:
        catalog: has the tables.
        hear: called with the method and the path of each request.
    """
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits for the acknowledgement of its headers

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            hear(self.command, self.path)
            with lock:
                status, said = _answered(catalog, self.command, self.path.partition("?")[0], json.loads(body or b"{}"))
            text = b"" if said is None else said.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - as http.server has them

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answered(catalog: Catalog, method: str, path: str, body: Any) -> tuple[int, str | None]:
    parts = path.strip("/").split("/")[1:]
    try:
        match method, parts:
            case "GET", ["config"]:
                return 200, json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                catalog.create_namespace(tuple(body["namespace"]))
                return 200, json.dumps({"namespace": body["namespace"], "properties": {}})
            case "GET", ["namespaces", name]:
                properties = catalog.load_namespace_properties(name)
                return 200, json.dumps({"namespace": [name], "properties": properties})
            case "POST", ["namespaces", name, "properties"]:
                catalog.update_namespace_properties(name, updates=body["updates"])
                return 200, json.dumps({"updated": list(body["updates"]), "removed": [], "missing": []})
            case "POST", ["namespaces", name, "tables"]:
                return 200, _made(catalog, name, body)
            case "GET", ["namespaces", name, "tables", table]:
                return 200, _shown(catalog.load_table((name, table)))
            case "POST", ["namespaces", name, "tables", table]:
                request = CommitTableRequest.model_validate({"identifier": {"namespace": [name], "name": table}} | body)
                done = catalog.commit_table(catalog.load_table((name, table)), request.requirements, request.updates)
                return 200, done.model_dump_json(by_alias=True)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        return 404, _refused(404, error)
    except (CommitFailedException, TableAlreadyExistsError) as error:
        return 409, _refused(409, error)
    return 404, _refused(404, NotImplementedError(f"{method} {path}"))


def _made(catalog: Catalog, namespace: str, body: Any) -> str:
    from pyiceberg.partitioning import PartitionSpec

    spec = PartitionSpec.model_validate(body["partition-spec"])
    return _shown(
        catalog.create_table(
            (namespace, body["name"]),
            Schema.model_validate(body["schema"]),
            partition_spec=spec,
            properties=body.get("properties") or {},
        )
    )


def _shown(table: Table) -> str:
    told = {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json())}
    return json.dumps({**told, "config": {}})


def _refused(status: int, error: Exception) -> str:
    return json.dumps({"error": {"message": str(error), "type": type(error).__name__, "code": status}})


def as_columns(*names: str) -> Callable[[Any], pa.Table]:
    """Makes the table that is written of some columns."""
    return lambda rows: rows.table().select(list(names))


def plans(place: IcebergPlace) -> Sequence[str]:
    """The files that readers see."""
    return [task.file.file_path for task in place.handle().scan().plan_files()]
