"""Reports records that a stream has trimmed: by one ERROR, a count, and an exception if the program wants one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.metrics import MetricsCollector, MetricType
from fastkcl.kinesis.read.trimmed import DataLoss
from fastkcl.stdio.log import module_logger

__all__ = ["OnDataLoss", "report_loss"]

log = module_logger(__name__)

OnDataLoss = Literal["continue", "raise"]


def report_loss(loss: DataLoss, on_data_loss: OnDataLoss, metrics: MetricsCollector, labels: Mapping[str, str]) -> None:
    """Report that a position was trimmed.

    Args:
        loss: which.
        on_data_loss: whether that stops the program.
        metrics: where it is counted.
        labels: of the count; stream_name is one of them.

    Raises:
        DataLossError: it does.
    """
    way = (
        'on_data_loss="continue" reads the remaining records'
        if on_data_loss == "raise"
        else 'the remaining records are read; on_data_loss="raise" stops here'
    )
    message = f"{labels['stream_name']}/{loss}; {way}"
    metrics.increment(MetricType.CONSUMER_DATA_LOSS, 1, dict(labels))
    log.error("%s", message)
    if on_data_loss == "raise":
        raise DataLossError(message, loss.shard_id, loss.position, loss.oldest)
