"""One run of ``fastkcl load``: it checks its preconditions, then `run_processors` reads until it is stopped.

prepare      checks that the endpoint answers, the stream exists and the table can be written: errors within seconds
Loading      the leases, a processor for each shard, and the signals that end it
explained    an error in one line, with the remedy
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from fastkcl import ConfigurationError
from fastkcl.cli.aws import aio_session, check_listening, explain, kinesis_client
from fastkcl.cli.catalogs import storage_in
from fastkcl.cli.load_state import ShardMonitor, Shards
from fastkcl.cli.output import printable, without_users
from fastkcl.cli.storage import endpoint_of, is_s3, storage_of

if TYPE_CHECKING:
    from fastkcl.cli.load_display import Display
    from fastkcl.cli.prometheus import Address
    from fastkcl.cli.table_formats import WritableFormat
    from fastkcl.kinesis import MetricsCollector
    from fastkcl.tables import BinaryPayload, JsonPayload, TableProcessor
    from fastkcl.tables.table_processor import Table

__all__ = ["Loading", "Plan", "Prepared", "explained", "prepare"]

_LONGEST_PAUSE: Final = 30.0  # seconds between two calls of a service that is away
_IN_PYTHON: Final = {
    'evolve="add", or drop it in transform': "--add-columns adds it",
    "start with accept_gap=True or FASTKCL_ACCEPT_GAP=1 until": "start with --accept-gap until",
    "another checkpointer name for each stream": "another --application",
}
"""What an error tells a program to do, and what it is in the command."""
_ONE_SIGNAL: Final = 1.0  # seconds; a terminal that is closed sends more than one


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a run; the command describes them."""

    stream: str
    url: str
    form: WritableFormat
    application: str
    payload: BinaryPayload | JsonPayload | None
    iterator_type: Literal["TRIM_HORIZON", "LATEST"]
    max_age: float | None
    max_bytes: int | None
    max_shards: int | None
    stop_at_tip: bool
    idle_timeout: float | None
    retry_for: float
    accept_gap: bool
    add_columns: bool
    catalog: Mapping[str, str]
    region: str | None
    endpoint_url: str | None
    s3_endpoint_url: str | None
    s3_region: str | None
    prometheus: Address | None

    def table(self) -> Table:
        """A writer's own.

        Raises:
            ValueError: the URL, or the endpoint.
        """
        reached = self.s3_endpoint, self.s3_region or self.region
        storage = storage_in(self.catalog, *reached) if self.form.in_catalog else storage_of(self.url, *reached)
        return self.form.table(self.url, storage, add_columns=self.add_columns, catalog=self.catalog)

    @property
    def processing(self) -> dict[str, Any]:
        """Options of each shard's `TableProcessor`."""
        bounds = {"max_age": self.max_age, "max_bytes": self.max_bytes}
        return {
            "payload": self.payload,
            "report_interval": None,
            "accept_gap": self.accept_gap or None,
            **{name: value for name, value in bounds.items() if value is not None},
        }

    @property
    def s3_endpoint(self) -> str | None:
        """Of the table; None for AWS."""
        return endpoint_of(self.s3_endpoint_url, self.endpoint_url)


class Prepared(NamedTuple):
    """The stream and the table that were found before the start."""

    name: str
    """The stream's, without the rest of an ARN."""
    table_url: str
    """Where the table is."""


def prepare(plan: Plan) -> Prepared:
    """Check that everything that the run needs is there; create the table if it does not exist.

    Raises:
        UsageError: an option that makes no sense.
        Exception: something is missing; `explained` describes it.
    """
    from botocore.exceptions import EndpointConnectionError

    from fastkcl.tables import Shard, TableProcessor

    try:
        table = plan.table()
        TableProcessor(table, **plan.processing)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    client = kinesis_client(plan.endpoint_url, plan.region)
    address = {"StreamARN" if plan.stream.startswith("arn:") else "StreamName": plan.stream}
    stream = client.describe_stream(**address, Limit=1)["StreamDescription"]
    kinesis_client(plan.endpoint_url, plan.region, "dynamodb")
    if is_s3(plan.url) and plan.s3_endpoint is not None:
        try:
            check_listening(plan.s3_endpoint)
        except EndpointConnectionError as error:
            raise ConfigurationError(f"{plan.url}: {error}: is the table's storage running there?") from error
    shard_id = stream["Shards"][0]["ShardId"] if stream["Shards"] else "shardId-000000000000"
    table.open(Shard(stream["StreamName"], shard_id))
    return Prepared(stream["StreamName"], table.url)


