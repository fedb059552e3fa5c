"""Kinesis Data Streams without a daemon.

    Producer ── PutQueue ─▶ PutRecords    asyncio: items into a stream
    processors ── aggregator + serializer ─▶ what a record holds
    Consumer ──▶ reading ──▶ fetch        asyncio: items, records or Arrow batches, with positions in `checkpoints`
    run_processors                        the same for batch processors, fastkcl.spark's too
    put ──▶ aggregate ──▶ shards          PutRecords in batches, KPL aggregates, which shard a key belongs to
    decode_get_records ──▶ deaggregate    answers and aggregates into Arrow columns, in Rust
    testing                               streams in memory, for tests of programs
    metrics                               what clients count, in memory or for Prometheus
    install_botocore                      the same for programs that use boto3 or aiobotocore
    read                                  plans: which records a batch has, and reading them anywhere, without I/O

Rules: needs the extra ``kinesis``.
"""

from fastkcl._core import ChildShard, Deaggregated, GetRecordsAnswer, deaggregate, decode_get_records
from fastkcl.kinesis.acknowledging import AckRecord
from fastkcl.kinesis.aggregate import Aggregator, Entry, UserRecord
from fastkcl.kinesis.aggregators import (
    BaseAggregator,
    KPLAggregator,
    ListAggregator,
    NetstringAggregator,
    NewlineAggregator,
    OutputItem,
    SimpleAggregator,
)
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
from fastkcl.kinesis.consumer import Consumer
from fastkcl.kinesis.delivery import ConsumerRecord
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
from fastkcl.kinesis.processors import (
    JsonLineProcessor,
    JsonListProcessor,
    JsonProcessor,
    KPLJsonProcessor,
    KPLStringProcessor,
    MsgpackProcessor,
    Processor,
    StringProcessor,
)
from fastkcl.kinesis.producer import Producer
from fastkcl.kinesis.put import Filler, PutError, PutOptions, PutReport
from fastkcl.kinesis.sent import PutResult, Sent
from fastkcl.kinesis.serializers import JsonSerializer, MsgpackSerializer, Serializer, StringSerializer
from fastkcl.kinesis.shards import ShardMap

__all__ = [
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
