"""KCL's lease table, written by others than KCL: made ahead of a daemon, and a lease taken away from it.

A daemon that finds no leases waits for a random time of up to half a minute before it makes them. One that finds them
starts with its first batch within seconds, as a test needs it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["checkpoints", "seed_leases", "steal_lease"]


def seed_leases(
    kinesis: Any,  # noqa: ANN401 - boto3's clients have no types
    dynamodb: Any,  # noqa: ANN401
    *,
    application: str,
    stream: str,
    position: str = "TRIM_HORIZON",
) -> None:
    """Write the lease table of an application, in the place of the one that may be there.

    Args:
        kinesis: a boto3 client.
        dynamodb: a boto3 client.
        application: the daemon's ``applicationName``, which names the table.
        stream: whose shards the leases are for: all that are listed and have no parent that is.
        position: where each shard is to be read from: ``TRIM_HORIZON``, ``LATEST`` or a sequence number.
    """
    try:
        dynamodb.delete_table(TableName=application)
        dynamodb.get_waiter("table_not_exists").wait(TableName=application, WaiterConfig={"Delay": 1})
    except dynamodb.exceptions.ResourceNotFoundException:
        pass
    dynamodb.create_table(
        TableName=application,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
    )
    dynamodb.get_waiter("table_exists").wait(TableName=application, WaiterConfig={"Delay": 1})
    shards = [
        shard for page in kinesis.get_paginator("list_shards").paginate(StreamName=stream) for shard in page["Shards"]
    ]
    listed = {shard["ShardId"] for shard in shards}
    for shard in shards:
        if listed & {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")}:
            continue
        hash_keys = shard["HashKeyRange"]
        dynamodb.put_item(
            TableName=application,
            Item={
                "leaseKey": {"S": shard["ShardId"]},
                "leaseCounter": {"N": "0"},
                "ownerSwitchesSinceCheckpoint": {"N": "0"},
                "checkpoint": {"S": position},
                "checkpointSubSequenceNumber": {"N": "0"},
                "startingHashKey": {"S": hash_keys["StartingHashKey"]},
                "endingHashKey": {"S": hash_keys["EndingHashKey"]},
            },
        )


def steal_lease(dynamodb: Any, *, application: str, shard_id: str, owner: str = "thief") -> None:  # noqa: ANN401
    """Give a lease to a worker that is not there: who has it sees that at the next renewal, and loses the shard.

    As the new owner never renews it, it can be taken again after the daemon's ``failoverTimeMillis``.

    Args:
        dynamodb: a boto3 client.
        application: the daemon's ``applicationName``.
        shard_id: whose lease.
        owner: the worker's name.
    """
    dynamodb.update_item(
        TableName=application,
        Key={"leaseKey": {"S": shard_id}},
        UpdateExpression="SET leaseOwner = :owner, leaseCounter = leaseCounter + :step",
        ConditionExpression="attribute_exists(leaseKey)",
        ExpressionAttributeValues={":owner": {"S": owner}, ":step": {"N": "1000"}},
    )


def checkpoints(dynamodb: Any, *, application: str) -> dict[str, tuple[str, int]]:  # noqa: ANN401
    """Where the leases stand.

    Args:
        dynamodb: a boto3 client.
        application: the daemon's ``applicationName``.

    Returns:
        By shard id: checkpoint (a sequence number, or a word like ``SHARD_END``) and sub-sequence number.
    """
    pages = dynamodb.get_paginator("scan").paginate(TableName=application, ConsistentRead=True)
    return {
        item["leaseKey"]["S"]: (item["checkpoint"]["S"], int(item["checkpointSubSequenceNumber"]["N"]))
        for page in pages
        for item in page["Items"]
        if "checkpoint" in item
    }
