"""The table of commands: names, one line of help each, the module of the command, and the extras that it needs.

It needs only the standard library, because the base install also lists commands from it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Entry", "missing_extras"]


class Entry(NamedTuple):
    """One command."""

    module: str
    command: str
    help: str
    extras: tuple[str, ...] = ("cli",)
    """Without them it cannot start; some of its options may need more."""


COMMANDS: Final = {
    "demo": Entry(
        "fastkcl.cli.demo",
        "demo",
        "Send generated shards through children into Spark; check them.",
        ("cli", "spark"),
    ),
    "replay": Entry("fastkcl.cli.replay", "replay", "Play the daemon for a child program, with faults on demand."),
    "run": Entry("fastkcl.cli.run", "run", "Run an unchanged amazon_kclpy program, decoded in Rust.", ()),
    "daemon": Entry("fastkcl.cli.daemon", "daemon", "Start the Java daemon for a stream, and supervise it."),
    "load": Entry(
        "fastkcl.cli.load", "load", "Read a stream into a table, each record exactly once.", ("cli", "kinesis", "arrow")
    ),
    "inspect": Entry("fastkcl.cli.inspect", "inspect", "Show or convert captured lines of the protocol."),
    "bench": Entry(
        "fastkcl.cli.bench", "bench", "Measure fastkcl on your payloads, beside other ways to decode.", ("cli", "arrow")
    ),
    "sink": Entry(
        "fastkcl.cli.sink", "sink", "Inspect and maintain a table that a worker has written.", ("cli", "arrow")
    ),
    "local-aws": Entry(
        "fastkcl.cli.local_aws",
        "local_aws",
        "Serve Kinesis, DynamoDB and CloudWatch on one loopback port.",
        ("cli", "local"),
    ),
    "put": Entry("fastkcl.cli.put", "put", "Fill a Kinesis stream, local or real, with records.", ("cli", "kinesis")),
    "kinesis": Entry(
        "fastkcl.cli.kinesis", "kinesis", "Show streams, tail them, and put lines into them.", ("cli", "kinesis")
    ),
    "spark": Entry(
        "fastkcl.cli.spark",
        "spark",
        "Show the Spark source at work, deaths included.",
        ("cli", "spark", "local"),
    ),
    "dkb": Entry("fastkcl.cli.dkb", "dkb", "Run pipelines of stages that speak the DKB stream protocol."),
    "version": Entry(
        "fastkcl.cli.version", "version", "Show versions of fastkcl and companions, and the CPU backend.", ()
    ),
}

_PACKAGES = {
    "cli": ("click", "rich"),
    "arrow": ("pyarrow",),
    "spark": ("pyspark", "pyarrow"),
    "kinesis": ("aiobotocore", "boto3"),
    "local": ("moto", "hypercorn"),
}
"""Packages without which an extra is not there."""


def missing_extras(entry: Entry) -> str:
    """The extras to install for a command, as ``cli,kinesis``; empty if it can start."""
    absent = [extra for extra in entry.extras if not all(map(find_spec, _PACKAGES[extra]))]
    return ",".join(absent)
