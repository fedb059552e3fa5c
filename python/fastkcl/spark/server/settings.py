"""The common part of sessions, servers and JVMs: the settings for ingest, and the text of Spark's errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from fastkcl import ConfigurationError
from fastkcl.tables.base import in_one_line, without_frames
from fastkcl.tables.bounds import MAX_TABLE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CONNECT_SETTINGS",
    "INGEST_SETTINGS",
    "LOOPBACK_SETTINGS",
    "MAX_CONNECT_BYTES",
    "TIME_ZONE_SETTING",
    "SparkUnavailableError",
    "apply_settings",
    "in_one_line",
    "require_spark",
    "without_frames",
]

MAX_CONNECT_BYTES: Final = MAX_TABLE_BYTES
"""Bytes of a table up to which Spark Connect sends it inside the plan."""

# Measured on Spark 4.3 (docs/spark-servers.md).
INGEST_SETTINGS: Final = {
    # Classic, default 48 MB: below it, rows are copied one by one on the driver; 0 is 1.6 times faster.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # Connect, default 1 MiB: above it, a table is uploaded as an artifact that the server keeps as long as the session.
    "spark.sql.session.localRelationCacheThreshold": str(MAX_CONNECT_BYTES),
    # Default INT96: other readers take that for nanoseconds, which end in the year 2262, of no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""For every session that tables go through."""
CONNECT_SETTINGS: Final = {
    # Default true: the server keeps the last plans of a session, and with them tables that never come again.
    "spark.connect.session.planCache.enabled": "false",
}
"""For sessions of Connect that are opened here."""
LOOPBACK_SETTINGS: Final = {
    # Default ZSTD, for messages above 10 MB: more work than it saves where no network is between.
    "spark.connect.session.planCompression.defaultAlgorithm": "NONE",
}
"""For those of them whose server is on this machine."""
TIME_ZONE_SETTING: Final = {"spark.sql.session.timeZone": "UTC"}
"""For sessions that are opened here, not for those of others."""


class SparkUnavailableError(ConfigurationError):
    """Spark is not installed, does not start or does not answer. `str()` has the remedy."""


def require_spark() -> None:
    """Import pyspark and pyarrow.

    Raises:
        SparkUnavailableError: one of them is not installed.
    """
    if not sys.warnoptions:
        # pyspark warns of this wherever pandas 3 is installed; no records go that way.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    for name in ("pyspark", "pyarrow"):
        try:
            import_module(name)
        except ImportError as error:
            raise SparkUnavailableError(f"{name} is not installed: pip install 'fastkcl[spark]'") from error


def apply_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Set them, and return the session."""
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
