"""Kinesis Data Streams without a daemon.

    read          Consumer: items, records or Arrow batches into asyncio
    write         Producer: items into a stream; Filler: PutRecords in full calls, KPL aggregates
    items         converts items to records, and records to items
    checkpoints   the positions of a group, and the owners of its shards
    client        a stream's client: the common part of reading and writing
    failures      failures of its calls: their kinds, and the pauses of an outage
    service       calls without an event loop, for `read.plan`; http: connections; access: endpoint, credentials
    topology      the shards of a stream, and which may be read now; shards: the shard of a key
    hosting       `run_processors`: batch processors over a stream, fastkcl.spark's too
    shard_host    a shard as the host of a processor
    groups        shows groups of consumers, and moves their positions
    botocore_hook the decoder of answers for programs with boto3 or aiobotocore
    testing       streams in memory, for tests of programs
    metrics       counts of clients, in memory or for Prometheus

Answers and aggregates are decoded into Arrow columns in Rust: `decode_get_records`, `deaggregate`.

Rules: needs the extra ``kinesis``.
"""

from fastkcl._core import ChildShard, Deaggregated, GetRecordsAnswer, deaggregate, decode_get_records
from fastkcl.kinesis.botocore_hook import BotocoreHook, GetRecordsResponse, install_botocore
from fastkcl.kinesis.checkpoints import (
    BaseCheckPointer,
    CheckPointer,
    DynamoDBCheckPointer,
    KCLCheckPointer,
    LeasedCheckPointer,
    MemoryCheckPointer,
    RedisCheckPointer,
)
from fastkcl.kinesis.exceptions import (
    AnotherStream,
    AnswerTooLarge,
    CheckpointFlushError,
    CheckpointOwnershipConflict,
    CheckpointTableError,
    DataLossError,
    DeserializeError,
    ExceededPutLimit,
    StreamDoesNotExist,
    StreamExists,
    StreamShardLimit,
    StreamStatusInvalid,
    UnacknowledgedError,
    UnknownException,
    ValidationError,
)
from fastkcl.kinesis.hosting import run_processors
from fastkcl.kinesis.items.aggregators import (
    BaseAggregator,
    KPLAggregator,
    ListAggregator,
    NetstringAggregator,
    NewlineAggregator,
    OutputItem,
    SimpleAggregator,
)
from fastkcl.kinesis.items.processors import (
    JsonLineProcessor,
    JsonListProcessor,
    JsonProcessor,
    KPLJsonProcessor,
    KPLStringProcessor,
    MsgpackProcessor,
    Processor,
    StringProcessor,
)
from fastkcl.kinesis.items.schema_processors import AvroProcessor, ProtobufProcessor
from fastkcl.kinesis.items.serializers import JsonSerializer, MsgpackSerializer, Serializer, StringSerializer
from fastkcl.kinesis.metrics import (
    METRICS,
    InMemoryMetricsCollector,
    Metric,
    MetricsCollector,
    MetricType,
    NoOpMetricsCollector,
    PrometheusMetricsCollector,
    Timer,
    get_metrics_collector,
    reset_metrics_collector,
    set_metrics_collector,
)
from fastkcl.kinesis.read.acknowledging import AckRecord
from fastkcl.kinesis.read.consumer import Consumer
from fastkcl.kinesis.read.delivery import ConsumerRecord
from fastkcl.kinesis.write.aggregate import Aggregator, Entry, UserRecord
from fastkcl.kinesis.write.producer import Producer
from fastkcl.kinesis.write.put import Filler, PutError, PutOptions, PutReport
from fastkcl.kinesis.write.sent import PutResult, Sent
from fastkcl.shard import ShardMap

__all__ = [
    "AvroProcessor",
    "ProtobufProcessor",
    "AckRecord",
    "Aggregator",
    "AnotherStream",
    "AnswerTooLarge",
    "BaseAggregator",
    "BaseCheckPointer",
    "BotocoreHook",
    "CheckPointer",
    "CheckpointFlushError",
    "CheckpointOwnershipConflict",
    "CheckpointTableError",
    "ChildShard",
    "Consumer",
    "ConsumerRecord",
    "DataLossError",
    "Deaggregated",
    "DeserializeError",
    "DynamoDBCheckPointer",
    "Entry",
    "ExceededPutLimit",
    "Filler",
    "GetRecordsAnswer",
    "GetRecordsResponse",
    "InMemoryMetricsCollector",
    "JsonLineProcessor",
    "JsonListProcessor",
    "JsonProcessor",
    "JsonSerializer",
    "KCLCheckPointer",
    "KPLAggregator",
    "KPLJsonProcessor",
    "KPLStringProcessor",
    "LeasedCheckPointer",
    "ListAggregator",
    "METRICS",
    "MemoryCheckPointer",
    "Metric",
    "MetricType",
    "MetricsCollector",
    "MsgpackProcessor",
    "MsgpackSerializer",
    "NetstringAggregator",
    "NewlineAggregator",
    "NoOpMetricsCollector",
    "OutputItem",
    "Processor",
    "Producer",
    "PrometheusMetricsCollector",
    "PutError",
    "PutOptions",
    "PutReport",
    "PutResult",
    "RedisCheckPointer",
    "Sent",
    "Serializer",
    "ShardMap",
    "SimpleAggregator",
    "StreamDoesNotExist",
    "StreamExists",
    "StreamShardLimit",
    "StreamStatusInvalid",
    "StringProcessor",
    "StringSerializer",
    "Timer",
    "UnacknowledgedError",
    "UnknownException",
    "UserRecord",
    "ValidationError",
    "deaggregate",
    "decode_get_records",
    "get_metrics_collector",
    "install_botocore",
    "reset_metrics_collector",
    "run_processors",
    "set_metrics_collector",
]
