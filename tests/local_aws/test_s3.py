"""S3 as local AWS has it, for tables: lengths of answers, keys as they were given, and creations that are exclusive."""

from __future__ import annotations

import threading
import urllib.request

import pytest
from botocore.exceptions import ClientError
from fastkcl.local_aws import LocalAws
from local_aws_helpers import client, new_name
from waiting import PATIENCE


@pytest.fixture
def bucket(aws: LocalAws) -> str:
    name = new_name("lake")
    client(aws, "s3").create_bucket(Bucket=name)
    return name


def test_head_and_get_have_a_length(aws: LocalAws, bucket: str) -> None:
    s3 = client(aws, "s3")
    s3.put_object(Bucket=bucket, Key="a", Body=b"0123456789")
    for method, body in (("head", b""), ("get", b"0123456789")):
        url = s3.generate_presigned_url(f"{method}_object", Params={"Bucket": bucket, "Key": "a"})
        with urllib.request.urlopen(urllib.request.Request(url, method=method.upper()), timeout=60) as answer:
            assert (answer.headers["Content-Length"], answer.read()) == ("10", body)
    part = client(aws, "s3").get_object(Bucket=bucket, Key="a", Range="bytes=2-4")
    assert (part["ContentLength"], part["Body"].read()) == (3, b"234")


@pytest.mark.parametrize("key", ["a%2Fb", "a b", "a+b", "a%25b", "stream=@@C3@BC/x", "ü"])
def test_a_key_is_decoded_once(aws: LocalAws, bucket: str, key: str) -> None:
    s3 = client(aws, "s3")
    s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"x"


def test_one_of_many_creations_at_once_succeeds(aws: LocalAws, bucket: str) -> None:
    barrier = threading.Barrier(6)
    made: list[int] = []
    refused: list[int] = []

    def create(who: int) -> None:
        s3 = client(aws, "s3")
        barrier.wait(PATIENCE)
        try:
            s3.put_object(Bucket=bucket, Key="a", Body=str(who).encode(), IfNoneMatch="*")
        except ClientError as error:
            refused.append(error.response["ResponseMetadata"]["HTTPStatusCode"])
        else:
            made.append(who)

    threads = [threading.Thread(target=create, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(made) == 1
    assert len(refused) == 5
    assert set(refused) <= {409, 412}
    assert client(aws, "s3").get_object(Bucket=bucket, Key="a")["Body"].read() == str(made[0]).encode()
