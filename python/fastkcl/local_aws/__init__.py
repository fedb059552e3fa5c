"""Kinesis, DynamoDB and CloudWatch on one loopback port, for laptops and tests: ``fastkcl local-aws``.

    from fastkcl.local_aws import Fault, LocalAws

    with LocalAws(streams={"orders": 4}) as aws:
        aws.client("kinesis").put_record(StreamName="orders", PartitionKey="k", Data=b"...")

Kinesis is our own, since consumers depend on its details: sequence numbers, closed shards that end, iterators that
expire, throttling. DynamoDB and CloudWatch are moto's. HTTP is hypercorn's, which speaks HTTP/1.1 and HTTP/2 with prior
knowledge on one port, so that one URL serves boto3 and Java daemons of all generations.

    process ── starts ──▶ server ──▶ app ──▶ kinesis ──▶ streams ──▶ shards          no I/O, no clock
                                      │        └─▶ validation, throughput, whims
                                      ├─▶ faults, wire, event_stream, journal
                                      └─▶ other_services (moto)
    leases                            KCL's lease table, for tests of daemons

Rules: needs the extra ``local``; nothing else of the package imports it, except its commands.
"""

from fastkcl.local_aws.faults import Fault, FaultError
from fastkcl.local_aws.leases import checkpoints, seed_leases, steal_lease
from fastkcl.local_aws.process import LocalAws, LocalAwsError

__all__ = ["Fault", "FaultError", "LocalAws", "LocalAwsError", "checkpoints", "seed_leases", "steal_lease"]
