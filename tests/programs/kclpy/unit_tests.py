"""The idioms of unit tests of consumers: text files in memory, mocks, messages made from dicts. At last, serves a
shard."""

import io
import json
from unittest import mock

import observe
from amazon_kclpy import dispatch, kcl, messages
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3

RECORD = {
    "action": "record",
    "data": "bWVvdw==",
    "partitionKey": "cat",
    "sequenceNumber": "456",
    "subSequenceNumber": 3,
    "approximateArrivalTimestamp": 1476889707001,
    "extra": [1],
}
INITIALIZE = {"action": "initialize", "shardId": "shardId-123", "sequenceNumber": "456", "subSequenceNumber": 0}
BATCH = {"action": "processRecords", "millisBehindLatest": 5, "records": [RECORD]}
REFUSED = {"action": "checkpoint", "sequenceNumber": "456", "subSequenceNumber": 0, "error": "Exception"}
GRANTED = {"action": "checkpoint", "sequenceNumber": "456", "subSequenceNumber": 0}
SHARD_ENDED = {"action": "shardEnded"}


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)

    def process_records(self, records, checkpointer):
        log("process_records", observe.records(records))
        for _ in range(2):
            log("checkpoint", observe.attempt(checkpointer.checkpoint, "456"))

    def shutdown(self, checkpointer, reason):
        log("shutdown", reason)


def serve(processor, *messages):
    """Whole dialogues in memory."""
    output, errors = io.StringIO(), io.StringIO()
    lines = "\n".join(json.dumps(message) for message in messages)
    ended = observe.attempt(kcl.KCLProcess(processor, io.StringIO(lines), output, errors).run)
    log("served", ended.split()[:2], output.getvalue(), errors.getvalue().split("Traceback")[0])


def files_in_memory():
    serve(Processor(), INITIALIZE, BATCH, REFUSED, GRANTED, SHARD_ENDED)
    serve(mock.Mock(initialize=mock.Mock(side_effect=OSError("no such table"))), INITIALIZE)
    serve(Processor(), {"action": "invalid"})
    serve(Processor(), {"act": 1})
    serve(Processor())


def bytes_in_memory():
    output = io.StringIO()
    lines = b"\n".join(json.dumps(message).encode() for message in (INITIALIZE, BATCH, REFUSED, GRANTED, SHARD_ENDED))
    process = kcl.KCLProcess(Processor(), io.BytesIO(lines), output, output)
    log("served", observe.attempt(process.run), output.getvalue())


def handlers():
    """A checkpointer and a process on handlers that are not the package's."""
    for handler in (mock.Mock(), mock.Mock(spec=kcl._IOHandler), mock.MagicMock()):
        handler.read_line.side_effect = map(json.dumps, [REFUSED, GRANTED])
        handler.load_action.side_effect = lambda line: json.loads(line, object_hook=dispatch.message_decode)
        checkpointer = kcl.Checkpointer(handler)
        log("checkpoint", [observe.attempt(checkpointer.checkpoint, "456", 0) for _ in range(2)])
        log("write_action", [repr(call) for call in handler.write_action.call_args_list])

    class Handler:
        lines = [*map(json.dumps, [INITIALIZE, BATCH, GRANTED, GRANTED]), ""]

        def read_line(self):
            return self.lines.pop(0)

        def load_action(self, line):
            return json.loads(line, object_hook=dispatch.message_decode)

        def write_action(self, response):
            log("write_action", response)

    process = kcl.KCLProcess(Processor(), io.StringIO(), io.StringIO(), io.StringIO())
    process.io_handler = process.checkpointer.io_handler = Handler()
    log("run", observe.attempt(process.run))

    output = io.StringIO()
    handler = kcl._IOHandler(io.StringIO("one\ntwo"), output, output)
    handler.write_line("a line")
    handler.write_action({"action": "status", "of": None, "text": "\u00fc"})
    handler.write_error("an error")
    log("handler", [handler.read_line() for _ in range(3)], output.getvalue())
    log("handler", observe.message(handler.load_action(json.dumps(INITIALIZE))))


