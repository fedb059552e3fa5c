"""The options of commands that open payloads: one decorator, which makes of them what the writers take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from fastkcl.payloads.options import BinaryPayload, Compression, JsonPayload

__all__ = ["payload_options"]

C = TypeVar("C", bound=Callable[..., Any])


def payload_options(command: C) -> C:
    """Add ``--payload``, ``--schema`` and ``--compression``; the command gets one argument of them, ``payload``.

    It is a payload of `fastkcl.tables`, or None for records as they come.
    """

    @click.option(
        "--payload",
        "kind",
        type=click.Choice(["binary", "json"]),
        default="binary",
        show_default=True,
        help="json makes typed columns of JSON objects; a payload that is none is kept in the column _corrupt.",
    )
    @click.option(
        "--schema",
        "schema_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the columns of JSON objects, as in: id string, at timestamp, tags array<string>",
    )
    @click.option(
        "--compression",
        type=click.Choice(["none", "gzip", "auto"]),
        default="none",
        show_default=True,
        help="Unpack payloads; auto knows gzip by its first bytes.",
    )
    @functools.wraps(command)
    def with_payload(
        *arguments: Any,  # noqa: ANN401 - as the command has them
        kind: str,
        schema_file: Path | None,
        compression: Compression,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return command(*arguments, payload=_payload_of(kind, schema_file, compression), **options)

    return with_payload  # type: ignore[return-value]  # other options than the command's


def _payload_of(kind: str, schema_file: Path | None, compression: Compression) -> BinaryPayload | JsonPayload | None:
    from fastkcl.payloads.options import BinaryPayload, JsonPayload

    if kind == "binary":
        if schema_file is not None:
            raise click.UsageError("--schema is for --payload json")
        return None if compression == "none" else BinaryPayload(compression)
    if schema_file is None:
        raise click.UsageError("--payload json needs --schema FILE, which names the columns: id string, at timestamp")
    try:
        text = schema_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--schema {schema_file}: cannot be read as text: {error}") from None
    return JsonPayload(" ".join(text.split()), compression)
