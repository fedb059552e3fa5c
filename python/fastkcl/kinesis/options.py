"""Options that consumers and producers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from fastkcl.kinesis.metrics import MetricsCollector

__all__ = ["StreamOptions"]


class StreamOptions(TypedDict, total=False):
    """Options that consumers and producers have in common.

    Attributes:
        session: aiobotocore's AioSession, with its credentials; a new one by default.
        endpoint_url: of another service than AWS, e.g. local AWS.
        region_name: by default that of the ARN, or of the session.
        retry_limit: how often to try again in an outage, 0 or more; 5 by default.
        expo_backoff: seconds: the n-th attempt waits n² times this long. By default each waits 5 s.
        expo_backoff_limit: the longest wait, in seconds.
        skip_describe_stream: do not look at the stream first. A consumer asks ListShards for its shards then.
        use_list_shards: list shards with ListShards, and with DescribeStream where that fails.
        create_stream: make the stream if it is not there.
        create_stream_shards: with so many shards, 1 or more.
        describe_timeout: seconds until the stream has to be ACTIVE.
        metrics_collector: for the counts; the global collector by default.
    """

    session: Any
    endpoint_url: str | None
    region_name: str | None
    retry_limit: int | None
    expo_backoff: float | None
    expo_backoff_limit: float
    skip_describe_stream: bool
    use_list_shards: bool
    create_stream: bool
    create_stream_shards: int
    describe_timeout: float
    metrics_collector: MetricsCollector | None
