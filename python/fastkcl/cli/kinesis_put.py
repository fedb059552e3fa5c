"""One run of ``fastkcl kinesis put``: DATA, or the lines of standard input, into a stream as they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import click

from fastkcl.cli.aws import aio_session
from fastkcl.cli.output import printable

if TYPE_CHECKING:
    from fastkcl.kinesis import BaseAggregator, OutputItem, Producer

__all__ = ["Putting"]

_CHUNK = 65536
_STDIN = 0
_PROGRESS_SECONDS = 0.2


class Putting:
    """One run of ``put``."""

    def __init__(self, stream: str, partition_key: str | None, parse: Callable[[str], Any], tell: bool) -> None:
        self.records = self.bytes = self.code = 0
        self.started = False
        self._stream = stream
        self._partition_key = partition_key
        self._parse = parse
        self._tell = tell

    async def run(
        self, endpoint_url: str | None, region: str | None, processor: BaseAggregator, create: bool, data: str | None
    ) -> None:
        """Put DATA, or the lines of standard input."""
        from fastkcl.kinesis import ExceededPutLimit, Producer, UnknownException, ValidationError

        producer = Producer(
            self._stream,
            session=await aio_session(endpoint_url, region),
            endpoint_url=endpoint_url,
            region_name=region,
            processor=processor,
            create_stream=create,
            after_flush_fun=self._count,
        )
        try:
            async with producer:
                self.started = True
                with self._progress():
                    await self._put_all(producer, data)
        except (ExceededPutLimit, ValidationError, UnknownException, _LineError) as error:
            click.echo(f"Error: {printable(str(error))}", err=True)
            self.code = 1

    async def _put_all(self, producer: Producer, data: str | None) -> None:
        if data is not None:
            await self._put(producer, data, "DATA")
            return
        if sys.stdin.isatty():
            click.echo("One record a line; Ctrl-D ends it.", err=True)
        number = 0
        async for line in _lines(_STDIN):
            number += 1
            if line.strip():
                try:
                    text = line.decode()
                except UnicodeDecodeError as error:
                    raise _LineError(f"line {number} is not UTF-8: {error}") from None
                await self._put(producer, text, f"line {number}")

    async def _put(self, producer: Producer, text: str, where: str) -> None:
        try:
            item = self._parse(text)
        except (ValueError, RecursionError) as error:
            raise _LineError(f"{where} is not JSON: {error}; -p string puts it as it is") from None
        await producer.put(item, self._partition_key)

    async def _count(self, accepted: Sequence[OutputItem]) -> None:
        self.records += len(accepted)
        self.bytes += sum(item.size for item in accepted)

    @contextlib.contextmanager
    def _progress(self) -> Iterator[None]:
        """How far it is, on standard error where that is a terminal."""
        if not self._tell:
            yield
            return
        from fastkcl.cli.console import Console

        with Console(stderr=True).status("") as status:

            async def show() -> None:
                while True:
                    status.update(f"{self.records:,} records, {self.bytes / 1e6:,.1f} MB")
                    await asyncio.sleep(_PROGRESS_SECONDS)

            task = asyncio.ensure_future(show())
            try:
                yield
            finally:
                task.cancel()


class _LineError(Exception):
    """A line that is not a record."""


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """Lines of a file, a pipe or a terminal, as soon as they are there; they may end with CR LF.

    They are read by a separate thread, which does not keep the process from ending while it waits.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=4)

    def read() -> None:
        chunk: bytes | OSError = b"..."
        while chunk and isinstance(chunk, bytes):
            try:
                chunk = os.read(descriptor, _CHUNK)
            except OSError as error:
                chunk = error
            handing_over = chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(handing_over, loop).result()
            except (RuntimeError, CancelledError):  # the loop has ended: nobody wants it any more
                handing_over.close()
                return

    threading.Thread(target=read, name="fastkcl standard input", daemon=True).start()
    rest: list[bytes] = []
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise _LineError(f"standard input cannot be read: {chunk.strerror}")
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for line in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [line]
    if last := b"".join(rest):
        yield last.removesuffix(b"\r")
