"""The daemon's properties from four places: which source wins, which keys are refused, which are only reported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fastkcl.daemon import options as options_module
from fastkcl.daemon.keys import Generation
from fastkcl.daemon.options import OptionsError, Source, collect, executable_name, read_file
from fastkcl.daemon.settings import Options

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
REQUIRED = {"streamName": "clicks", "applicationName": "reader", "executableName": f"{sys.executable} app.py"}
KEYS_OF_AWS = {"CUSTOM_AWS_ACCESS_KEY_ID": "id", "CUSTOM_AWS_SECRET_ACCESS_KEY": "secret"}


def sources(pairs: dict[str, str], origin: str = "here") -> list[Source]:
    return [Source(name, value, origin) for name, value in pairs.items()]


def options(generation: Generation = KCL_3, given: dict[str, str] | None = None, **more: Any) -> Options:
    """Options with everything that is required, and `given` from the command line."""
    more.setdefault("environ", {})
    return collect(generation, command_line=sources(REQUIRED | (given or {}), "command line"), **more)


def problems(*args: Any, **more: Any) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as caught:
        options(*args, **more)
    return caught.value.problems


def test_the_later_place_wins() -> None:
    file = sources({"maxRecords": "1", "failoverTimeMillis": "1", "taskBackoffTimeMillis": "1"}, "f")
    environ = {"FAILOVER_TIME_MILLIS": "2", "TASK_BACKOFF_TIME_MILLIS": "2"}
    found = options(KCL_3, {"task-backoff-time-millis": "3"}, file=file, environ=environ)
    assert [
        (found.settings[key].value, found.settings[key].origin)
        for key in ("shutdownGraceMillis", "maxRecords", "failoverTimeMillis", "taskBackoffTimeMillis")
    ] == [
        ("20000", "default"),
        ("1", "f"),
        ("2", "environment variable FAILOVER_TIME_MILLIS"),
        ("3", "command line"),
    ]
    assert found.warnings == []


@pytest.mark.parametrize("name", ["streamName", "stream_name", "STREAM_NAME", "stream-name"])
def test_a_variable_in_any_spelling(name: str) -> None:
    required = sources({key: value for key, value in REQUIRED.items() if key != "streamName"})
    assert collect(KCL_3, environ={name: "s"}, command_line=required).stream == "s"


def test_variables_that_contradict_each_other() -> None:
    (problem,) = problems(KCL_3, environ={"TABLE_NAME": "a", "tableName": "b"})
    assert problem == "the environment variables TABLE_NAME and tableName both mean tableName and differ: unset one"
    assert options(KCL_3, environ={"TABLE_NAME": "a", "tableName": "a"}).get("tableName") == "a"


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_of_other_tools(variable: str) -> None:
    found = options(KCL_3, environ={variable: "eu-west-1"})
    assert found.settings["regionName"].origin == f"environment variable {variable}"
    assert options(KCL_3, {"regionName": "r"}, environ={variable: "eu-west-1"}).get("regionName") == "r"
    assert options(KCL_3).get("regionName") is None


def test_everything_that_is_missing_is_asked_for_by_name() -> None:
    with pytest.raises(OptionsError) as caught:
        collect(KCL_3, environ={})
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [
        "streamName",
        "applicationName",
        "executableName",
    ]
    assert "--stream NAME, or streamName in a properties file, or STREAM_NAME in the environment" in str(caught.value)


def test_an_arn_instead_of_a_name() -> None:
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    required = sources({**REQUIRED, "streamArn": arn})
    assert collect(KCL_3, environ={}, command_line=required).stream == "orders"
    without_name = [source for source in required if source.name != "streamName"]
    assert collect(KCL_3, environ={}, command_line=without_name).stream == "orders"
    with pytest.raises(OptionsError, match="streamName is missing"):
        collect(KCL_1_7, environ={}, command_line=without_name)


def test_a_name_of_a_later_place_instead_of_an_arn() -> None:
    arn = sources({"streamArn": "arn:aws:kinesis:us-east-1:123456789012:stream/orders"}, "app.properties, line 1")
    found = options(KCL_3, file=arn)
    assert (found.stream, found.get("streamArn")) == ("clicks", None)
    assert found.notes == ["command line: the stream is named, so streamArn of app.properties, line 1 is left out"]


def test_a_misspelt_key_is_told_and_passed_on() -> None:
    file = sources({"failoverTimeMilis": "3000"}, "app.properties, line 7")
    found = options(KCL_3, file=file)
    assert found.warnings == [
        "app.properties, line 7: KCL 3 has no key failoverTimeMilis, and the daemon would not report it."
        " Did you mean failoverTimeMillis?"
    ]
    assert found.get("failoverTimeMilis") == "3000"
    assert problems(KCL_3, file=file, strict=True) == tuple(found.warnings)


def test_a_key_of_another_generation() -> None:
    (warning,) = options(KCL_1_7, {"shutdownGraceMillis": "5"}).warnings
    assert warning.startswith("command line: KCL 1.7 has no key shutdownGraceMillis (KCL 3 and 1.15 has), and ")


@pytest.mark.parametrize(
    ("generation", "variable", "told"),
    [
        (KCL_3, "FAILOVER_TIME_MILIS", "Did you mean failoverTimeMillis?"),
        (KCL_3, "SHUTDOWN_GRACE_MILLS", "Did you mean shutdownGraceMillis?"),
        (KCL_3, "StreamNames", "Did you mean streamName?"),
        (KCL_1_7, "TIMEOUT_IN_SECONDS", "KCL 1.7 has no key TIMEOUT_IN_SECONDS (KCL 3 and 1.15 has)"),
    ],
)
def test_a_slip_in_a_variables_name(generation: Generation, variable: str, told: str) -> None:
    (warning,) = options(generation, environ={variable: "5"}).warnings
    assert warning.startswith(f"environment variable {variable}: KCL {generation.value} has no key {variable}")
    assert told in warning
    assert problems(generation, environ={variable: "5"}, strict=True) == (warning,)


UNRELATED = """
    PATH HOME SHELL HOSTNAME LANG LC_ALL TERM USER LOGNAME PWD TZ EDITOR PAGER DISPLAY SSH_AUTH_SOCK TMPDIR
    XDG_CACHE_HOME AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL
    AWS_ROLE_ARN AWS_MAX_ATTEMPTS AWS_ROLE_SESSION_NAME AWS_WEB_IDENTITY_TOKEN_FILE
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_EXECUTION_ENV KUBERNETES_SERVICE_HOST
    KUBERNETES_PORT_443_TCP_ADDR POD_NAME POD_NAMESPACE NODE_NAME SERVICE_NAME CONTAINER_NAME JAVA_HOME
    JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS MAVEN_OPTS SPARK_HOME SPARK_MASTER_URL PYSPARK_PYTHON HADOOP_CONF_DIR
    PYTHONPATH PYTHONUNBUFFERED VIRTUAL_ENV CONDA_PREFIX PIP_INDEX_URL FASTKCL_SPARK FASTKCL_METRICS_DIR
    FASTKCL_JARS DATABASE_URL REDIS_URL LOG_LEVEL DEBUG PORT HOST APP_NAME APP_ENV STREAM TOPIC_NAME
    QUEUE_NAME BUCKET_NAME GITHUB_TOKEN GITHUB_REPOSITORY CI CI_COMMIT_SHA INVOCATION_ID JOURNAL_STREAM
    SYSTEMD_EXEC_PID NOTIFY_SOCKET OTEL_SERVICE_NAME DD_AGENT_HOST SENTRY_DSN HTTP_PROXY HTTPS_PROXY NO_PROXY
    SSL_CERT_FILE REQUESTS_CA_BUNDLE
