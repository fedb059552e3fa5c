"""Both kinds of storage."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_helpers import Place, posix_place, s3_place


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Somewhere for a table: a folder, and a bucket of local AWS."""
    if request.param == "posix":
        return posix_place(tmp_path)
    return s3_place(request.getfixturevalue("aws"))
