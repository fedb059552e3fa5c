"""The helper script: options, output, exit codes and functions, against the original where that can be had."""

from __future__ import annotations

import importlib.abc
import inspect
import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastkcl.kclpy import helper

FUNCTIONS = ["get_dir_of_file", "get_kcl_dir", "get_kcl_jar_path", "get_kcl_classpath", "get_kcl_app_command"]
DAEMON = "software.amazon.kinesis.multilang.MultiLangDaemon"
OURS = Path(helper.__file__).parent


def make_jars(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


@pytest.fixture(autouse=True)
def _no_jars_but_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """amazon_kclpy may be installed here; these tests have one of their own, or none."""
    monkeypatch.delenv("FASTKCL_JARS", raising=False)
    elsewhere = [entry for entry in sys.path if not Path(entry, "amazon_kclpy").exists()]
    monkeypatch.setattr(sys, "path", elsewhere)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An amazon_kclpy on the path that fails when it is imported; its folder."""
    package = tmp_path / "site" / "amazon_kclpy"
    make_jars(package / "jars", "b.jar", "a.jar", "C.jar", ".hidden.jar", "notes.txt", "__init__.py")
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(package.parent))
    return package


def jars_of(package: Path) -> list[str]:
    return [str(package / "jars" / name) for name in ("C.jar", "a.jar", "b.jar")]


# ---- the jars ---------------------------------------------------------------------------------------------------


def test_the_jars_are_those_of_the_installed_package(installed: Path) -> None:
    assert helper.get_kcl_dir() == str(installed)
    assert helper.get_kcl_jar_path() == ":".join(jars_of(installed))
    assert "amazon_kclpy" not in sys.modules


class Alias(importlib.abc.MetaPathFinder):
    """Answers to the name amazon_kclpy as the hook of `fastkcl.kclpy.install` does."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return helper.__spec__ if name.partition(".")[0] == "amazon_kclpy" else None


def test_an_import_hook_is_not_taken_for_the_package(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "meta_path", [Alias(), *sys.meta_path])
    assert helper.get_kcl_dir() == str(installed)
    sys.path.remove(str(installed.parent))
    assert helper.get_kcl_dir() == str(OURS)
    # nor is the module by which worker processes are served, nor a folder that only has the name
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "amazon_kclpy.py").touch()
    make_jars(tmp_path / "named" / "amazon_kclpy" / "jars", "x.jar")
    path = list(sys.path)
    for folder in ("worker", "named"):
        monkeypatch.setattr(sys, "path", [*path, str(tmp_path / folder)])
        importlib.invalidate_caches()
        assert helper.get_kcl_dir() == str(OURS)
        assert helper.get_kcl_jar_path() == ""


def test_our_own_hook_is_not_taken_for_the_package(installed: Path) -> None:
    program = """
import sys
import fastkcl.kclpy
from fastkcl.kclpy import helper
fastkcl.kclpy.install()
import amazon_kclpy
assert amazon_kclpy is fastkcl.kclpy
print(helper.get_kcl_dir())
sys.path.remove(sys.argv[1])
print(helper.get_kcl_dir())
"""
    done = run([sys.executable, "-S", "-c", program], str(installed.parent), path=sys.path)
    assert done.stdout.splitlines() == [str(installed), str(OURS)], done.stderr