"""


@pytest.mark.parametrize("generation", Generation)
def test_variables_that_have_nothing_to_do_with_a_daemon(generation: Generation) -> None:
    assert options(generation, environ=dict.fromkeys(UNRELATED.split(), "x")).warnings == []


def test_warnings_are_told_beside_problems() -> None:
    with pytest.raises(OptionsError) as caught:
        options(KCL_3, {"failoverTimeMilis": "1", "maxRecords": "abc"})
    assert len(caught.value.problems) == len(caught.value.warnings) == 1


def test_a_key_twice_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.properties"
    path.write_text("maxRecords=1\nmax-records=2\n")
    found = options(KCL_3, file=read_file(path))
    assert found.get("maxRecords") == "2"
    assert found.warnings == [f"{path}, line 2: maxRecords is also set at {path}, line 1; this one wins"]


def test_all_problems_at_once() -> None:
    found = problems(KCL_3, {"maxRecords": "many", "retrievalMode": "PUSH", "kinesisEndpoint": "localhost:1"})
    assert found == (
        "command line: maxRecords must be a whole number, not 'many'",
        "command line: retrievalMode must be one of DEFAULT, FANOUT, POLLING, not 'PUSH'",
        "command line: kinesisEndpoint must be a URL such as https://host, not 'localhost:1'",
    )


class TestFile:
    def test_as_java_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "app.properties"
        path.write_bytes(
            b"# a comment\n! another\n\nstreamName = a\\u00e9\nexecutableName : python \\\n    app.py\n"
            b"workerId w\xe9\nempty\n"
        )
        assert [(source.name, source.value, source.origin) for source in read_file(path)] == [
            ("streamName", "a\u00e9", f"{path}, line 4"),
            ("executableName", "python app.py", f"{path}, line 5"),
            ("workerId", "w\u00e9", f"{path}, line 7"),
            ("empty", "", f"{path}, line 8"),
        ]

    @pytest.mark.parametrize("line", [b"a\\\n", b"a" * 100 + b"\\\n"])
    def test_a_value_that_goes_on_in_many_lines(self, tmp_path: Path, line: bytes) -> None:
        """The library looks through all of it at each line: 75 kB took 8 s, and it is let have 16 MiB."""
        path = tmp_path / "p"
        path.write_bytes(b"streamName = " + line * 50_000)
        with pytest.raises(OptionsError, match="p, line [0-9]+: too long a value that goes on line by line"):
            read_file(path)
        path.write_bytes(b"streamName = " + b"a\\\r\n" * 1_000)
        assert [source.value for source in read_file(path)] == ["a" * 1_000]
        path.write_bytes(b"# a comment\\\n" * 5_000 + b"streamName = C:\\\\\n" * 5_000)
        assert [source.value for source in read_file(path)] == ["C:\\"] * 5_000

    def test_what_is_written_is_read_back(self, tmp_path: Path) -> None:
        values = {"tableName": " lead\u00e9 🎉 #x=y:z\\", "workerId": "a\tb"}
        path = tmp_path / "daemon.properties"
        path.write_text(options(KCL_3, values).properties(), "ascii")
        read = {source.name: source.value for source in read_file(path)}
        assert {key: read[key] for key in values} == values

    def test_one_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(OptionsError, match="No such file"):
            read_file(tmp_path / "none.properties")
        (tmp_path / "bad.properties").write_text("a=1\nb=\\u12\n")
        with pytest.raises(OptionsError, match=r"bad.properties, line 2: Invalid \\u escape"):
            read_file(tmp_path / "bad.properties")


class TestCommand:
    @pytest.mark.parametrize(("argument", "why"), [("a b.py", "has a space in it"), ("", "is empty")])
    def test_what_the_daemon_would_split(self, argument: str, why: str) -> None:
        with pytest.raises(OptionsError, match=f"{argument!r} {why}.*knows no quotes"):
            executable_name(["python", argument])

    def test_a_command_of_many_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each run of words could be a path with spaces in it: as many looks as the first words, not their square."""
        looks: list[str] = []
        there = options_module._is_there

        def look(path: str) -> bool:
            looks.append(path)
            return there(path)

        monkeypatch.setattr(options_module, "_is_there", look)
        words = [f"w{number}" for number in range(30_000)]
        options(KCL_3, {"executableName": " ".join([sys.executable, *words])})
        assert len(looks) <= 20 * 1000

    def test_a_command_of_many_quotes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """None is closed: two kinds of quotes are two looks."""
        looks: list[int] = []
        pattern = options_module._QUOTED

        class Counted:
            def match(self, text: str, at: int) -> object:
                looks.append(at)
                return pattern.match(text, at)

        monkeypatch.setattr(options_module, "_QUOTED", Counted())
        options(KCL_3, {"executableName": " ".join([sys.executable, *["'a", '"b'] * 3000])})
        assert len(looks) == 2

    def test_others(self) -> None:
        assert executable_name(["python", "app.py", "--x=1\t2"]) == "python app.py --x=1\t2"

    @pytest.mark.parametrize(
        ("command", "said"),
        [
            ("no-such-program app.py", "the child's program no-such-program cannot be run: it is not on PATH"),
            ("/no/such app.py", "the child's program /no/such cannot be run: there is no such program"),
            ("  ", "executableName is empty"),
        ],
    )
    def test_a_program_that_is_not_there(self, command: str, said: str) -> None:
        (problem,) = problems(KCL_3, {"executableName": command})
        assert said in problem

    @pytest.mark.parametrize(
        ("command", "quoted"),
        [
            ('python "my app.py" x', '"my app.py"'),
            ("'/opt/my python' app.py", "'/opt/my python'"),
            ('sh -c "a b"', '"a b"'),
        ],
    )
    def test_quotes_that_the_daemon_does_not_know(self, command: str, quoted: str) -> None:
        (problem,) = problems(KCL_3, {"executableName": command})
        assert problem.startswith(f"command line: {quoted} in executableName: the daemon splits the command at spaces")

    @pytest.mark.parametrize("arguments", ['-c print("x")', "it's fine isn't it"])
    def test_quotes_that_are_only_characters(self, arguments: str) -> None:
        command = f"{sys.executable} {arguments}"
        assert options(KCL_3, {"executableName": command}).get("executableName") == command

    def test_a_path_with_spaces_in_a_file(self, tmp_path: Path) -> None:
        program = tmp_path / "my app" / "run.sh"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        (problem,) = problems(KCL_3, {"executableName": f"{program} --fast"})
        assert f"{str(program)!r} is there, but the daemon splits the command at spaces" in problem
        (problem,) = problems(KCL_3, {"executableName": f"sh -x {program} --fast"})
        assert problem.startswith(f"command line: executableName: {str(program)!r} is there, but the daemon splits")

    def test_words_that_are_files_of_their_own(self, tmp_path: Path) -> None:
        for name in ("one", "one two"):
            (tmp_path / name).touch()
        command = f"{sys.executable} {tmp_path}/one two  none {'x' * 5000} {'x' * 5000}"
        assert options(KCL_3, {"executableName": command}).get("executableName") == command


