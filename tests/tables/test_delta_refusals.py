"""deltalake's refusals have one line, also where it panics; other errors stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import deltalake
import pytest
from click.testing import CliRunner
from delta_table_helpers import delta_posix, written
from deltalake.exceptions import DeltaError
from fastkcl.cli.main import cli
from fastkcl.tables.base import SinkError
from fastkcl.tables.delta.refusals import RefusalError, opened
from sink_helpers import SHARD


class PanicException(BaseException):  # noqa: N818 - as pyo3 names it
    """Of a panic."""


def raises(error: BaseException) -> Callable[..., NoReturn]:
    def look(*_: object, **__: object) -> NoReturn:
        raise error

    return look


def test_a_refusal_has_one_line() -> None:
    assert opened(lambda: 5) == 5
    with pytest.raises(RefusalError, match="^no schema$"):
        opened(raises(DeltaError("no schema\n 0: frame")))
    with pytest.raises(RefusalError, match="^it panics: index out of bounds$"):
        opened(raises(PanicException("index out of bounds\nnote")))


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt(), ValueError("x")], ids=repr)
def test_other_errors_stay(error: BaseException) -> None:
    with pytest.raises(type(error)):
        opened(raises(error))


def test_a_panic_ends_neither_a_writer_nor_the_inspection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 3))
    place.handle().create_checkpoint()
    monkeypatch.setattr(deltalake, "DeltaTable", raises(PanicException("index out of bounds")))
    with pytest.raises(SinkError, match="deltalake cannot open it: it panics: index out of bounds"):
        place.table().open(SHARD)
    done = CliRunner().invoke(cli, ["sink", "inspect", place.url])
    assert done.exit_code == 1, done.output
    assert "deltalake cannot read it: it panics" in done.output
