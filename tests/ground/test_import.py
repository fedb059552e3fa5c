"""The names of `import fastkcl`, and costs that it must not have."""

from __future__ import annotations

import subprocess
import sys

import fastkcl
import pytest
from kcl_helpers import LEASE_LOST, Child, process_records, status

NAMES = [
    *("BatchProcessor", "Checkpointer", "ShardContext", "processor", "run"),
    *(
        "CheckpointError",
        "ConfigurationError",
        "DecodeError",
        "LocalProtocolError",
        "ProtocolError",
        "RemoteProtocolError",
    ),
    *("Decoder", "Position", "Reader", "Record", "RecordBatch", "decode_line"),
    *("Checkpoint", "Initialize", "LeaseLost", "ProcessRecords", "ShardEnded", "Shutdown", "ShutdownRequested"),
    "__version__",
]

# A child that imports `typing` starts 10 ms later (medians of 40, in turns: 26.9 ms after 15.7) and takes 1.6 MB more;
# with `dataclasses` it is 20 ms and 2.7 MB. Each shard pays them, and a start-up of 1.5 of amazon_kclpy's is the bound:
# it is at 1.0 without them, would be at 1.4 and at 1.8.
SLOW = {
    *("asyncio", "collections", "dataclasses", "datetime", "enum", "inspect", "json", "logging", "pathlib", "re"),
    *("threading", "traceback", "typing"),
}
FOREIGN = {
    *("arro3", "click", "msgspec", "nanoarrow", "orjson", "pandas", "polars", "pyarrow", "pyspark", "rich"),
    *("deltalake", "obstore", "pyiceberg", "sqlalchemy", "typing_extensions"),
}


def test_public_names() -> None:
    assert sorted(fastkcl.__all__) == sorted(NAMES)
    for name in NAMES:
        assert hasattr(fastkcl, name)
    assert set(fastkcl.__all__) <= set(dir(fastkcl))


def test_errors_are_what_callers_catch() -> None:
    assert issubclass(fastkcl.LocalProtocolError, fastkcl.ProtocolError)
    assert issubclass(fastkcl.RemoteProtocolError, fastkcl.ProtocolError)
    assert issubclass(fastkcl.DecodeError, ValueError)
    assert not issubclass(fastkcl.CheckpointError, fastkcl.ProtocolError)
    error = fastkcl.RemoteProtocolError("json", "no JSON", "READY")
    assert (str(error), error.kind, error.what, error.state) == ("json: no JSON", "json", "no JSON", "READY")


def test_the_import_loads_nothing_but_the_package() -> None:
    source = (
        "import sys; before = set(sys.modules); import fastkcl;"
        " print([m for m in set(sys.modules) - before if not m.startswith('fastkcl')])"
    )
    loaded = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() in ("['__future__']", "[]")


@pytest.mark.parametrize("form", ["function", "class"])
def test_a_childs_whole_dialogue_loads_nothing_slow(form: str) -> None:
    processors = {
        "function": "@fastkcl.processor\ndef processor(batch):\n    pass\n",
        "class": (
            "class Processor(fastkcl.BatchProcessor):\n"
            "    def process_batch(self, batch, checkpointer):\n        checkpointer.checkpoint(batch.last_position)\n"
            "processor = Processor()\n"
        ),
    }
    source = (
        "import sys, fastkcl\n" + processors[form] + "fastkcl.run(processor)\n"
        "print(' '.join(name.partition('.')[0] for name in sys.modules))\n"
    )
    with Child("-I", "-c", source) as child:
        child.daemon.start()
        child.daemon.send(process_records(1))
        message = child.daemon.receive()
        assert message is not None
        assert message["action"] == "checkpoint"
        child.daemon.send(b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":null}\n')
        assert child.daemon.receive() == status("processRecords")
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert code == 0
    # signal, which only the standard library's enum makes slow, is what a run costs on top of the import
    allowed = ({"enum", "collections", "typing", "re"} & _loaded_by("signal")) | _loaded_by("sys")
    assert set(stderr.split()) & ((SLOW | FOREIGN) - allowed) == set()


def _loaded_by(module: str) -> set[str]:
    source = f"import {module}, sys; print(' '.join(name.partition('.')[0] for name in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True, check=True).stdout.split()
    )


def test_a_stitch_loads_nothing_slow_but_threading() -> None:
    source = (
        "import sys; before = set(sys.modules); import fastkcl.processv1;"
        " print(' '.join(name.partition('.')[0] for name in set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) & ((SLOW | FOREIGN) - {"collections", "threading"}) == set()


@pytest.mark.parametrize("arguments", ["kinesis tail --help", "local-aws --help"])
def test_a_command_loads_no_service_before_it_calls_one(arguments: str) -> None:
    source = (
        f"import sys; sys.argv = ['fastkcl', *{arguments.split()}]\nimport fastkcl.__main__ as program\n"
        "try:\n    program.main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0
    assert set(done.stderr.split()) & {"aiobotocore", "boto3", "botocore", "moto", "pyarrow"} == set()


def test_local_aws_loads_moto_with_the_first_request_for_it() -> None:
    source = (
        "import sys; from fastkcl.local_aws.other_services import HttpRequest, OtherServices; import"
        " fastkcl.local_aws.server; others = OtherServices(); print('moto' in sys.modules);"
        " others.call(HttpRequest('GET', '/', [], b'')); print('moto' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_tables_load_no_format_before_one_is_opened() -> None:
    """A child without a format's library starts, and starts as fast."""
    assert _loaded_by("fastkcl.tables") & {"deltalake", "obstore", "pyarrow", "pyiceberg", "sqlalchemy"} == set()
