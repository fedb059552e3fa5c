"""Options of the one way to read a stream that are given to the other.

    spark.read.option("maxRecordsPerTrigger", …)     ─▶ ignored, with a line in the log: the rows are the same
    spark.read.option("initialPosition", "latest")   ─▶ refused, with the way that works: the rows would be others
    spark.readStream.option("startingTimestamp", …)  ─▶ the same

Rules: which way has an option stands in the table of `options`.
"""

from __future__ import annotations

from typing import Final, Literal

from fastkcl.kinesis.read.plan import TRIM
from fastkcl.spark.source.options import OPTIONS, OptionError, SourceOptions, log

__all__ = ["check_way"]

_INSTEAD: Final = {
    "initialPosition": (
        "is for spark.readStream: spark.read begins at startingTimestamp, such as 2026-11-21T08:00:00Z, or at the "
        "oldest record without it"
    ),
    "startingTimestamp": (
        "is for spark.read: a query of spark.readStream begins at initialPosition, such as "
        "AT_TIMESTAMP 2026-11-21T08:00:00Z"
    ),
    "endingTimestamp": (
        "is for spark.read: a query of spark.readStream begins at initialPosition, such as "
        "AT_TIMESTAMP 2026-11-21T08:00:00Z, and has no last record: filter on approximateArrivalTimestamp"
    ),
}
"""What to write in the place of an option, by its name."""


def check_way(options: SourceOptions, way: Literal["read", "readStream"]) -> None:
    """Refuse or ignore what the other way has.

    Raises:
        OptionError: the rows would be others than the option says.
    """
    for option in OPTIONS:
        name = options.given.get(option.name)
        if name is None or option.only in (None, way):
            continue
        if option.name not in _INSTEAD:
            log.info("option %s is ignored: spark.%s has no use for it", name, way)
        elif option.name != "initialPosition" or options[option.name] != TRIM:
            raise OptionError(f"option {name} {_INSTEAD[option.name]}")