class Loading:
    """A run.

    Args:
        plan: its options.
        prepared: what was found.
        shards: notes the shards that this process has.
        display: gets a line on each signal.
        collector: gets the counts of the stream's clients; None for nobody.
    """

    def __init__(
        self, plan: Plan, prepared: Prepared, shards: Shards, display: Display, collector: MetricsCollector | None
    ) -> None:
        self._plan = plan
        self._prepared = prepared
        self._shards = shards
        self._display = display
        self._collector = collector
        self._stop = asyncio.Event()
        self._stopping = threading.Event()
        self._first_signal: float | None = None

    async def run(self) -> None:
        """Load until it is stopped, or at its end.

        Raises:
            Exception: it cannot go on.
        """
        from fastkcl.kinesis import KCLCheckPointer, run_processors

        plan = self._plan
        session = await aio_session(plan.endpoint_url, plan.region)
        with self._signals():
            await run_processors(
                plan.stream,
                self._processor,
                checkpointer=KCLCheckPointer(
                    plan.application,
                    initial_position=plan.iterator_type,
                    endpoint_url=plan.endpoint_url,
                    region_name=plan.region,
                    session=session,
                ),
                stop=self._stop,
                idle_timeout=plan.idle_timeout,
                stop_at_tip=plan.stop_at_tip,
                max_shard_consumers=plan.max_shards,
                iterator_type=plan.iterator_type,
                session=session,
                endpoint_url=plan.endpoint_url,
                region_name=plan.region,
                metrics_collector=self._collector,
                retry_limit=round(plan.retry_for / _LONGEST_PAUSE),
                expo_backoff=1.0,
                expo_backoff_limit=_LONGEST_PAUSE,
            )

    def _processor(self) -> TableProcessor:
        from fastkcl.tables.patient import PatientProcessor, PatientTable

        plan = self._plan
        table = PatientTable(plan.table(), stopping=self._stopping, patience=plan.retry_for)
        processor = PatientProcessor(table, stopping=self._stopping, patience=plan.retry_for, **plan.processing)
        processor.monitor = ShardMonitor(self._shards, plan.application)
        return processor

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Have the first signal end the run in order, and a second one at once."""
        loop = asyncio.get_running_loop()
        before = {
            number: signal.getsignal(number)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN  # as nohup has it
        }
        for number in before:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        now = time.monotonic()
        if self._first_signal is None:
            self._first_signal = now
            self._display.write(f"fastkcl load: {name}: ends after a last commit; again ends it at once")
            self._stopping.set()
            self._stop.set()
        elif now - self._first_signal >= _ONE_SIGNAL:
            self._display.write(f"fastkcl load: {name}: ends at once; what is not committed comes again")
            self._display.stop()
            os._exit(128 + number)


def explained(error: Exception, plan: Plan) -> str:
    """An error in one line, with what to do.

    Raises:
        Exception: it is none that is known: a mistake of this program.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    from fastkcl import DecodeError
    from fastkcl.kinesis import (
        AnotherStream,
        AnswerTooLarge,
        CheckpointTableError,
        StreamDoesNotExist,
        StreamStatusInvalid,
        ValidationError,
    )
    from fastkcl.tables import SinkError

    match error:
        case click.ClickException():
            raise error
        case BotoCoreError() | ClientError() | ConnectionError() | StreamDoesNotExist() | StreamStatusInvalid():
            return explain(error, plan.stream, plan.endpoint_url)
        case DecodeError():
            return f"the answer is not Kinesis's: {_line(str(error))}"
        case SinkError() | ConfigurationError() | AnotherStream() | CheckpointTableError() | ValidationError():
            return _as_options(_line(str(error)))
        case AnswerTooLarge():
            return _line(str(error))
        case OSError() if error.filename is not None:
            return _line(f"{error.filename}: {error.strerror or error}")
        case OSError():
            return _line(str(error))
    raise error


def _as_options(text: str) -> str:
    for argument, option in _IN_PYTHON.items():
        text = text.replace(argument, option)
    return text


def _line(text: str) -> str:
    return without_users(printable(" ".join(text.split())))
