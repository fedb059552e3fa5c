"""Puts words into a Kinesis stream, for word_consumer.py. Needs boto3 and credentials; AWS_ENDPOINT_URL is followed.

python examples/word_putter.py --stream words --region eu-central-1 --seconds 10 cat dog bird
"""

import argparse
import sys
import time

import boto3


def put(client, stream, words):
    """Put each word as a record of its own, keyed by itself; those that were throttled again, until all are in."""
    waiting = [{"Data": word.encode(), "PartitionKey": word} for word in words]
    while waiting:
        answer = client.put_records(StreamName=stream, Records=waiting)
        refused = [record for record, result in zip(waiting, answer["Records"], strict=True) if "ErrorCode" in result]
        if refused:
            print(f"{len(refused)} of {len(waiting)} words were refused, again in a second", file=sys.stderr)
            time.sleep(1)
        waiting = refused


def main():
    """Read the command line and put words until the time is over."""
    parser = argparse.ArgumentParser(description="Put words into a Kinesis stream.")
    parser.add_argument("words", nargs="+", help="the words; once a second, all of them")
    parser.add_argument(
        "--stream", required=True, help="name of the stream; it is made, with one shard, if it is missing"
    )
    parser.add_argument("--region", help="AWS region [default: of the AWS configuration]")
    parser.add_argument("--seconds", type=int, default=10, help="how long [default: %(default)s]")
    arguments = parser.parse_args()
    client = boto3.client("kinesis", region_name=arguments.region)
    try:
        client.describe_stream_summary(StreamName=arguments.stream)
    except client.exceptions.ResourceNotFoundException:
        client.create_stream(StreamName=arguments.stream, ShardCount=1)
        client.get_waiter("stream_exists").wait(StreamName=arguments.stream)
    for second in range(arguments.seconds):
        if second:
            time.sleep(1)
        put(client, arguments.stream, arguments.words)
    print(f"{arguments.seconds * len(arguments.words)} words are in {arguments.stream}", file=sys.stderr)


if __name__ == "__main__":
    main()
