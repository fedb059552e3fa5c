"""`fastkcl bench`: the sources of payloads, the comparison, the output, and the errors before it begins."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastkcl
import pyarrow as pa
import pytest
from fastkcl.bench import batch as batches
from fastkcl.bench import peers, run
from fastkcl.bench.turns import Turns
from fastkcl.replay import SourceError

COMMAND = [sys.executable, "-m", "fastkcl", "bench"]


def bench(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=240)


def test_elsewhere_than_on_linux_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTKCL_PORTABLE", "1")
    done = bench()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: fastkcl bench needs Linux")


def data_of(batch: batches.Batch) -> list[bytes | None]:
    message = fastkcl.decode_line(batch.line)
    assert isinstance(message, fastkcl.ProcessRecords)
    return pa.record_batch(message.batch)["data"].to_pylist()


def test_payloads_of_lines(tmp_path: Path) -> None:
    packed = tmp_path / "payloads.gz"
    packed.write_bytes(gzip.compress(b'{"a":1}\r\n\nlast'))
    batch = batches.of_lines(packed)
    assert (batch.records, batch.distinct) == (9999, 3)
    assert data_of(batch) == [b'{"a":1}', b"", b"last"] * 3333


def test_payloads_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\x00\xff")
    (tmp_path / "a").write_bytes(b"1" * 6_000_000)
    (tmp_path / ".hidden").write_bytes(b"no")
    (tmp_path / "folder").mkdir()
    batch = batches.of_folder(tmp_path)
    assert data_of(batch) == [b"1" * 6_000_000, b"\x00\xff"], "repeated it would be above 10 MiB"


def test_records_with_their_keys_and_nulls(tmp_path: Path) -> None:
    rows = [{"data": base64.b64encode(b"x").decode(), "partitionKey": "ä"}, {"data": None, "partitionKey": "b"}]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    batch = batches.of_records(path)
    assert data_of(batch)[:3] == [b"x", None, b"x"]
    message = fastkcl.decode_line(batch.line)
    assert isinstance(message, fastkcl.ProcessRecords)
    assert pa.record_batch(message.batch)["partitionKey"].to_pylist()[:2] == ["ä", "b"]


def test_a_batch_is_cut_where_a_daemon_cuts_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x\n" * 10_001)
    assert batches.of_lines(path).records == batches.MAX_RECORDS
    path.write_bytes((b"y" * (4 << 20) + b"\n") * 3)
    assert batches.of_lines(path).payload_bytes == 8 << 20


def test_a_payload_that_no_record_can_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"z" * batches.MAX_BYTES + b"\n")
    assert batches.of_lines(path).payload_bytes == batches.MAX_BYTES
    path.write_bytes(b"x\n" + b"z" * (batches.MAX_BYTES + 1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "long").write_bytes(b"z" * (batches.MAX_BYTES + 1))
    with pytest.raises(SourceError, match=r"folder: payload 1 has 10,485,761 bytes, and a record at most 10,485,760"):
        batches.of_folder(tmp_path / "folder")
    done = bench("--file", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "lines: payload 2 has 10,485,761 bytes" in done.stderr


@pytest.mark.parametrize("content", [b"", gzip.compress(b"x")[:-4]], ids=["empty", "torn"])
def test_what_cannot_be_read_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "payloads.gz"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="payloads.gz: "):
        batches.of_lines(path)


def test_a_report_of_own_payloads(tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_bytes(b"one\ntwo\n")
    done = bench("--file", path, "--rounds", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["batch"]["from"] == str(path)
    assert report["batch"]["records"] == 10_000
    in_process, *pipes = report["suites"]
    assert {"fastkcl", peers.STDLIB} <= set(in_process["peers"])
    assert any(name.startswith("amazon_kclpy") for name in in_process["peers"])
    for suite in report["suites"]:
        assert suite["not_measured"] == {}
        assert suite["peers"]["fastkcl"]["fastkcl_is_faster_by"] == 1
        assert all(0 < figures["seconds_p10"] <= figures["seconds_p90"] for figures in suite["peers"].values())
    for suite in pipes:
        for figures in suite["peers"].values():
            assert figures["cpu_seconds_per_gb"] > 0
            assert figures["idle_resident_bytes"] > 1_000_000


def test_a_table_for_people(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"0123456789")
    done = bench(tmp_path, "--rounds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10,000 records (1, repeated)" in done.stdout
    for word in ("in process", "child on a pipe", "fastkcl", "bare reader", "CPU s/GB"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--profile", "iot", "--file", __file__], "give only one source of payloads: --file or --profile"),
        (["--file", "/nowhere"], "does not exist"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--input", __file__], "no JSON"),
    ],
)
def test_what_it_cannot_begin_with(args: list[str], says: str) -> None:
    done = bench(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def installed(**more: peers.Decode) -> dict[str, peers.Decode]:
    found = peers.installed()
    return {peers.OURS: found[peers.OURS], peers.STDLIB: found[peers.STDLIB]} | more


def test_another_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(line: bytes) -> pa.RecordBatch:
        raise ValueError("no")

    decoders = installed(short=lambda line: peers.installed()[peers.STDLIB](line).slice(1), fails=fails)
    monkeypatch.setattr(peers, "installed", lambda: decoders)
    monkeypatch.setattr(run, "PLACEMENTS", {})
    (suite,) = run.measure(batches.of_profile("tiny"), rounds=1).suites
    assert list(suite.figures) == [peers.OURS, peers.STDLIB]
    assert suite.unequal == {"short": "its result differs from that of json and base64", "fails": "ValueError: no"}


def test_another_result_of_ours_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = installed()
    decoders[peers.OURS] = lambda line: decoders[peers.STDLIB](line).slice(1)
    monkeypatch.setattr(peers, "installed", lambda: decoders)
    with pytest.raises(run.BenchError, match="fastkcl: its result differs"):
        run.measure(batches.of_profile("tiny"), rounds=1)


def test_a_child_with_another_result_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in ("columns.py", "kclpy.py", "bare.py"):
        source = (run.PROGRAMS / program).read_text()
        (tmp_path / program).write_text(source.replace("file.write(columns)", "file.write(columns.slice(1))"))
    monkeypatch.setattr(run, "PROGRAMS", tmp_path)
    with pytest.raises(run.BenchError, match="the child of fastkcl: its first batch differs"):
        run.measure(batches.of_profile("tiny"), rounds=1)


def test_ways_take_turns_and_quick_ones_are_warmed_up() -> None:
    called: list[str] = []

    def way(name: str, seconds: float) -> dict[str, float]:
        called.append(name)
        return {"seconds": seconds + called.count(name) / 1e6}

    turns = Turns({"quick": lambda: way("quick", 0.001), "slow": lambda: way("slow", 0.1)})
    turns.round()
    turns.round()
    assert called == (["quick"] * 4 + ["slow"]) * 2
    assert turns.samples["quick"]["seconds"] == pytest.approx([0.001003, 0.001007]), "median of all but the first"
    assert turns.samples["slow"]["seconds"] == pytest.approx([0.100001, 0.100002])
