"""Idioms of tests of consumers that end in another way with fastkcl: prints how, one idiom a line, as JSON.

A line has the idiom's name, the processor's calls, and the exception from `run()` or the call: the classes of an
exception, by name, none if there was none.
"""

import io
import json
from unittest import mock

from amazon_kclpy import kcl, messages

RECORD = {
    "action": "record",
    "data": "bWVvdw==",
    "partitionKey": "cat",
    "sequenceNumber": "456",
    "subSequenceNumber": 0,
    "approximateArrivalTimestamp": 1700000000123,
}
INITIALIZE = {"action": "initialize", "shardId": "shardId-1", "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0}
BATCH = {"action": "processRecords", "millisBehindLatest": 0, "records": [RECORD]}


class Processor(kcl.RecordProcessorBase):
    seen = []

    def initialize(self, shard_id):
        pass

    def process_records(self, records, checkpointer):
        self.seen = attempt(checkpointer.checkpoint)


def attempt(call, *arguments):
    """The names of an exception's classes; none if there is none."""
    try:
        call(*arguments)
    except Exception as error:
        return [cls.__name__ for cls in type(error).__mro__[:-2]]
    return []


def patch(name):
    with mock.patch(name):
        pass


def less(fields, name):
    return {key: value for key, value in fields.items() if key != name}


def serve(*lines):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    processor = Processor()
    ended = attempt(kcl.KCLProcess(processor, io.StringIO(text), io.StringIO(), io.StringIO()).run)
    return processor.seen, ended


for module in ("kcl.json", "kcl.traceback", "messages.base64", "messages.datetime"):
    print(json.dumps([f"patch {module}", [], attempt(patch, f"amazon_kclpy.{module}")]))
print(json.dumps(["no JSON", *serve("nonsense\n")]))
for field in RECORD:
    if field != "action":
        print(json.dumps([f"a record's line without {field}", *serve(dict(BATCH, records=[less(RECORD, field)]))]))
        print(json.dumps([f"a record's dict without {field}", [], attempt(messages.Record, less(RECORD, field))]))
print(json.dumps(["a batch without millisBehindLatest", *serve(less(BATCH, "millisBehindLatest"))]))
print(json.dumps(["no answer", *serve(INITIALIZE, BATCH)]))
print(json.dumps(["another line instead of an answer", *serve(INITIALIZE, BATCH, BATCH)]))
