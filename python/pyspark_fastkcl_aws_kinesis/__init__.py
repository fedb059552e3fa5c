"""Registers fastkcl's source with Spark by the name of awslabs' connector, ``aws-kinesis``, with its columns."""

from __future__ import annotations

from typing import ClassVar

import pyspark_fastkcl_kinesis


class DefaultSource(pyspark_fastkcl_kinesis.DefaultSource):
    """Streams of Kinesis, as rows of awslabs' connector; see `fastkcl.spark.source`."""

    fastkcl_names: ClassVar[dict[str, str]] = {"stream": "streamName"}

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "aws-kinesis"