@pytest.mark.parametrize(
    ("package", "option", "environment", "expected"),
    [
        (False, None, None, []),
        (False, None, "theirs", ["theirs/t.jar"]),
        (False, "given", None, ["given/g.jar"]),
        (False, "given", "theirs", ["given/g.jar"]),
        (True, None, None, ["C.jar", "a.jar", "b.jar"]),
        (True, None, "theirs", ["C.jar", "a.jar", "b.jar"]),
        (True, "given", "theirs", ["given/g.jar"]),
        (True, "empty", None, []),
        (True, "missing", "theirs", []),
        ("no jars", None, "theirs", ["theirs/t.jar"]),
        ("no jars", None, None, []),
        (False, "", "", []),
    ],
)
def test_where_the_jars_are_found(
    package: bool | str,
    option: str | None,
    environment: str | None,
    expected: list[str],
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_jars(tmp_path / "given", "g.jar")
    make_jars(tmp_path / "theirs", "t.jar")
    make_jars(tmp_path / "empty")
    if package is False:
        sys.path.remove(str(installed.parent))
    elif package == "no jars":
        for jar in (installed / "jars").glob("*jar"):
            jar.unlink()
    if environment is not None:
        monkeypatch.setenv("FASTKCL_JARS", environment)
    helper.main(["--print_classpath", *([] if option is None else ["--jars", option])])
    out, err = capsys.readouterr()
    base = installed / "jars" if package is True and option is None else tmp_path
    assert out == ":".join(str(base / name) for name in expected) + "\n"
    assert (err == "") == bool(expected)
    if option is None:
        assert helper.get_kcl_jar_path() + "\n" == out


def test_no_jars_is_said_with_where_they_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    helper.main(["--print_command", "-j", "java", "-p", "/etc/app.properties"])
    out, err = capsys.readouterr()
    assert out == f"java -cp /etc {DAEMON} --properties-file /etc/app.properties \n"
    assert err.startswith("fastkcl: no KCL jars were found: amazon_kclpy is not installed and FASTKCL_JARS not set. ")
    assert err.count("\n") == 1
    assert "install amazon_kclpy" in err
    assert "--jars DIR or FASTKCL_JARS=DIR" in err
    monkeypatch.setenv("FASTKCL_JARS", "/nowhere")
    helper.main(["--print_classpath"])
    assert capsys.readouterr().err.startswith("fastkcl: no KCL jars were found in /nowhere. ")
    helper.main(["--print_classpath", "--jars", "/none"])
    assert capsys.readouterr().err.startswith("fastkcl: no KCL jars were found in /none. ")


def test_a_usage_message_does_not_speak_of_jars(capsys: pytest.CaptureFixture[str]) -> None:
    helper.main([])
    out, err = capsys.readouterr()
    assert out.startswith("usage: A script for generating a command to run an Amazon KCLpy app")
    assert "jars" not in out
    assert err == ""


# ---- functions --------------------------------------------------------------------------------------------------


def test_a_class_path_is_users_paths_then_jars_then_the_properties(installed: Path, tmp_path: Path) -> None:
    jars = jars_of(installed)
    assert helper.get_kcl_classpath() == ":".join(jars)
    given = ["lib/x.jar", "/opt/../opt/y/*"]
    assert helper.get_kcl_classpath("conf/app.properties", given) == ":".join(
        [str(tmp_path / "lib/x.jar"), "/opt/y/*", *jars, str(tmp_path / "conf")]
    )
    assert given == ["lib/x.jar", "/opt/../opt/y/*"]
    assert helper.get_kcl_classpath("app.properties") == ":".join([*jars, str(tmp_path)])
    assert helper.get_kcl_classpath(paths=("z",)) == ":".join([str(tmp_path / "z"), *jars])


def test_the_default_list_is_nobodys(installed: Path) -> None:
    first = helper.get_kcl_classpath("p", ["a"]), helper.get_kcl_classpath("p")
    assert first == (helper.get_kcl_classpath("p", ["a"]), helper.get_kcl_classpath("p"))
    for function in (helper.get_kcl_classpath, helper.get_kcl_app_command):
        assert inspect.signature(function).parameters["paths"].default == []


def test_a_command_takes_any_object_with_java_and_properties(installed: Path, tmp_path: Path) -> None:
    command = helper.get_kcl_app_command(
        SimpleNamespace(java="/usr/bin/java", properties="conf/app.properties"),  # type: ignore[arg-type]
        "org.example.Daemon",
        "--properties-file elsewhere",
        "--log-configuration l.xml",
        paths=["x"],
    )
    classpath = ":".join([str(tmp_path / "x"), *jars_of(installed), str(tmp_path / "conf")])
    assert command == (
        f"/usr/bin/java -cp {classpath} org.example.Daemon --properties-file elsewhere --log-configuration l.xml"
    )
    given = make_jars(tmp_path / "given", "g.jar")
    args = Namespace(java="java", properties="app.properties", jars="given")
    assert helper.get_kcl_app_command(args, "D", "P", "") == f"java -cp {given}/g.jar:{tmp_path} D P "


def test_another_system_joins_with_semicolons(installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = jars_of(installed)
    monkeypatch.setattr(helper, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    assert helper.get_kcl_jar_path() == ";".join(jars)
    assert helper.get_kcl_classpath("app.properties", ["x"]) == ";".join([str(tmp_path / "x"), *jars, str(tmp_path)])


def test_a_file_need_not_exist(tmp_path: Path) -> None:
    assert helper.get_dir_of_file("a/../b/c") == str(tmp_path / "b")
    assert helper.get_dir_of_file("c") == str(tmp_path)
    assert helper.get_dir_of_file("/x/y") == "/x"


# ---- the script -------------------------------------------------------------------------------------------------


def test_the_sample_replaces_given_properties(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    helper.main(["--print_command", "-j", "java", "-p", "mine.properties", "--sample"])
    out, err = capsys.readouterr()
    assert err == "Replacing provided properties with sample properties due to arg --sample\n"
    classpath = ":".join([*jars_of(installed), str(OURS)])
    assert out == f"java -cp {classpath} {DAEMON} --properties-file {OURS / 'sample.properties'} \n"
    assert (OURS / "sample.properties").is_file()
    helper.main(["--print_classpath", "--use-sample-properties"])
    assert capsys.readouterr() == (classpath + "\n", "")


@pytest.mark.parametrize("java", ["-j", "--j", "--ja", "--jav", "--java"])
def test_an_abbreviated_java_is_not_taken_for_jars(
    java: str, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper.main(["--print_command", java, "J", "-p", "/etc/p", "-l", ""])
    out = capsys.readouterr().out
    assert out.startswith(f"J -cp {jars_of(installed)[0]}:")
    assert out.endswith(" --properties-file /etc/p --log-configuration \n")


def test_help_names_what_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        helper.main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "--jars DIR" in out
    assert "FASTKCL_JARS" in out


def test_runs_as_a_module(installed: Path) -> None:
    done = run([sys.executable, "-m", "fastkcl.kclpy.helper"], "--print_classpath", path=sys.path)
    assert done.stdout == ":".join(jars_of(installed)) + "\n"
    assert (done.stderr, done.returncode) == ("", 0)
    assert run([sys.executable, "-m", "fastkcl.kclpy.helper"], "--no-such", path=sys.path).returncode == 2


def test_the_arguments_of_the_process_are_the_default(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["helper", "--print_classpath", "-c", "/x"])
    helper.main()
    assert capsys.readouterr().out.startswith("/x:")


def run(
    command: Sequence[str | Path], *arguments: str, path: Sequence[str] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FASTKCL_JARS")}
    env |= {"COLUMNS": "80", "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(
        [*command, *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


# ---- the original -----------------------------------------------------------------------------------------------

ARGUMENTS = [
    [],
    ["--print_classpath"],
    ["--print_classpath", "--properties", "conf/app.properties"],
    ["--print_classpath", "-p", "/etc/../etc/app.properties", "-c", "x.jar", "--path", "../y/*", "--classpath=/z"],
    ["--print_classpath", "-c", ""],
    ["--print_classpath", "--print_command"],
    ["--print_classpath", "--sample"],
    ["--print_command"],
    ["--print_command", "-j", "java"],
    ["--print_command", "-p", "app.properties"],
    ["--print_command", "-j", "", "-p", "app.properties"],
    ["--print_command", "-j", "java", "-p", "app.properties"],
    ["--print_command", "--java", "/opt/jdk/bin/java", "--props", "./conf/../app.properties", "-l", "logback.xml"],
    ["--print_command", "-jjava", "--prop=a b.properties", "--log-configuration", ""],
    ["--print_command", "-j", "java", "--sample"],
    ["--print_command", "-j", "java", "-p", "mine.properties", "--use-sample-properties", "-c", "x"],
    ["--print_command", "--j", "java", "--prop", "app.properties"],
    ["--print_command", "--ja=java", "--proper", "app.properties", "--log", "l.xml", "--class", "q", "--pat", "r"],
    ["--sample-props", "-p", "mine.properties"],
    ["--print_c"],
    ["--pr"],
    ["--java"],
    ["-j"],
    ["--nonsense"],
    ["extra"],
    ["--print_classpath", "extra"],
    ["--print_classpath", "--", "extra"],
    ["--print_classpath", "--"],
    ["-x"],
]


class Streams:
    """What a run has said, with the sample's place and the order of the jars, which differ, taken out."""

    def __init__(self, done: subprocess.CompletedProcess[str], jars: str, sample_folder: str) -> None:
        jar = re.escape(jars) + r"/[^:/ ]+\.jar"
        found = re.search(f"{jar}(:{jar})*", done.stdout)
        out = done.stdout
        self.jars: list[str] = []
        if found is not None:
            self.jars = sorted(found.group().split(":"))
            out = out.replace(found.group(), "<jars>")
        self.out = out.replace(sample_folder, "<sample>")
        self.err = done.stderr
        self.code = done.returncode


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_says_what_the_original_says(arguments: list[str], original_python: Path, tmp_path: Path) -> None:
    """Ours in the original's environment, so that it finds the original's jars."""
    script = original_python.parent / "amazon_kclpy_helper.py"
    site = site_of(original_python)
    jars = str(site / "amazon_kclpy" / "jars")
    expected = Streams(run([original_python, script], *arguments, cwd=tmp_path), jars, str(site / "samples"))
    ours = Streams(
        run([original_python, "-m", "fastkcl.kclpy.helper"], *arguments, path=[str(OURS.parents[1])], cwd=tmp_path),
        jars,
        str(OURS),
    )
    assert vars(ours) == vars(expected)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"]])
def test_help_has_the_originals_usage(arguments: list[str], original_python: Path, tmp_path: Path) -> None:
    script = original_python.parent / "amazon_kclpy_helper.py"
    expected = run([original_python, script], *arguments, cwd=tmp_path)
    ours = run([original_python, "-m", "fastkcl.kclpy.helper"], *arguments, path=[str(OURS.parents[1])], cwd=tmp_path)
    assert ours.returncode == expected.returncode == 0
    assert ours.stdout.partition("\n\n")[0] == expected.stdout.partition("\n\n")[0]


CALLS = """
import importlib, inspect, json, sys
from types import SimpleNamespace
module = importlib.import_module(sys.argv[1])
args = SimpleNamespace(java="/j/java", properties="conf/app.properties")
calls = {
    "get_dir_of_file": [(("a/../b/c",), {}), (("",), {}), ((), {"f": "/x"})],
    "get_kcl_dir": [((), {})],
    "get_kcl_jar_path": [((), {})],
    "get_kcl_classpath": [
        ((), {}), (("conf/p",), {}), (("", ["x"]), {}), ((), {"properties": "p", "paths": ["x", "/y/*", "x"]}),
        ((None, ("t",)), {}),
    ],
    "get_kcl_app_command": [
        ((args, "org.D", "--p p", ""), {}),
        ((args, "org.D", "--p p", "--l l", ["x"]), {}),
        ((), {"args": args, "multi_lang_daemon_class": "D", "properties": "P", "log_configuration": "L"}),
    ],
}
print(json.dumps({
    name: [
        [[p.name, str(p.kind), repr(p.default)] for p in inspect.signature(getattr(module, name)).parameters.values()],
        [getattr(module, name)(*a, **k) for a, k in each],
    ]
    for name, each in calls.items()
}))
"""


def test_functions_return_what_the_originals_return(original_python: Path, tmp_path: Path) -> None:
    jars = str(site_of(original_python) / "amazon_kclpy" / "jars")

    def results(module: str, path: Path) -> dict[str, Any]:
        done = run([original_python, "-c", CALLS], module, path=[str(path)], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        values: dict[str, Any] = json.loads(done.stdout)
        for _, returned in values.values():
            returned[:] = [sorted(re.split("[: ]", text)) if jars in text else text for text in returned]
        return values

    ours = results("fastkcl.kclpy.helper", OURS.parents[1])
    assert ours == results("amazon_kclpy_helper", original_python.parent)
    assert list(ours) == FUNCTIONS


def site_of(python: Path) -> Path:
    done = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    return Path(done.stdout.strip())


# ---- sample.properties ------------------------------------------------------------------------------------------

REQUIRED = {"executableName", "applicationName", "streamName", "regionName", "AwsCredentialsProvider"}
# Fields and setters of the daemon's configuration class (KCL 3.5.1), and what the daemon itself looks up.
KNOWN = REQUIRED | {
    "AwsCredentialsProviderCloudWatch",
    "AwsCredentialsProviderDynamoDB",
    "callProcessRecordsEvenForEmptyRecordList",
    "cleanupLeasesUponShardCompletion",
    "clientVersionConfig",
    "cloudWatchClient.endpointOverride",
    "disableWorkerMetrics",
    "dynamoDBEndpoint",
    "failoverTimeMillis",
    "idleTimeBetweenReadsInMillis",
    "initialPositionInStream",
    "initialPositionInStreamExtended",
    "kinesisEndpoint",
    "logWarningForTaskAfterMillis",
    "maxActiveThreads",
    "maxRecords",
    "metricsBufferTimeMillis",
    "metricsLevel",
    "metricsMaxQueueSize",
    "migrateAllEntitiesToLeaseTable",
    "parentShardPollIntervalMillis",
    "processingLanguage",
    "retrievalMode",
    "shardSyncIntervalMillis",
    "shutdownGraceMillis",
    "skipShardSyncAtWorkerInitializationIfLeasesExist",
    "streamArn",
    "taskBackoffTimeMillis",
    "timeoutInSeconds",
    "workerId",
}


def test_the_sample_sets_what_the_daemon_requires_and_only_keys_that_it_knows() -> None:
    text = (OURS / "sample.properties").read_bytes().decode("ascii")  # Java reads it as Latin-1
    pairs = re.findall(r"(?m)^(#?)([A-Za-z.]+) = (.+)$", text)
    on = {key: value for off, key, value in pairs if not off}
    off = {key for off, key, _ in pairs if off}
    assert set(on) >= REQUIRED
    assert set(on) | off == KNOWN
    assert not set(on) & off
    assert int(on["shutdownGraceMillis"]) > 0  # the default delivers no shutdownRequested
    rest = [line for line in text.splitlines() if line and not line.startswith("# ") and line != "#"]
    assert len(rest) == len(pairs)