def private_methods():
    process = kcl.KCLProcess(mock.Mock(spec=v3.RecordProcessorBase), io.StringIO(), io.StringIO(), io.StringIO())
    with (
        mock.patch.object(process, "_report_done") as report_done,
        mock.patch.object(process, "_perform_action") as perform_action,
    ):
        process._handle_a_line(json.dumps(INITIALIZE))
    log("patched", observe.message(perform_action.call_args.args[0]), repr(report_done.call_args))
    process._perform_action(messages.LeaseLostInput({"action": "leaseLost"}))
    process._report_done("anything")
    process._report_done()
    log("methods", [call[0] for call in process.processor.method_calls], process.io_handler.output_file.getvalue())


def made_from_dicts():
    """Every class, with what it is made of and with a field less each."""
    record = messages.Record(RECORD)
    log("record", observe.record(record), observe.show(record["extra"]), observe.attempt(record.get, "none"))
    for cls, fields in [
        (messages.InitializeInput, INITIALIZE),
        (messages.ProcessRecordsInput, {**BATCH, "records": [record]}),
        (messages.LeaseLostInput, {"action": "leaseLost"}),
        (messages.ShardEndedInput, SHARD_ENDED),
        (messages.ShutdownRequestedInput, {"action": "shutdownRequested"}),
        (messages.CheckpointInput, REFUSED),
        (messages.CheckpointInput, GRANTED),
        (messages.Record, RECORD),
    ]:
        log("made", cls.__name__, observe.message(cls(fields)) if cls is not messages.Record else None)
        for missing in fields:
            less = {name: value for name, value in fields.items() if name != missing}
            log("less", missing, observe.attempt(lambda cls=cls, less=less: type(cls(less)).__name__))
        log("decoded", observe.attempt(lambda fields=fields: type(dispatch.message_decode(fields)).__name__))
    for shutdown in (messages.ShutdownInput("ANY", None), messages.ShutdownInput.zombie()):
        log("shutdown", observe.message(shutdown))
    log("terminate", messages.ShutdownInput.terminate(record).checkpointer is record)
    log("lost", observe.attempt(messages.LeaseLostCheckpointer().checkpoint, "1", 2))
    error = kcl.CheckpointError("Exception")
    log("error", str(error), repr(error), observe.show(error.args), error.value)
    for malformed in ({}, {"action": "x"}):
        log("malformed", observe.attempt(dispatch.message_decode, malformed))
    base = messages.MessageDispatcher()
    log("base", observe.attempt(base.action), observe.attempt(base.dispatch, None, None))


def delegates():
    inputs = [
        messages.InitializeInput(INITIALIZE),
        messages.ProcessRecordsInput(BATCH),
        messages.ShutdownRequestedInput({"action": "shutdownRequested"}),
    ]
    ends = [messages.LeaseLostInput({"action": "leaseLost"}), messages.ShardEndedInput(SHARD_ENDED)]
    for wrap, spec, given in (
        (v2.V1toV2Processor, kcl.RecordProcessorBase, inputs),
        (v3.V2toV3Processor, v2.RecordProcessorBase, [*inputs, *ends]),
    ):
        delegate = mock.Mock(spec=spec)
        wrapped = wrap(delegate)
        log("version", wrapped.version, wrapped.delegate is delegate)
        checkpointer = kcl.Checkpointer(None)
        for each in given:
            log("dispatch", observe.attempt(each.dispatch, checkpointer, wrapped))
            log("checkpointer", getattr(each, "checkpointer", None) is checkpointer)
        for name, arguments, _ in delegate.method_calls:
            shown = [observe.message(each) if hasattr(each, "action") else observe.show(each) for each in arguments]
            log("called", name, shown)
    for base, method in ((kcl, "shutdown"), (v2, "shutdown"), (v3, "lease_lost")):
        unfinished = base.RecordProcessorBase()
        for name in ("initialize", method, "shutdown_requested"):
            count = getattr(unfinished, name).__code__.co_argcount - 1
            log("unfinished", name, observe.attempt(getattr(unfinished, name), *[None] * count))


if __name__ == "__main__":
    log = observe.Log(kcl)
    files_in_memory()
    bytes_in_memory()
    handlers()
    private_methods()
    made_from_dicts()
    delegates()
    kcl.KCLProcess(Processor()).run()
