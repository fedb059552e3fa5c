"""The core's side: stitches of other makes and ours, routing, health, and the effects of one on the others."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastkcl.processv1 import FromStitchMessage, GroupName, ToStitchMessage
from fastkcl.processv1.core import Core, StitchSpec
from fastkcl.processv1.core.health import Heartbeats
from fastkcl.processv1.core.routing import Route, route
from paths import EXAMPLES, PROGRAMS
from waiting import wait_until, wait_until_gone


class Logged:
    """What stitches have logged; for any thread."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, instance: str, line: str) -> None:
        self.lines.append((instance, line))

    def wait_for(self, *expected: tuple[str, str]) -> None:
        wait_until(lambda: set(expected) <= set(self.lines), f"{expected} in the log", seen=lambda: self.lines)


@pytest.fixture
def logged() -> Logged:
    return Logged()


@pytest.fixture
def core(logged: Logged) -> Iterator[Core]:
    with Core(on_log=logged, heartbeat_seconds=3600.0) as core:
        yield core


def ours(mode: str, instance: str, *custom: str, component: str = "Ours", version: str = "1") -> StitchSpec:
    return StitchSpec(
        [sys.executable, str(PROGRAMS / "stitch.py")],
        instance,
        component=component,
        version=version,
        custom_arguments=[mode, *custom],
    )


def plain(way: str, instance: str) -> StitchSpec:
    return StitchSpec([sys.executable, str(PROGRAMS / "plain_stitch.py")], instance, custom_arguments=[way])


