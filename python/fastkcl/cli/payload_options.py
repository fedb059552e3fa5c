"""The options of commands that open payloads: one decorator, which turns them into the arguments of the writers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastkcl.cli.payloads import READ_OPTIONS, SCHEMA_OPTIONS, payload_to_read
from fastkcl.payloads.options import FORMATS
from fastkcl.stdio.given_files import read_given

if TYPE_CHECKING:
    from fastkcl.payloads.options import Compression, Payload

__all__ = ["payload_options"]

_MOST_BYTES = 1 << 20  # of a list of columns

C = TypeVar("C", bound=Callable[..., Any])


def payload_options(command: C) -> C:
    """Add ``--payload``, ``--schema`` and what belongs to them; the command gets one argument, ``payload``.

    It is a payload of `fastkcl.tables`, or None for records as they come. The command has ``--endpoint-url`` and
    ``--region``, which are Glue's, too.
    """

    @click.option(
        "--payload",
        "kind",
        type=click.Choice(list(FORMATS)),
        default="binary",
        show_default=True,
        help="All but binary make typed columns; a payload that does not fit is kept in the column _corrupt.",
    )
    @click.option(
        "--schema",
        help="A file. For json it has the columns, e.g. id string, at timestamp, tags array<string>. For others: .avsc,"
        " .proto, a descriptor set, or latest:NAME of the registry.",
    )
    @click.option(
        "--compression",
        type=click.Choice(["none", "gzip", "auto"]),
        default="none",
        show_default=True,
        help="Unpack payloads; auto recognizes gzip by its first bytes.",
    )
    @functools.wraps(command)
    def with_payload(
        *arguments: Any,  # noqa: ANN401 - as the command has them
        kind: str,
        schema: str | None,
        message: str | None,
        framing: str,
        registry: str | None,
        casts: tuple[str, ...],
        keep_payload: bool,
        max_outage: float | None,
        compression: Compression,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        known: dict[str, Any] = {"schema": schema, "message": message, "framing": framing, "registry": registry}
        known |= {"casts": casts, "keep_payload": keep_payload, "max_outage": max_outage}
        payload = _payload_of(kind, known, compression, options["endpoint_url"], options["region"])
        return command(*arguments, payload=payload, **options)

    for option in (*reversed(READ_OPTIONS), *SCHEMA_OPTIONS):
        with_payload = option(with_payload)
    return with_payload  # type: ignore[return-value]  # other options than the command's


def _payload_of(
    kind: str, known: dict[str, Any], compression: Compression, endpoint_url: str | None, region: str | None
) -> Payload | None:
    from fastkcl.payloads.options import BinaryPayload

    if kind == "binary":
        if known["schema"] is not None:
            raise click.UsageError("--schema is for --payload json, avro or protobuf")
        payload_to_read(None, known)
        return None if compression == "none" else BinaryPayload(compression)
    if kind == "json":
        if known["schema"] is None:
            raise click.UsageError(
                "--payload json needs --schema FILE, which names the columns: id string, at timestamp"
            )
        known["schema"] = " ".join(_text(Path(known["schema"])).split())
    return payload_to_read(kind, known, compression, endpoint_url, region)


def _text(path: Path) -> str:
    try:
        return read_given(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--schema {path}: cannot be read as text: {error}: it has to be a file") from None
