"""A catalog in SQLite whose commits outlive a power cut.

SQLite ends a commit by removing its journal. By default (``synchronous=FULL``) it does not sync the folder. If
a power cut brings the journal back, the next program takes the commit back. ``EXTRA`` syncs the folder.

A commit that was found may be of a writer that died before that, or of another program. So its folder is synced before
anything relies on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastkcl import folder_sync
from fastkcl.tables import storage

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from sqlalchemy import Engine

__all__ = ["make_durable", "settle"]


def make_durable(catalog: Catalog) -> None:
    """Have a catalog's commits outlive a power cut, if it is in SQLite. Others are their servers' business."""
    engine = _engine(catalog)
    if engine is None:
        return
    from sqlalchemy import event

    # At each checkout: the pool has a connection already, which has made the catalog's tables.
    event.listen(engine, "checkout", _sync_all)


def settle(catalog: Catalog) -> None:
    """Have a commit that was seen outlive a power cut, if the catalog is in SQLite.

    Raises:
        OSError: its folder cannot be synced.
    """
    engine = _engine(catalog)
    if engine is None:
        return
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("PRAGMA database_list")
        file = next(file for _, name, file in rows if name == "main")
    if not file:  # in memory
        return
    try:
        storage.sync_folder(Path(file).parent)
    except OSError as error:
        if not folder_sync.is_needless(error):
            raise


def _engine(catalog: Catalog) -> Engine | None:
    engine = getattr(catalog, "engine", None)
    return engine if engine is not None and engine.dialect.name == "sqlite" else None


def _sync_all(connection: Any, *_: object) -> None:  # noqa: ANN401 - a driver's
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA synchronous=EXTRA")
    finally:
        cursor.close()
