"""The footers of a ParquetTable's files: read from the end of a file, and compared with where it lies."""

from __future__ import annotations

from fastkcl.tables.base import Shard
from fastkcl.tables.parquet.chain import Footer, parse_day, position_in
from fastkcl.tables.parquet_file import TAIL_BYTES, footer_of
from fastkcl.tables.store import Store

__all__ = ["check_footer", "read_footer"]


def read_footer(store: Store, key: str) -> Footer | None:
    """What a data file says of itself; None if it is not there.

    Raises:
        ValueError: it is damaged, or no file of a ParquetTable.
        OSError: it cannot be read.
    """
    count = TAIL_BYTES
    while (tail := store.tail(key, count)) is not None:
        text = footer_of(tail)
        if not isinstance(text, int):
            return Footer.parse(text)
        if len(tail) < count:
            raise ValueError("it is cut off")
        count = text
    return None


def check_footer(footer: Footer, key: str, table: str, shard: Shard, partition: str) -> None:
    """See that a file is one of this table and shard, with the name that its position gives it.

    Raises:
        ValueError: it is not.
    """
    after = position_in(_name_in(key))
    if (footer.table, footer.shard, footer.after) != (table, shard, after):
        raise ValueError(f"it says of itself {footer.text().decode('utf-8', 'replace')}")
    if (footer.next_day is None) != (partition == "none"):
        raise ValueError("it has another partition than the table")
    day = None if footer.next_day is None else parse_day(_name_in(key.rpartition("/")[0])[len("date=") :])
    if footer.next_day is not None and day is not None and footer.next_day < day:
        raise ValueError(f"the file after it is of {footer.next_day}, an earlier day than its own")
    if footer.next_day == day and footer.upto == footer.after:
        raise ValueError("it has no records, as a turn to another day, and names no other day")


def _name_in(key: str) -> str:
    return key.rpartition("/")[2]
