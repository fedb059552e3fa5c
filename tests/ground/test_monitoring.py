"""Metrics: counters, one JSON line in the log, a file that Prometheus' own parser reads."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fastkcl
import pytest
from clocks import Clock
from fastkcl import monitoring
from fastkcl.monitoring import Metrics, Monitor, prometheus_text
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    SHARD_ENDED,
    Child,
    Daemon,
    checkpoint,
    checkpoint_reply,
    process_records,
    standard_error,
    status,
)
from prometheus_client.parser import text_string_to_metric_families
from sink_replay import CHILD, play
from waiting import wait_until

MARK = "fastkcl: metrics "
FILE = "fastkcl+clicks+shardId-000000000000.prom"
BATCH_BY_BATCH = {"max_bytes": 1, "max_held_bytes": 1}


def reported(stderr: str) -> list[dict[str, Any]]:
    """The JSON lines among what a child has written."""
    return [json.loads(line.removeprefix(MARK)) for line in stderr.splitlines() if line.startswith(MARK)]


def samples(text: str) -> dict[str, tuple[str, dict[str, str], float]]:
    """Type, labels and value by name, as Prometheus reads them; names are unique here."""
    return {
        sample.name: (family.type, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# ---- values -----------------------------------------------------------------------------------------------------


def test_no_age_is_negative_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1000.0)
    monkeypatch.setattr(monitoring.time, "time", clock)
    metrics = Metrics({})
    metrics.timestamp("last_checkpoint", "When.").touch()
    clock.now += 5
    assert metrics.to_dict() == {"last_checkpoint_age_seconds": 5}
    clock.now -= 60
    assert metrics.to_dict() == {"last_checkpoint_age_seconds": 0}


def test_values_in_both_forms() -> None:
    metrics = Metrics({"shard": "s"})
    counter = metrics.counter("write_seconds", "Time in writes.")
    held: list[float | None] = [None]
    metrics.gauge("held_bytes", "Memory.", lambda: held[0])
    stored = metrics.timestamp("last_checkpoint", "When.")
    nothing = {"shard": "s", "write_seconds": 0, "held_bytes": None, "last_checkpoint_age_seconds": None}
    assert metrics.to_dict() == nothing
    assert samples(prometheus_text([metrics])) == {"fastkcl_write_seconds_total": ("counter", {"shard": "s"}, 0)}

    counter.add(1.25)
    counter.add()
    held[0] = 7
    begun = time.time()
    stored.touch()
    found = metrics.to_dict()
    assert 0 <= found.pop("last_checkpoint_age_seconds") <= time.time() - begun + 0.001
    assert found == {"shard": "s", "write_seconds": 2.25, "held_bytes": 7}
    told = samples(prometheus_text([metrics]))
    assert told["fastkcl_write_seconds_total"] == ("counter", {"shard": "s"}, 2.25)
    assert told["fastkcl_held_bytes"] == ("gauge", {"shard": "s"}, 7)
    assert begun <= told["fastkcl_last_checkpoint_timestamp_seconds"][2] <= time.time()


def test_a_text_is_a_label_for_prometheus() -> None:
    metrics = Metrics({"query": "q"})
    known: list[str | None] = [None]
    metrics.info("slowest_shard", "Which one.", "shard", lambda: known[0])
    assert (metrics.to_dict(), prometheus_text([metrics])) == ({"query": "q", "slowest_shard": None}, "")
    known[0] = "orders/shardId-000000000001"
    assert metrics.to_dict() == {"query": "q", "slowest_shard": known[0]}
    assert samples(prometheus_text([metrics])) == {
        "fastkcl_slowest_shard_info": ("gauge", {"query": "q", "shard": known[0]}, 1)
    }


def test_what_cannot_be_counted() -> None:
    metrics = Metrics()
    counter = metrics.counter("records", "Records.")
    for amount in (-1, float("nan")):
        with pytest.raises(ValueError, match="only grows"):
            counter.add(amount)
    assert counter.value == 0
    with pytest.raises(ValueError, match="metric records already"):
        metrics.gauge("records", "Again.", lambda: 1)


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\\nb", "a\nb", "ключ", 'end\\"', "", "{},="])
def test_labels_and_help_come_through_prometheus_own_parser(text: str) -> None:
    metrics = Metrics({"stream": text, "shard": "s"})
    metrics.counter("records", text or "x")
    (family,) = text_string_to_metric_families(prometheus_text([metrics]))
    assert (family.name, family.type) == ("fastkcl_records", "counter")
    assert family.documentation == (text or "x")
    (sample,) = family.samples
    assert sample.labels == {"stream": text, "shard": "s"}


def test_several_things_share_a_family() -> None:
    things = [Metrics({"shard": name}) for name in ("a", "b")]
    for number, thing in enumerate(things):
        thing.counter("records", "Records.").add(number)
        thing.counter("bytes", "Bytes.")
    text = prometheus_text(things)
    assert text.count("# TYPE fastkcl_records_total counter\n") == 1
    (records, _) = text_string_to_metric_families(text)
    assert [(sample.labels["shard"], sample.value) for sample in records.samples] == [("a", 0), ("b", 1)]


# ---- a monitor --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_intervals_that_make_no_sense(interval: float) -> None:
    with pytest.raises(ValueError, match="report_interval"):
        Monitor(report_interval=interval)


@pytest.mark.parametrize("name", ["", "a b", "é", "1a", "__name__"])
def test_labels_that_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match="not a name of a label"):
        Monitor(labels={name: "x"})


def test_a_folder_that_cannot_be_one_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            Monitor(metrics_dir=folder)


def test_a_monitor_is_for_one_run() -> None:
    monitor = Monitor(report_interval=None)
    monitor.start({"stream": "s"})
    with pytest.raises(RuntimeError, match="started before"):
        monitor.start({"stream": "s"})
    monitor.stop()


def test_files_of_different_shards_never_have_one_name(tmp_path: Path) -> None:
    labels = [
        {"stream": "a", "shard": "b"},
        {"stream": "a+b", "shard": ""},
        {"stream": "", "shard": "a+b"},
        {"stream": "a/b", "shard": ".."},
        {"stream": "\udcff", "shard": "b"},
    ]
    monitors = [Monitor(report_interval=None, metrics_dir=tmp_path / "new" / "folder") for _ in labels]
    monitors.append(Monitor(report_interval=None, metrics_dir=tmp_path / "new" / "folder", labels={"application": "x"}))
    for monitor, shard in zip(monitors, [*labels, labels[0]], strict=True):
        monitor.start(shard)
    folder = tmp_path / "new" / "folder"
    wait_until(lambda: len(list(folder.glob("*.prom"))) == len(monitors), "a file of each monitor")
    found = [samples(path.read_text())["fastkcl_start_timestamp_seconds"][1] for path in folder.iterdir()]
    assert {"stream": "a", "shard": "b", "application": "x"} in found
    for monitor in monitors:
        monitor.stop()
    assert list(folder.iterdir()) == []


def test_the_file_is_for_others_to_read_whole_and_goes_at_the_end(tmp_path: Path) -> None:
    monitor = Monitor(report_interval=0.001, metrics_dir=tmp_path)
    counter = monitor.metrics.counter("records", "Records.")
    with standard_error() as said:
        monitor.start({"stream": "clicks", "shard": "shardId-000000000000"})
        path = tmp_path / FILE
        wait_until(path.exists, "the file")
        before = os.umask(0o022)
        os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~before
        for number in range(500):  # it is replaced all the time
            counter.add()
            values = samples(path.read_text())
            assert values["fastkcl_records_total"][2] <= number + 1
            assert "fastkcl_start_timestamp_seconds" in values
        monitor.stop()
    assert list(tmp_path.iterdir()) == []
    assert reported(said())[-1]["records"] == 500


def test_a_link_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others may write to, the temporary file has no name that could be guessed."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / f"{FILE}.{os.getpid()}").symlink_to(victim)
    (folder / FILE).symlink_to(victim)
    seen: set[str] = set()
    rename = os.replace

    def replace(temporary: str, path: str) -> None:
        assert not Path(temporary).is_symlink()
        seen.add(temporary)
        rename(temporary, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        for _ in range(2):
            monitor = Monitor(metrics_dir=folder, report_interval=None)
            monitor.start({"stream": "clicks", "shard": "shardId-000000000000"})
            wait_until(lambda: not (folder / FILE).is_symlink(), "the file")
            monitor.stop()
    assert victim.read_text() == "untouched"
    assert len(seen) == 2


def test_a_file_of_another_process_stays(tmp_path: Path) -> None:
    """It has the shard now; and it is its name."""
    monitor = Monitor(report_interval=None, metrics_dir=tmp_path)
    monitor.start({"stream": "clicks", "shard": "shardId-000000000000"})
    path = tmp_path / FILE
    wait_until(path.exists, "the file")
    other = tmp_path / "other"
    other.write_text("another's")
    other.replace(path)
    monitor.stop()
    assert path.read_text() == "another's"


def test_a_report_that_fails_is_told_once_and_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    monitor = Monitor(report_interval=0.005, metrics_dir=folder)
    broken = [True]
    reads: list[None] = []

    def read() -> float:
        reads.append(None)
        if broken[0]:
            raise KeyError("broken")
        return 1

    def some_reports() -> None:
        """Each reads once for the line and once for the file."""
        before = len(reads)
        wait_until(lambda: len(reads) >= before + 6, "three reports")

    monitor.metrics.gauge("held_bytes", "Memory.", read)
    with standard_error() as said:
        monitor.start({"stream": "clicks", "shard": "shardId-000000000000"})
        some_reports()
        broken[0] = False
        wait_until((folder / FILE).exists, "the file")
        folder.rename(tmp_path / "away")
        some_reports()
        folder.mkdir()
        wait_until((folder / FILE).exists, "the file")
        monitor.stop()
    warnings = [line for line in said().splitlines() if "warning" in line]
    assert len([line for line in warnings if "KeyError" in line]) == 2  # the line's, and the file's
    (gone,) = [line for line in warnings if "FileNotFoundError" in line]
    assert FILE in gone
    assert reported(said())[-1]["final"]


# ---- children ---------------------------------------------------------------------------------------------------

PLAIN = """
import fastkcl
from fastkcl.monitoring import Monitor

