"""Kinesis Data Streams without a daemon.

    processors ── aggregator + serializer ─▶ what a record holds
    put ──▶ aggregate ──▶ shards          PutRecords in batches, KPL aggregates, which shard a key belongs to
    decode_get_records ──▶ deaggregate    answers and aggregates into Arrow columns, in Rust
    metrics                               what clients count, in memory or for Prometheus
    install_botocore                      the same for programs that use boto3 or aiobotocore

Rules: needs the extra ``kinesis``.
"""

from fastkcl._core import ChildShard, Deaggregated, GetRecordsAnswer, deaggregate, decode_get_records
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
from fastkcl.kinesis.exceptions import DeserializeError, ExceededPutLimit, ValidationError
from fastkcl.kinesis.metrics import (
    METRICS,
    InMemoryMetricsCollector,
    Metric,
    MetricsCollector,
    MetricType,
    NoOpMetricsCollector,
    PrometheusMetricsCollector,
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
from fastkcl.kinesis.put import Filler, PutError, PutOptions, PutReport
from fastkcl.kinesis.serializers import JsonSerializer, MsgpackSerializer, Serializer, StringSerializer
from fastkcl.kinesis.shards import ShardMap

__all__ = [
    "Aggregator",
    "BaseAggregator",
    "BotocoreHook",
    "ChildShard",
    "Deaggregated",
    "DeserializeError",
    "Entry",
    "ExceededPutLimit",
    "Filler",
    "GetRecordsAnswer",
    "GetRecordsResponse",
    "JsonLineProcessor",
    "JsonListProcessor",
    "JsonProcessor",
    "JsonSerializer",
    "KPLAggregator",
    "KPLJsonProcessor",
    "KPLStringProcessor",
    "ListAggregator",
    "MsgpackProcessor",
    "MsgpackSerializer",
    "NetstringAggregator",
    "NewlineAggregator",
    "OutputItem",
    "Processor",
    "PutError",
    "PutOptions",
    "PutReport",
    "Serializer",
    "ShardMap",
    "SimpleAggregator",
    "StringProcessor",
    "StringSerializer",
    "UserRecord",
    "ValidationError",
    "deaggregate",
    "decode_get_records",
    "install_botocore",
    "METRICS",
    "InMemoryMetricsCollector",
    "Metric",
    "MetricType",
    "MetricsCollector",
    "NoOpMetricsCollector",
    "PrometheusMetricsCollector",
    "get_metrics_collector",
    "reset_metrics_collector",
    "set_metrics_collector",
]
