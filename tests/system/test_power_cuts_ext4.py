"""A real file system that loses its power: an ext4 in a file, shut down without its journal being flushed.

Unsynced writes are gone then, as after a power cut. Needs root and loop devices, and says so where they are missing; so
it is one of `make test-long`. tests/system/test_power_cuts.py has a model of it, which needs neither. FASTKCL_EXT4_CUTS
says how often.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastkcl.tables.formats import inspect_table
from paths import PROGRAMS
from sink_helpers import DELTA, PARQUET, SHARD, records_of
from waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(7200)]

CUTS = int(os.environ.get("FASTKCL_EXT4_CUTS", "60"))
SQLITE_CUTS = 10
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
COMMITS = 205


class Ext4:
    """A file system in a file, mounted."""

    def __init__(self, folder: Path) -> None:
        self.image, self.folder = folder / "image", folder / "mounted"
        self.folder.mkdir()
        with self.image.open("xb") as file:
            file.truncate(128 * 1024 * 1024)
        self._run("mkfs.ext4", "-q", "-F", self.image)
        self.mount()

    def mount(self) -> None:
        self._run("mount", "-o", "loop", self.image, self.folder)

    def unmount(self) -> None:
        if os.path.ismount(self.folder):
            wait_until(lambda: subprocess.run(["umount", self.folder], check=False).returncode == 0, "an unmount")
        wait_until(lambda: not self._loops(), "the end of the loop device, which a mount would find again, shut down")

    def _loops(self) -> bytes:
        return subprocess.run(["losetup", "--associated", self.image], check=True, stdout=subprocess.PIPE).stdout

    def cut_power(self) -> None:
        assert os.path.ismount(self.folder), "only a file system of the test's own is shut down"
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def _run(self, *command: object) -> None:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=PATIENCE)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system can be mounted here by root alone, with mkfs.ext4: what a cut leaves was not seen")
    try:
        made = Ext4(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop mounts here, so what a cut leaves was not seen: {error}")
    yield made
    made.unmount()


@pytest.mark.parametrize("kind", [PARQUET, DELTA], ids=["ParquetSink", "DeltaSink"])
def test_a_file_system_that_is_shut_down(tmp_path: Path, ext4: Ext4, kind: object) -> None:
    """Again and again, in the middle of commits; over the hundredth and the two hundredth of them."""
    chance, told, cuts = random.Random(0), 0, 0
    table = ext4.folder / "data" / "table"
    command = [sys.executable, str(PROGRAMS / "power_cut_writer.py"), kind.sink.__name__]  # type: ignore[attr-defined]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None

        def ask(question: object) -> None:
            writer.stdin.write(json.dumps(question) + "\n")
            writer.stdin.flush()

        while cuts < CUTS or told < COMMITS:
            ask([str(table), told + 1])
            upto, powered = told + chance.randrange(1, 7), True
            for line in writer.stdout:
                what, number = line.split()
                if what == "told" and powered:
                    told = max(told, int(number))
                assert what != "failed" or not powered, "the writer has ended by itself"
                if what == "ended":
                    break
                if powered and told >= upto:
                    ext4.cut_power()
                    ask("kill")
                    powered = False
            assert not powered
            ext4.unmount()
            ext4.mount()
            cuts += 1
            position = kind.sink(table).open(SHARD)  # type: ignore[attr-defined]
            there = 0 if position is None else int(position.sequence_number)
            assert there >= told, f"cut {cuts}: {told} were told to be in the table, {there} are"
            numbers = sorted(int(record[2]) for record in records_of(table).elements())
            assert numbers == list(range(1, there + 1)), f"cut {cuts}"
            told = there
        writer.stdin.close()
        assert writer.wait(PATIENCE) == 0
    assert inspect_table(table).ok
    print(f"{cuts} cuts, {told} commits")


def test_a_commit_of_an_iceberg_table_in_sqlite_that_was_told_is_there(ext4: Ext4) -> None:
    """Cut right after `append` has returned. By SQLite's default, the last commit is gone after each cut."""

    def ask(count: int) -> int:
        command = [sys.executable, str(PROGRAMS / "iceberg_before_a_cut.py"), str(ext4.folder), str(count)]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PATIENCE).stdout)

    chance = random.Random(0)
    for cut in range(SQLITE_CUTS):
        told = ask(chance.randrange(1, 4))
        ext4.unmount()
        ext4.mount()
        assert ask(0) == told, f"cut {cut}"