class TestDefaults:
    def test_of_each_generation(self) -> None:
        assert options(KCL_1_7).get("shutdownGraceMillis") is None
        assert options(KCL_1_15).get("shutdownGraceMillis") == "20000"
        assert options(KCL_3).get("retrievalMode") is None
        assert options(KCL_3).get("metricsLevel") is None

    @pytest.mark.parametrize(
        ("generation", "key"),
        [(KCL_3, "initialPositionInStreamExtended"), (KCL_1_15, "timestampAtInitialPositionInStream")],
    )
    def test_a_time_to_begin_at_decides_the_position(self, generation: Generation, key: str) -> None:
        assert options(generation, {key: "1700000000"}).get("initialPositionInStream") is None

    def test_for_a_stand_in(self) -> None:
        url = Source("", "http://127.0.0.1:4567", "--endpoint-url")
        found = options(KCL_3, endpoint_url=url)
        assert {
            key: found.get(key)
            for key in ("kinesisEndpoint", "dynamoDBEndpoint", "cloudWatchClient.endpointOverride", "retrievalMode")
        } == {
            "kinesisEndpoint": url.value,
            "dynamoDBEndpoint": url.value,
            "cloudWatchClient.endpointOverride": url.value,
            "retrievalMode": "POLLING",
        }
        assert found.get("metricsLevel") == "NONE"
        old = options(KCL_1_7, endpoint_url=url)
        assert old.get("kinesisEndpoint") == url.value
        assert [key for key in old.settings if "cloudWatch" in key] == []

    def test_amazons_own_endpoint_is_no_stand_in(self) -> None:
        found = options(KCL_3, {"kinesisEndpoint": "https://kinesis.eu-west-1.amazonaws.com"})
        assert found.get("metricsLevel") is None


