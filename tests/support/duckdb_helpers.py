"""DuckDB with its extensions for S3 and Iceberg from packages, as it reaches no server that has them.

The packages come later than DuckDB: pyproject pins it to the newest version that they have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import duckdb
from fastkcl.local_aws import LocalAws

EXTENSIONS = ("httpfs", "avro", "iceberg") if sys.version_info < (3, 15) else ()
"""The last one needs the one before. DuckDB's version that they are for has no wheel for Python 3.15."""


@contextmanager
def extended(aws: LocalAws | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads Iceberg's metadata, and S3 at this server."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name in EXTENSIONS:
            package = find_spec(f"duckdb_extension_{name}")
            assert package is not None
            assert package.submodule_search_locations is not None
            (path,) = Path(package.submodule_search_locations[0]).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{path}'")
        if aws is not None:
            host = aws.url.removeprefix("http://")
            connection.execute(
                "CREATE SECRET (TYPE s3, KEY_ID 'local', SECRET 'local', REGION 'us-east-1', URL_STYLE 'path',"
                f" USE_SSL false, ENDPOINT '{host}')"
            )
        yield connection