class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        if len(batch) and batch[0].sequence_number == "13":
            raise ValueError("thirteen")
        checkpointer.checkpoint(batch.last_position)

fastkcl.run(Processor(), stream="clicks"{options})
"""


def test_a_quiet_shard_reports_while_the_child_waits_for_input() -> None:
    with Child("-c", PLAIN.format(options=", monitor=Monitor(report_interval=0.05)")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1, 2), checkpoint("2", 0), status("processRecords"))
        wait_until(
            lambda: len([line for line in reported(child.stderr()) if line["records"] == 2]) >= 3,
            "three lines of two records",
            seen=child.stderr,
        )
        child.daemon.send(process_records(3))
        assert child.daemon.receive() == checkpoint("3", 0)
        child.daemon.send(checkpoint_reply("ShutdownException"))
        code, stderr = child.wait()
    assert code == 1  # the refusal was raised
    last = reported(stderr)[-1]
    assert 0 < last.pop("bytes") < 1000
    for name in ("start_age", "processing", "checkpoint", "last_checkpoint_age"):
        assert last.pop(f"{name}_seconds") >= 0
    assert last.pop("time").endswith("Z")
    assert last.pop("pid") == child.process.pid
    assert last == {
        "final": True,
        "stream": "clicks",
        "shard": "shardId-000000000000",
        "batches": 2,
        "records": 3,
        "behind_latest_seconds": 0.0,
        "checkpoints": 1,
        "checkpoint_errors": 1,
        "dead_letters": 0,
        "dead_letter_records": 0,
        "skipped_records": 0,
    }


@pytest.mark.parametrize("way", ["skip", "dead_letter"])
def test_records_that_failed_are_counted(way: str, tmp_path: Path) -> None:
    choice = {"skip": "on_error='skip'", "dead_letter": f"dead_letter={str(tmp_path)!r}"}[way]
    with Child("-c", PLAIN.format(options=f", {choice}, monitor=Monitor()")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(13, 14, 15), status("processRecords"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert code == 0
    (last,) = reported(stderr)
    letters = (last["dead_letters"], last["dead_letter_records"], last["skipped_records"])
    assert letters == ((0, 0, 3) if way == "skip" else (1, 3, 0))


def test_the_environment_asks_for_a_file_of_a_plain_child(tmp_path: Path) -> None:
    environment = {"FASTKCL_METRICS_DIR": str(tmp_path)}
    with Child("-c", PLAIN.format(options=""), environment=environment) as child:
        child.daemon.start()
        wait_until((tmp_path / FILE).exists, "the file")
        labels = {"stream": "clicks", "shard": "shardId-000000000000"}
        values = samples((tmp_path / FILE).read_text())
        assert values["fastkcl_records_total"] == ("counter", labels, 0)
        assert "fastkcl_behind_latest_seconds" not in values  # not known before the first request
        code, stderr = child.finish()
    assert (code, stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_child_leaves_its_file_to_its_successor(tmp_path: Path) -> None:
    environment = {"FASTKCL_METRICS_DIR": str(tmp_path)}
    for end in (signal.SIGKILL, None):
        with Child("-c", PLAIN.format(options=""), environment=environment) as child:
            child.daemon.start()
            wait_until((tmp_path / FILE).exists, "the file")
            if end is not None:
                child.process.send_signal(end)
                child.process.wait(30)
                assert [path.name for path in tmp_path.iterdir()] == [FILE]
            else:
                assert child.finish().exit == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_environment_that_is_none_ends_the_child_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Child("-c", PLAIN.format(options=""), environment={"FASTKCL_METRICS_DIR": str(tmp_path / "file")}) as child:
        code, stderr = child.wait()
    assert code == 1
    assert "FileExistsError" in stderr


def test_what_is_no_monitor_is_refused() -> None:
    with pytest.raises(TypeError, match="fastkcl.monitoring.Monitor, not str"):
        fastkcl.run(fastkcl.processor(lambda batch: None), monitor="file.prom")  # type: ignore[arg-type]


def test_standard_error_that_nobody_reads_delays_no_status() -> None:
    source = PLAIN.format(options=", monitor=Monitor(report_interval=0.001)")
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write_end, bufsize=0
    )
    os.close(write_end)
    assert process.stdin is not None
    assert process.stdout is not None
    daemon = Daemon(os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()))
    process.stdin.close()
    process.stdout.close()
    try:
        daemon.ask(INITIALIZE, status("initialize"))
        number, grown, size = 20, time.monotonic(), -1
        while time.monotonic() - grown < 0.5:  # until the pipe is full
            number += 1
            daemon.ask(process_records(number), checkpoint(str(number), 0), status("processRecords"))
            now = _bytes_in(read_end)
            if now != size:
                size, grown = now, time.monotonic()
        assert size > 60_000
        for last in range(number + 1, number + 100):
            daemon.ask(process_records(last), checkpoint(str(last), 0), status("processRecords"))
        daemon.finish()
        assert process.wait(30) == 0
    finally:
        daemon.close()
        process.kill()
        process.wait()
        os.close(read_end)


def _bytes_in(pipe: int) -> int:
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


# ---- with Spark's processor -------------------------------------------------------------------------------------


def test_what_is_counted_adds_up_over_a_lost_lease(tmp_path: Path) -> None:
    """Two children; the second gets again what the first has not checkpointed, and the table has a part of it."""
    report, noise = play(tmp_path, "lease-lost@13", options={**BATCH_BY_BATCH, "checkpoint_interval": 3600})
    (shard,) = report.shards
    assert shard.problems == []
    first, second = (line for line in reported("\n".join(noise)) if line["final"])
    assert first["records"] + second["records"] == shard.records_delivered > 500
    assert first["batches"] + second["batches"] == shard.batches
    assert first["checkpoints"] + second["checkpoints"] == shard.checkpoints
    assert first["written_records"] + second["written_records"] == 500
    assert second["dropped_records"] == second["records"] - second["written_records"] > 0
    assert second["held_records"] == second["held_bytes"] == 0
    assert (second["write_failures"], second["writes"] > 3) == (0, True)
    assert 0 < second["written_bytes"] <= second["bytes"]
    lines = [line for line in noise if ": write " in line]
    numbers = [*range(1, first["writes"] + 1), *range(1, second["writes"] + 1)]
    for number, line in zip(numbers, lines, strict=True):
        assert line.startswith(f"fastkcl: INFO: shardId-000000000000: write {number}: ")
    assert lines[-1].endswith(" behind")


def test_a_write_that_fails_is_told_and_counted(tmp_path: Path) -> None:
    """On a disk that is full, where the file for Prometheus cannot be written any more either."""
    report, noise = play(
        tmp_path / "table",
        options={"max_records": 40, "metrics_dir": str(tmp_path / "metrics"), "report_interval": 0.01},
        trouble=[["full", "before", "file", 5]],
    )
    (shard,) = report.shards
    assert shard.exit_codes == [1, 0], noise
    failed = next(line for line in noise if "failed after" in line)
    assert "WARNING: shardId-000000000000: write 3: " in failed
    assert "attempt 1: OSError: " in failed
    first, second = (line for line in reported("\n".join(noise)) if line["final"])
    assert (first["write_failures"], first["writes"]) == (1, 2)  # a write makes two files
    assert first["written_records"] + second["written_records"] == 500
    assert list((tmp_path / "metrics").glob("*.prom")) == []


def test_corrupt_payloads_are_counted(tmp_path: Path) -> None:
    """None of these is packed."""
    report, noise = play(tmp_path, options={"compression": "gzip"}, records=100)
    assert report.ok, (report.shards[0].problems, noise)
    (last,) = (line for line in reported("\n".join(noise)) if line["final"])
    assert (last["written_records"], last["corrupt_payloads"]) == (100, 100)


def test_the_buffer_is_seen_while_it_fills(tmp_path: Path) -> None:
    with Child(
        str(CHILD),
        environment={
            "TABLE_PATH": str(tmp_path / "table"),
            "OPTIONS": json.dumps({"max_records": 1000, "metrics_dir": str(tmp_path), "report_interval": 0.05}),
            "FASTKCL_STREAM": "clicks",
        },
    ) as child:
        child.daemon.start()
        child.daemon.ask(process_records(*range(1, 31)), status("processRecords"))

        def values() -> Any:
            path = tmp_path / FILE
            return samples(path.read_text()) if path.exists() else {}

        wait_until(lambda: values().get("fastkcl_held_records", (0, 0, 0))[2] == 30, "30 held records", seen=values)
        assert values()["fastkcl_held_bytes"][2] > 30
        child.daemon.send(SHARD_ENDED)
        assert child.daemon.receive() == checkpoint()
        child.daemon.send(checkpoint_reply())
        assert child.daemon.receive() == status("shardEnded")
        code, stderr = child.finish()
    assert code == 0
    last = reported(stderr)[-1]
    assert (last["held_records"], last["written_records"], last["writes"]) == (0, 30, 1)