class TestCredentials:
    @pytest.mark.parametrize(
        ("generation", "given", "becomes"),
        [
            (KCL_3, "DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider"),
            (KCL_3, "com.amazonaws.auth.DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider"),
            (KCL_3, "DefaultCredentialsProvider", "DefaultCredentialsProvider"),
            (KCL_1_7, "DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain"),
            (KCL_1_7, "DefaultAWSCredentialsProviderChain", "DefaultAWSCredentialsProviderChain"),
            (
                KCL_3,
                "a.b.Own|x|y, SystemPropertiesCredentialsProvider",
                "a.b.Own|x|y,SystemPropertyCredentialsProvider",
            ),
            (KCL_3, "profile.ProfileCredentialsProvider", "ProfileCredentialsProvider"),
            (KCL_1_15, "EnvironmentVariableCredentialsProvider", "EnvironmentVariableCredentialsProvider"),
        ],
    )
    def test_in_the_generations_language(self, generation: Generation, given: str, becomes: str) -> None:
        found = options(generation, {"AwsCredentialsProvider": given})
        key = "AWSCredentialsProvider" if generation.is_1 else "awsCredentialsProvider"
        assert found.get(key) == becomes
        assert bool(found.notes) == (given != becomes)

    @pytest.mark.parametrize(
        ("generation", "provider", "secret"),
        [
            (KCL_3, "SystemPropertyCredentialsProvider", "aws.secretAccessKey"),
            (KCL_1_7, "SystemPropertiesCredentialsProvider", "aws.secretKey"),
        ],
    )
    def test_under_a_prefix(self, generation: Generation, provider: str, secret: str) -> None:
        given = {"awsCredentialsProvider": "CustomEnvironmentVariableCredentialsProvider"}
        found = options(generation, given, environ=KEYS_OF_AWS)
        assert found.secrets == {"aws.accessKeyId": "id", secret: "secret"}
        assert provider in found.properties()
        assert "secret" not in found.properties().replace("CredentialsProvider", "")

    def test_under_another_prefix(self) -> None:
        given = {"awsCredentialsProvider": "com.er.sylvite.CustomEnvironmentVariableCredentialsProvider"}
        keys = {"MY_AWS_ACCESS_KEY_ID": "a", "MY_AWS_SECRET_ACCESS_KEY": "b", "MY_AWS_SESSION_TOKEN": "c"}
        expected = {"aws.accessKeyId": "a", "aws.secretAccessKey": "b", "aws.sessionToken": "c"}
        assert options(KCL_3, given, environ=keys, credentials_prefix="MY").secrets == expected
        assert options(KCL_3, given, environ={**keys, "CUSTOM_PREFIX": "MY"}).secrets == expected

    def test_what_is_missing_or_meaningless(self) -> None:
        given = {"awsCredentialsProvider": "CustomEnvironmentVariableCredentialsProvider"}
        (problem,) = problems(KCL_3, given, environ={"CUSTOM_AWS_ACCESS_KEY_ID": "id"})
        assert "the environment has no CUSTOM_AWS_SECRET_ACCESS_KEY; the prefix CUSTOM is changed with" in problem
        (problem,) = problems(KCL_3, credentials_prefix="MY")
        assert problem.startswith("a prefix of credentials is given, but the provider is not Custom")
        both = {"awsCredentialsProvider": f"{given['awsCredentialsProvider']},SystemPropertyCredentialsProvider"}
        (problem,) = problems(KCL_3, both, environ=KEYS_OF_AWS)
        assert "cannot be used side by side" in problem