def only_waits_for(instance: str, core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's time to wait for stitches is over as soon as this one has ended."""

    def now() -> float:
        return 0.0 if core.reports()[instance].exit_code is None else 1e6

    monkeypatch.setattr("fastkcl.processv1.core.core.time", SimpleNamespace(monotonic=now, sleep=time.sleep))


def node() -> str:
    found = shutil.which("node")
    assert found is not None, "the example ping.js needs Node.js"
    return found


def test_stitches_without_fastkcl_play_and_one_of_ours_joins(core: Core, logged: Logged) -> None:
    for command, instance, custom in (
        ([sys.executable, str(EXAMPLES / "processv1" / "referee.py")], "referee", []),
        ([sys.executable, str(EXAMPLES / "processv1" / "pong.py")], "pong", []),
    ):
        core.start(StitchSpec(command, instance, application="Games", component=instance, custom_arguments=custom))
    core.beat()
    wait_until(
        lambda: all(not each.heartbeats_missed for each in core.reports().values()),
        "answers to all heartbeats",
        seen=core.reports,
    )
    ping = [node(), str(EXAMPLES / "processv1" / "ping.js")]
    core.start(StitchSpec(ping, "ping", application="Games", component="Ping", custom_arguments=["pong", "3"]))
    logged.wait_for(
        *(("ping", f"pong answered pong {number}") for number in (1, 2, 3)),
        ("pong", "group: played 3"),
        ("referee", "ping has played 3"),
        ("ping", "referee says thanks"),
    )
    core.beat()
    wait_until(
        lambda: all(not each.heartbeats_missed for each in core.reports().values()),
        "answers to all heartbeats",
        seen=core.reports,
    )
    ended = core.stop(7)
    assert {name: each.exit_code for name, each in ended.items()} == {"ping": 7, "pong": 7, "referee": 7}
    assert all(each.health == "green" and not each.bad_frames for each in ended.values())


def test_a_killed_stitch_turns_yellow_then_red_and_the_others_stay_green(core: Core) -> None:
    core.start(ours("echo", "lives"))
    core.start(ours("echo", "dies"))
    core.beat()
    wait_until(
        lambda: all(not each.heartbeats_missed for each in core.reports().values()),
        "answers to all heartbeats",
        seen=core.reports,
    )
    os.kill(core.pid("dies"), signal.SIGKILL)
    wait_until(lambda: not core.reports()["dies"].running, "the end of dies", seen=core.reports)
    seen = []
    for number in range(2, 9):
        core.beat()
        wait_until(
            lambda: not core.reports()["lives"].heartbeats_missed,
            "answers of lives to all heartbeats",
            seen=core.reports,
        )
        seen.append((core.reports()["dies"].health, core.reports()["lives"].health))
        assert core.reports()["lives"].heartbeats_sent == number
    assert seen == [("green", "green"), *[("yellow", "green")] * 4, *[("red", "green")] * 2]
    assert core.reports()["dies"].exit_code == -signal.SIGKILL


@pytest.mark.parametrize("way", ["bad-frames", "half-frame", "deaf", "no-sync"])
def test_a_stitch_that_breaks_the_rules_harms_no_other(
    core: Core, logged: Logged, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.start(ours("echo", "fast"))
    core.start(plain(way, "rogue"))
    for _ in range(7):
        core.beat()
    wait_until(
        lambda: not core.reports()["fast"].heartbeats_missed, "answers of fast to all heartbeats", seen=core.reports
    )
    if way == "bad-frames":
        wait_until(lambda: core.reports()["rogue"].bad_frames == 4, "four bad frames of rogue", seen=core.reports)
        wait_until(
            lambda: not core.reports()["rogue"].heartbeats_missed,
            "answers of rogue to all heartbeats",
            seen=core.reports,
        )
        assert any("a frame cannot be read: utf8" in line for name, line in logged.lines if name == "rogue")
    elif way in ("deaf", "no-sync"):
        assert core.reports()["rogue"].health == "red"
    if way != "deaf":
        assert core.send("rogue", "send", "go") is not None
        wait_until(lambda: core.reports()["fast"].acknowledged == 1, "1 acknowledged by fast", seen=core.reports)
        # Of what the core has sent, and of the other's answer.
        wait_until(lambda: core.reports()["rogue"].acknowledged == 2, "2 acknowledged by rogue", seen=core.reports)
        # A half frame and what comes next are one that cannot be read.
        assert core.reports()["rogue"].bad_frames == {"bad-frames": 4, "half-frame": 1}.get(way, 0)
    else:
        only_waits_for("fast", core, monkeypatch)
        assert core.stop()["rogue"].exit_code == -signal.SIGKILL


def test_a_stitch_that_does_not_read_loses_what_is_beyond_its_queue(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.start(plain("deaf", "deaf"))
    core.start(ours("waiting", "other", str(tmp_path / "trace")))
    given = [core.send("deaf", "x" * 100_000) is not None for _ in range(1100)]
    assert given.count(True) >= 1000
    assert not all(given)
    report = core.reports()["deaf"]
    assert (report.received, report.dropped) == (given.count(True), given.count(False))
    assert core.send("other", "x") is not None
    wait_until(lambda: core.reports()["other"].acknowledged == 1, "1 acknowledged by other", seen=core.reports)
    only_waits_for("other", core, monkeypatch)
    ended = core.stop()
    assert (ended["deaf"].exit_code, ended["other"].exit_code) == (-signal.SIGKILL, 0)


@pytest.mark.parametrize(("group", "members"), [(0, {"b", "c"}), (1, {"b"}), (2, set())])
def test_groups(core: Core, logged: Logged, group: int, members: set[str]) -> None:
    core.start(ours("groups", "a", component="One", version="1"))
    core.start(ours("groups", "b", component="One", version="2"))
    core.start(ours("groups", "c", component="Two"))
    core.start(StitchSpec([sys.executable, str(PROGRAMS / "stitch.py")], "d", "Else", custom_arguments=["groups"]))
    core.send("a", str(group), "go")
    expected = [(name, "None 0 to the group") for name in sorted(members)]
    if expected:
        logged.wait_for(*expected)
    else:
        logged.wait_for(("a", "data is not delivered: no other stitch is in the group App.One.1"))
    core.stop()
    assert sorted(each for each in logged.lines if each[1].endswith("to the group")) == expected


def test_a_core_that_is_killed_takes_its_stitches_with_it(tmp_path: Path) -> None:
    import subprocess

    source = (
        "import sys, time\n"
        "from fastkcl.processv1.core import Core, StitchSpec\n"
        "core = Core()\n"
        f"core.start(StitchSpec([sys.executable, {str(PROGRAMS / 'stitch.py')!r}], 'a', "
        "custom_arguments=['busy', 'for ever']))\n"
        "core.send('a', '')\n"
        "print(core.pid('a'), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    wait_until_gone(pid, f"the end of stitch {pid}")


def test_starting(core: Core, tmp_path: Path) -> None:
    core.start(
        StitchSpec(
            [sys.executable, "-c", "import os, sys; print(os.getcwd()); sys.exit(3)"],
            "a",
            data_dir=str(tmp_path / "new" / "folder"),
        )
    )
    assert (tmp_path / "new" / "folder").is_dir()
    wait_until(lambda: core.reports()["a"].exit_code == 3, "exit code 3", seen=core.reports)
    for name in ("a", "", "n:a"):
        with pytest.raises(ValueError, match="instance id"):
            core.start(ours("echo", name))
    with pytest.raises(FileNotFoundError):
        core.start(StitchSpec(["/no/such/program"], "b"))
    with pytest.raises(KeyError):
        core.send("b", "x")
    core.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        core.start(ours("echo", "c"))
    for seconds in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="heartbeat_seconds"):
            Core(heartbeat_seconds=seconds)


GROUPS = {"s": GroupName("A", "B", "1"), "t": GroupName("A", "B", "2"), "u": GroupName("A", "C", "1")}


def data(**members: object) -> FromStitchMessage:
    return FromStitchMessage(command="data", data="x", **members)


def received(id_: int, channel: str | None = None) -> ToStitchMessage:
    return ToStitchMessage(id=id_, channel_name=channel, data="x", from_stitch_instance_id="s", node_id="n")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (data(to_stitch_instance_id="t"), Route(("t",), received(9))),
        (data(to_stitch_instance_id="n:t", data_channel="c", id=5), Route(("t",), received(5, "c"))),
        (data(to_stitch_instance_id="s"), Route(("s",), received(9))),
        (data(to_group_name="A", data_channel="c", id=5), Route(("t", "u"), received(0))),
        (data(to_group_name="A.B.1"), Route((), received(0), "no other stitch is in the group A.B.1")),
        (data(to_stitch_instance_id="v"), Route((), None, "there is no stitch v")),
        (
            data(to_stitch_instance_id="m:t"),
            Route((), None, "m:t is on another node than n, and this core is alone"),
        ),
        (data(to_stitch_instance_id="a:b:c"), Route((), None, "an address is id or node:id, not 'a:b:c'")),
        (data(), Route((), None, "data without ToStitchInstanceId or ToGroupName")),
    ],
)
def test_routes(message: FromStitchMessage, expected: Route) -> None:
    got = route(message, "s", "n", GROUPS, 9)
    assert (got.recipients, got.why_not) == (expected.recipients, expected.why_not)
    assert got.message == expected.message


def test_health() -> None:
    beats = Heartbeats()
    assert beats.health == "green"
    healths = []
    for _ in range(7):
        beats.send()
        healths.append(beats.health)
    assert healths == ["green", "yellow", "yellow", "yellow", "yellow", "red", "red"]
    assert beats.answer(6)
    assert (beats.missed, beats.health) == (1, "green")
    assert beats.answer(2)
    assert beats.missed == 1
    assert not beats.answer(8)
    assert not beats.answer(0)
