"""`fastkcl daemon`'s command line: options in any spelling, its output, its refusals, its runs."""

from __future__ import annotations

import locale
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fastkcl.cli.main import cli
from java_helpers import write_java
from paths import PROGRAMS

DAEMON_3 = "amazon-kinesis-client-multilang-3.1.3.jar"
DAEMON_1 = "amazon-kinesis-client-1.7.1.jar"

Invoke = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a java that plays the daemon, and jars of two generations."""
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "fake_java.py"} "$@"\n')
    java.chmod(0o755)
    for name, jar in (("three", DAEMON_3), ("one", DAEMON_1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / jar).write_text("")
    return tmp_path


@pytest.fixture
def invoke(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    for variable in list(os.environ):
        if variable.startswith(("AWS_", "FASTKCL_")):
            monkeypatch.delenv(variable)
    monkeypatch.chdir(folder)

    def invoke(*arguments: str, jars: str = "three", complete: bool = True) -> Result:
        given = ["--stream", "clicks", "--application", "reader"] if complete else []
        command = ["--", sys.executable, "app.py"] if complete else []
        return CliRunner().invoke(cli, ["daemon", "--java", "java", "--jars", jars, *given, *arguments, *command])

    return invoke


def properties(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--failover-time-millis", "3000"],
        ["--failoverTimeMillis", "3000"],
        ["--failover_time_millis=3000"],
        ["--FAILOVER_TIME_MILLIS=3000"],
        ["--set", "failoverTimeMillis=3000"],
    ],
)
def test_a_key_in_any_spelling(invoke: Invoke, arguments: list[str]) -> None:
    assert properties(invoke("--print-properties", *arguments))["failoverTimeMillis"] == "3000"


def test_properties_are_what_the_daemon_would_get(invoke: Invoke, folder: Path) -> None:
    (folder / "app.properties").write_text("streamName = words\napplicationName = old\nfailoverTimeMilis = 1\n")
    result = invoke("--print-properties", "-p", "app.properties", "--set", "kinesisClient.x=y")
    found = properties(result)
    assert (found["streamName"], found["applicationName"]) == ("clicks", "reader")
    assert (found["failoverTimeMilis"], found["kinesisClient.x"]) == ("1", "y")
    assert found["executableName"] == f"{sys.executable} app.py"
    assert "app.properties, line 3: KCL 3 has no key failoverTimeMilis" in result.stderr
    assert invoke("--print-properties", "-p", "app.properties", "--strict").exit_code == 2


def test_the_childs_command_as_an_option(invoke: Invoke) -> None:
    given = ["--stream", "s", "--application", "a", "--executableName", f"{sys.executable} app.py --fast"]
    result = invoke("--print-properties", *given, complete=False)
    assert properties(result)["executableName"] == f"{sys.executable} app.py --fast"


def test_the_environment(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_NAME", "leases")
    assert properties(invoke("--print-properties"))["tableName"] == "leases"
    assert "tableName" not in properties(invoke("--print-properties", "--no-environment"))


@pytest.mark.parametrize(
    ("version", "encoding", "name", "code"),
    [
        ("21", "ANSI_X3.4-1968", "café.py", 2),
        ("21", "ANSI_X3.4-1968", "app.py", 0),
        ("21", "UTF-8", "café.py", 0),
        ("17", "ANSI_X3.4-1968", "café.py", 0),
    ],
)
def test_a_command_that_the_locale_does_not_have(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, encoding: str, name: str, code: int
) -> None:
    java = write_java(tmp_path / "own" / "java", version)
    monkeypatch.setattr(locale, "getencoding", lambda: encoding)
    given = ["--stream", "s", "--application", "a", "--executableName", f"{sys.executable} {name}"]
    result = invoke("--java", str(java), "--print-command", *given, complete=False)
    assert result.exit_code == code, result.output
    assert ("question marks" in result.stderr) == bool(code)


class TestCommandLine:
    def words(self, result: Result) -> list[str]:
        assert result.exit_code == 0, result.output
        return shlex.split(result.stdout)

    def test_of_kcl_3(self, invoke: Invoke, folder: Path) -> None:
        assert self.words(invoke("--print-command", "--jvm-option=-Xmx256m", "--classpath", "own.jar")) == [
            "env",
            "FASTKCL_STREAM=clicks",
            f"{folder}/java",
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            "-Dstderr.encoding=UTF-8",
            "-Xmx256m",
            "-cp",
            f"{folder}/own.jar:{folder}/three/*:{folder}",
            "software.amazon.kinesis.multilang.MultiLangDaemon",
            "--properties-file",
            "daemon.properties",
        ]

    def test_of_kcl_1(self, invoke: Invoke, folder: Path) -> None:
        words = self.words(invoke("--print-command", jars="one"))
        assert "--add-opens=java.base/java.lang=ALL-UNNAMED" in words
        assert words[-4:] == [
            "-cp",
            f"{folder}/one/*:{folder}",
            "com.amazonaws.services.kinesis.multilang.MultiLangDaemon",
            "daemon.properties",
        ]

    @pytest.mark.parametrize(
        ("jars", "flag"), [("three", "-Daws.cborEnabled=false"), ("one", "-Dcom.amazonaws.sdk.disableCbor=true")]
    )
    def test_for_a_stand_in(self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, jars: str, flag: str) -> None:
        assert flag not in self.words(invoke("--print-command", jars=jars))
        words = self.words(invoke("--print-command", "--endpoint-url", "http://127.0.0.1:1", jars=jars))
        assert {flag, "AWS_ACCESS_KEY_ID=stand-in"} <= set(words)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
        words = self.words(invoke("--print-command", jars=jars))
        assert flag in words
        assert [word for word in words if "ACCESS_KEY" in word] == []

    def test_secrets_are_not_on_it(self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_AWS_ACCESS_KEY_ID", "open")
        monkeypatch.setenv("MY_AWS_SECRET_ACCESS_KEY", "sesame")
        provider = "CustomEnvironmentVariableCredentialsProvider"
        given = ["--aws-credentials-provider", provider, "--credentials-prefix", "MY"]
        for what in ("--print-command", "--print-properties", "--check"):
            result = invoke(what, *given)
            assert result.exit_code == 0, result.output
            assert "sesame" not in result.output


def test_without_the_library_that_reads_properties(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("fastkcl.daemon.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "javaproperties", None)
    result = invoke("--check")
    assert (result.exit_code, result.stderr) == (2, "Error: it needs javaproperties: pip install 'fastkcl[cli]'\n")


def test_check(invoke: Invoke) -> None:
    result = invoke("--check", "--max-records", "500")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("KCL 3.1.3, jars of --jars three: ")
    assert any(line.split() == ["maxRecords", "500", "(--max-records)"] for line in lines)
    assert any(line.split() == ["streamName", "clicks", "(--stream)"] for line in lines)
    assert any(line.startswith("timeoutInSeconds is not set: a child that hangs") for line in lines)
    assert lines[-1] == "It could be started."


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("lease-table-scan-total-segments", "4", "leaseTableScanTotalSegments"),
        (
            "client-version-config",
            "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
            "clientVersionConfig = CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
        ),
    ],
)
def test_what_only_a_later_release_knows_is_told(invoke: Invoke, folder: Path, key: str, value: str, what: str) -> None:
    result = invoke("--check", f"--{key}", value)
    told = f"fastkcl daemon: --{key}: KCL 3.1.3 does not know {what}; KCL 3.5.0 and later do"
    assert (result.exit_code, told in result.stderr.splitlines()) == (0, True), result.output
    assert invoke("--check", "--strict", f"--{key}", value).exit_code == 2
    (folder / "three" / DAEMON_3).rename(folder / "three" / DAEMON_3.replace("3.1.3", "3.5.3"))
    assert "does not know" not in invoke("--check", "--strict", f"--{key}", value).output


class TestProviders:
    def jar(self, path: Path, *classes: str) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in classes:
                archive.writestr(f"{name.replace('.', '/')}.class", "")

    def test_one_that_is_nowhere_is_told(self, invoke: Invoke, folder: Path) -> None:
        self.jar(folder / "three" / "auth.jar", "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider")
        given = ["--check", "--aws-credentials-provider", "DefaultCredentialsProvider, DefaltCredentialsProvider|x"]
        result = invoke(*given)
        assert result.exit_code == 0
        said = "--aws-credentials-provider: there is no class DefaltCredentialsProvider on the daemon's class path"
        assert [line for line in result.stderr.splitlines() if "no class" in line] == [
            f"fastkcl daemon: {said}, and it would go on without these credentials"
        ]
        assert invoke(*given, "--strict").exit_code == 2

    @pytest.mark.parametrize("kind", ["jar", "folder"])
    def test_one_of_the_users(self, invoke: Invoke, folder: Path, kind: str) -> None:
        own = folder / f"own.{kind}"
        if kind == "jar":
            self.jar(own, "org.me.Mine")
        else:
            (own / "org" / "me").mkdir(parents=True)
            (own / "org" / "me" / "Mine.class").write_text("")
        given = ["--check", "--aws-credentials-provider", "org.me.Mine"]
        assert "no class org.me.Mine" in invoke(*given).stderr
        assert "no class" not in invoke(*given, "--classpath", own.name).stderr


def test_the_list_of_keys(invoke: Invoke) -> None:
    rows = {line.split()[0]: line for line in invoke("--list-keys").stdout.splitlines()}
    assert "KCL 3, 1.15 " in rows["shutdownGraceMillis"]
    assert rows["retrievalMode"].endswith("DEFAULT, FANOUT, POLLING")
    assert rows["migrateAllEntitiesToLeaseTable"].split()[1:] == ["KCL", "3.5.0", "boolean"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--failover-time-milis", "1"],
            "No such option '--failover-time-milis'. Did you mean '--failover-time-millis'?",
        ),
        (["--streem", "s"], "No such option '--streem'. Did you mean '--stream'?"),
        (["--max-records", "many"], "--max-records: maxRecords must be a whole number, not 'many'"),
        (["--set", "nothing"], "'nothing' is not KEY=VALUE"),
        (["--kcl", "2"], "'2' is not one of '3', '1.15', '1.7'"),
        (["--kcl", "1.7"], "--jars three has KCL 3.1.3, but --kcl 1.7 is asked for"),
        (["--java", "/no/java"], "--java /no/java: this program does not run"),
        (["-p", "none.properties"], "none.properties: No such file or directory"),
    ],
)
def test_what_is_refused(invoke: Invoke, arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_what_is_missing(invoke: Invoke) -> None:
    result = invoke(complete=False)
    assert result.exit_code == 2
    assert [
        word for word in ("streamName", "applicationName", "executableName") if f"{word} is missing" in result.stderr
    ]


class TestRunning:
    def run(self, folder: Path, code: str, *arguments: str, number: int | None = None) -> tuple[int, str]:
        command = ["--stream", "s", "--application", "a", "--java", "java", "--jars", "three", *arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "fastkcl", "daemon", *command, "--", sys.executable, "app.py"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "FAKE_DAEMON": code},
        )
        assert process.stderr is not None
        written = ""
        if number is not None:
            for line in process.stderr:
                written += line
                if "lease taken" in line or "shardConsumer" in line:
                    break
            process.send_signal(number)
        rest = process.communicate(timeout=60)[1]
        return process.returncode, written + rest

    def test_until_it_is_stopped(self, folder: Path) -> None:
        code, written = self.run(folder, "stoppable()\nlease()\nuntil_stopped()", number=signal.SIGTERM)
        assert code == 0
        assert "12:00:00.0 lease       shardId-000000000000  lease taken, from TRIM_HORIZON\n" in written
        assert written.endswith("fastkcl daemon: stopped as asked\n")

    def test_verbose_shows_the_log_as_it_is(self, folder: Path) -> None:
        code, written = self.run(folder, "stoppable()\nlease()\nuntil_stopped()", "--verbose", number=signal.SIGINT)
        assert code == 0
        assert "|12:00:00.000|INFO|software.amazon.kinesis.Scheduler||Created new shardConsumer" in written

    def test_an_end_by_a_child(self, folder: Path) -> None:
        code, written = self.run(folder, "lease()\nbatch(answer=None)\ngive_up(137)\nsys.exit(1)")
        assert code == 1
        said = "the daemon ended: the child of shardId-000000000000 exited with code 137 (signal 9)"
        assert written.endswith(f"fastkcl daemon: {said}\n")

    def test_an_end_by_itself(self, folder: Path) -> None:
        assert self.run(folder, "sys.exit(0)")[0] == 3

    def test_with_a_table(self, folder: Path) -> None:
        code, written = self.run(folder, "stoppable()\nlease()\nuntil_stopped()", "--table", number=signal.SIGTERM)
        assert code == 0
        assert "lease taken, from TRIM_HORIZON" in written
