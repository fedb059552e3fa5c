"""Commands whose credentials come from a service of AWS's, and AWS's errors of all forms."""

import asyncio
import hashlib
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from click.testing import CliRunner
from fastkcl.cli import aws as cli_aws
from fastkcl.cli import credentials as cli_credentials
from fastkcl.cli.credentials import CredentialsError
from fastkcl.cli.main import cli
from http_servers import request_of, server

ROLE = b"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
DENIED = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
STREAM = {"StreamName": "s", "StreamARN": "a", "StreamStatus": "ACTIVE", "RetentionPeriodHours": 24}
SUMMARY = {**STREAM, "StreamCreationTimestamp": 1, "EnhancedMonitoring": [], "OpenShardCount": 1}
CONFIG = """[default]
role_arn = arn:aws:iam::1:role/r
source_profile = user
region = us-east-1
[profile user]
aws_access_key_id = x
aws_secret_access_key = x
"""


def answer(status: int, body: bytes, header: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{header}\r\n".encode() + body


@pytest.mark.parametrize("args", [["list"], ["tail", "s"]], ids=["boto3", "aiobotocore"])
@pytest.mark.parametrize(
    ("of_sts", "said"),
    [
        (answer(200, ROLE), b"(AccessDeniedException)"),
        (answer(403, DENIED), b"(AccessDenied) when calling the AssumeRole operation: not you"),
        (answer(200, b"<html><p></html>"), b"the answer to AssumeRole is no XML"),
        (answer(200, b"<html/>"), b"the answer to AssumeRole is XML of something else"),
        (answer(200, b'<?xml version="1.0" encoding="gb2312"?><html/>'), b"the answer to AssumeRole is no XML"),
        (answer(200, b'<?xml version="1.0" encoding="none"?><html/>'), b"the answer to AssumeRole is no XML"),
        (answer(403, b"{}"), b"the answer to AssumeRole is no XML"),
        (answer(200, b"<AssumeRoleResponse/>"), b"the credentials cannot be read that AWS, or a proxy, has answered"),
        (answer(200, ROLE.replace(b"2099-", b"soon-")), b"the credentials cannot be read that AWS, or a proxy"),
        (answer(400, b"<ErrorResponse/>"), b"when calling the AssumeRole operation"),
        (answer(503, DENIED.replace(b"AccessDenied", b"Busy")), b"(Busy) when calling the AssumeRole operation"),
        (answer(503, b"<html><p></html>"), b"(503) when calling the AssumeRole operation"),
        (answer(302, b"", "Location: http://127.0.0.1:1/\r\n"), b"the answer to AssumeRole has the status 302"),
    ],
    ids=[
        "role",
        "denied",
        "page",
        "xhtml",
        "multi-byte",
        "no-encoding",
        "json",
        "empty",
        "no-time",
        "error-without-code",
        "failure",
        "page-of-failure",
        "redirect",
    ],
)
def test_a_role_s_credentials(tmp_path: Path, args: list[str], of_sts: bytes, said: bytes) -> None:
    """STS answers in XML; with the role, Kinesis is asked."""

    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            denied = answer(400, b'{"__type": "AccessDeniedException"}')
            link.sendall(denied if b"Kinesis_20131202" in request else of_sts)

    (tmp_path / "config").write_text(CONFIG)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    with server(talk) as address:
        env = {**kept, **files, "AWS_ENDPOINT_URL": f"http://{address}"}
        command = [sys.executable, "-m", "fastkcl", "kinesis", *args]
        done = subprocess.run(command, capture_output=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


SIGNED = ("rest.sigv4-enabled=true", "rest.signing-name=glue", "rest.signing-region=us-east-1")


@pytest.mark.parametrize(
    "args",
    [
        ["kinesis", "list"],
        ["kinesis", "tail", "s"],
        ["sink", "inspect", "s3://bucket/table"],
        ["sink", "inspect", "db.t", "--catalog", "type=glue"],
        ["sink", "inspect", "db.t", "--catalog", "type=rest", "--catalog", "uri=http://127.0.0.1:1"]
        + [part for text in SIGNED for part in ("--catalog", text)],
    ],
    ids=["boto3", "aiobotocore", "s3", "glue", "sigv4"],
)
def test_an_answer_with_credentials_without_an_end(tmp_path: Path, args: list[str]) -> None:
    """It took all memory there was."""
    piece = b" " * (1 << 20)

    def talk(link: socket.socket, _: int) -> None:
        request_of(link)
        link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):
            for _ in range(20):
                link.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            link.sendall(b"0\r\n\r\n")

    (tmp_path / "config").write_text(CONFIG)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    with server(talk) as address:
        env = {**kept, **files, "AWS_ENDPOINT_URL": f"http://{address}"}
        done = subprocess.run([sys.executable, "-m", "fastkcl", *args], capture_output=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.search(rb"AssumeRole has more than 16 MiB|an answer has [\d,]+ bytes or more", done.stderr)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [["list"], ["tail", "s"], ["put", "s", "1"]], ids=" ".join)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("AWS_ACCESS_KEY_ID", "A\nB", b"the access key has"), ("AWS_SESSION_TOKEN", "A\xfcB", b"the session token has")],
    ids=["key", "token"],
)
def test_credentials_that_no_request_can_send(args: list[str], name: str, value: str, said: bytes) -> None:
    """Nothing is tried again."""
    requests = []

    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            requests.append(request)
            link.sendall(answer(503, b""))

    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with server(talk) as address:
        env = {**kept, "AWS_ENDPOINT_URL": f"http://{address}", "AWS_DEFAULT_REGION": "us-east-1"}
        env |= {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s", name: value}
        command = [sys.executable, "-m", "fastkcl", "kinesis", *args]
        done = subprocess.run(command, capture_output=True, timeout=60, env=env)
    assert (done.returncode, requests) == (2, [])
    assert said in done.stderr
    assert args[0] == "put" or len(done.stderr.splitlines()) == 1


PLACES = ("ecs", "imds", "sso")
SSO = """[default]
sso_start_url = https://x.awsapps.com/start
sso_region = us-east-1
sso_account_id = 123456789012
sso_role_name = r
"""


@pytest.mark.parametrize("args", [["list"], ["tail", "s"]], ids=["boto3", "aiobotocore"])
@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"Expiration": "soon", "Code": "Success"}'], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_other_services_that_have_credentials(tmp_path: Path, args: list[str], body: bytes, place: str) -> None:
    """A container's, a machine's and SSO's: a page in the place of their answer is one line."""

    def talk(link: socket.socket, _: int) -> None:
        while request_of(link):
            link.sendall(answer(200, body))

    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    (tmp_path / "config").write_text(SSO if place == "sso" else "")
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    token = {"startUrl": "https://x.awsapps.com/start", "region": "us-east-1", "accessToken": "t"}
    name = hashlib.sha1(b"https://x.awsapps.com/start").hexdigest()  # noqa: S324 - botocore's name of the file
    (cache / f"{name}.json").write_text(json.dumps({**token, "expiresAt": "2099-01-01T00:00:00Z"}))
    with server(talk) as address:
        env = {**kept, "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        env |= {"HOME": str(tmp_path), "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_SSO": f"http://{address}"}
        env |= {"AWS_EC2_METADATA_DISABLED": str(place != "imds")}
        env |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{address}/"}
        if place == "ecs":
            env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"http://{address}/"
        command = [sys.executable, "-m", "fastkcl", "kinesis", *args]
        done = subprocess.run(command, capture_output=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"redentials" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(403, b'{"Message": "told"}', "x-amzn-RequestId: r\r\n"), "(403) when calling the .* operation: told"),
        (answer(400, b'{"message": "told"}', "x-amzn-ErrorType: X\r\n"), "(400) when calling the .* operation: told"),
        (answer(400, b"", "x-amzn-ErrorType: AccessDeniedException\r\n"), "(400)"),
        (answer(408, b"<html>\xe4</html>"), "(408)"),
        (answer(429, b"<html>\xe4</html>"), "(429)"),
        (answer(400, b'{"__type": "ns#ResourceNotFoundException", "message": null}'), "(ResourceNotFoundException)"),
    ],
)
def test_an_error_of_aws_s(given: bytes, said: str) -> None:
    """Its text is shown; also errors without a name, and those of a load balancer, are AWS's."""

    def talk(link: socket.socket, _: int) -> None:
        while request_of(link):
            link.sendall(given)

    with server(talk) as address:
        client = cli_aws.kinesis_client(f"http://{address}", "us-east-1")
        with pytest.raises(ClientError, match=said.replace("(", r"\(").replace(")", r"\)")):
            client.describe_stream_summary(StreamName="s")


@pytest.mark.parametrize("time", [1e12, "yesterday", float("inf"), float("nan"), -1])
def test_a_time_that_is_none(time: object) -> None:
    body = json.dumps({"StreamDescriptionSummary": {**SUMMARY, "StreamCreationTimestamp": time}}).encode()

    def talk(link: socket.socket, _: int) -> None:
        while request_of(link):
            link.sendall(answer(200, body))

    with server(talk) as address:
        client = cli_aws.kinesis_client(f"http://{address}", "us-east-1")
        with pytest.raises(BotoCoreError, match="has a StreamCreationTimestamp that is no timestamp"):
            client.describe_stream_summary(StreamName="s")


SECRET = "c0nfidential"
Find = Callable[[], object]


@pytest.fixture(params=["boto3", "aiobotocore"])
def find(request: pytest.FixtureRequest) -> Find:
    """What commands find their credentials by."""
    at = ("http://127.0.0.1:1", "us-east-1")
    if request.param == "boto3":
        return lambda: cli_aws.kinesis_client(*at)
    return lambda: asyncio.run(cli_aws.aio_session(*at))


def have_profile(monkeypatch: pytest.MonkeyPatch, folder: Path, settings: str) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (folder / "config").write_text(f"[profile p]\n{settings}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_PROFILE", "p")


def printed(**fields: object) -> str:
    return f"credential_process = echo '{json.dumps(fields)}'"


KEYS = {"Version": 1, "AccessKeyId": "A", "SecretAccessKey": SECRET}
ROLE_OF_TOKEN = "role_arn = arn:aws:iam::123456789012:role/r\nweb_identity_token_file = "
NO_SESSION = "sso_start_url = https://none.invalid/start\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (f"credential_process = /nowhere/program {SECRET}", "/nowhere/program: No such file or directory: see that it"),
        (f'credential_process = "/nowhere/program {SECRET}"', "/nowhere/program: No such file or directory: see that"),
        (f"credential_process = /etc/passwd {SECRET}", "/etc/passwd: Permission denied: see that it is there"),
        (f"credential_process = sh -c 'echo {SECRET} >&2; exit 3'", "it has failed: run its command by hand"),
        ("credential_process = false", "it has failed: run its command by hand"),
        (f"credential_process = sh 'echo {SECRET}", "cannot be read (ValueError)"),
        ("credential_process =", "the command, or its output, cannot be read ("),
        (f"credential_process = echo {SECRET}", "cannot be read (JSONDecodeError)"),
        (rf"credential_process = printf '\377{SECRET}'", "cannot be read (UnicodeDecodeError)"),
        ("credential_process = echo []", "cannot be read (AttributeError)"),
        (printed(Version=SECRET), "its output has another Version than 1"),
        (printed(Version=1, AccessKeyId=SECRET), "its output lacks AccessKeyId or SecretAccessKey"),
        (printed(**KEYS, SessionToken="t", Expiration=SECRET), "cannot be read (ParserError)"),
        (printed(**KEYS, SessionToken="t", Expiration="2020-01-01T00:00:00Z"), "the credentials that it gives have ex"),
        (printed(**KEYS | {"AccessKeyId": 5}), "the access key is no text"),
        (printed(**KEYS | {"SecretAccessKey": [SECRET]}), "the secret key is no text"),
        (printed(**KEYS, SessionToken=[SECRET]), "the session token is no text"),
    ],
)
def test_a_process_that_gives_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Find, settings: str, said: str
) -> None:
    """The error names the profile's setting and the kind of failure; nothing that the process has printed."""
    have_profile(monkeypatch, tmp_path, settings)
    with pytest.raises(CredentialsError) as raised:
        find()
    message = raised.value.message
    assert message.startswith("credential_process of the profile 'p': ")
    assert said in message
    assert SECRET not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ROLE_OF_TOKEN + "/nowhere/token",
            "web_identity_token_file of the profile 'p', or AWS_WEB_IDENTITY_TOKEN_FILE: ",
        ),
        (ROLE_OF_TOKEN + "/nowhere/token", ": /nowhere/token: No such file or directory: see that the file is there"),
        (NO_SESSION, "Token for https://none.invalid/start does not exist: run `aws sso login --profile p`"),
    ],
)
def test_files_that_credentials_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Find, settings: str, said: str
) -> None:
    have_profile(monkeypatch, tmp_path, settings)
    with pytest.raises(CredentialsError) as raised:
        find()
    assert said in raised.value.message


@pytest.mark.parametrize("how", ["exec sleep 600", "cat gate 9>&-; true"], ids=["itself", "child"])
@pytest.mark.parametrize("role", [False, True], ids=["profile", "role"])
def test_a_process_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Find, role: bool, how: str
) -> None:
    """It is named, also as the source of a role, and ended."""
    os.mkfifo(tmp_path / "alive")
    os.mkfifo(tmp_path / "gate")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "hang").write_text(f"cd {tmp_path}\nexec 9>alive\n{how}\n")
    hangs = f"credential_process = sh {tmp_path}/hang"
    source = f"role_arn = arn:aws:iam::123456789012:role/r\nsource_profile = q\n[profile q]\n{hangs}"
    have_profile(monkeypatch, tmp_path, source if role else hangs)
    monkeypatch.setattr(cli_credentials, "_SECONDS", 0.5)
    name = "q" if role else "p"
    with pytest.raises(CredentialsError, match=f"^credential_process of the profile '{name}': no credentials .* 0.5 s"):
        find()
    ended = select.poll()
    ended.register(alive, select.POLLHUP)
    try:
        assert ended.poll(10_000)
    finally:
        os.close(alive)
        os.close(os.open(tmp_path / "gate", os.O_RDWR))  # the child ends, which had the process's pipes


def test_a_service_that_is_away_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Find) -> None:
    """Its error is there before the wait is over."""
    requests = []

    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            requests.append(request)
            link.sendall(answer(503, DENIED.replace(b"AccessDenied", b"Busy")))

    user = "[profile q]\naws_access_key_id = x\naws_secret_access_key = x"
    have_profile(monkeypatch, tmp_path, f"role_arn = arn:aws:iam::1:role/role\nsource_profile = q\n{user}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with server(talk) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{address}")
        with pytest.raises(ClientError, match="Busy"):
            find()
    assert len(requests) == 2


def test_at_a_terminal_the_wait_is_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Find) -> None:
    """A process may ask a person there."""
    main, terminal = pty.openpty()
    have_profile(monkeypatch, tmp_path, "credential_process = sh -c 'sleep 0.19; false'")
    monkeypatch.setattr(cli_credentials, "_SECONDS", 0.01)
    with os.fdopen(main, "rb"), os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with pytest.raises(CredentialsError, match="it has failed"):
            find()
        monkeypatch.undo()
        assert b"waiting for credentials, for 60 s at most" in os.read(main, 1000)


AT_GLUE = ["--payload", "avro", "--framing", "glue", "--registry", "glue", "--schema", "glue:a/b"]


@pytest.mark.parametrize(
    "args",
    [
        ["sink", "inspect", "s3://bucket/table"],
        ["sink", "inspect", "s3://bucket/table", "--endpoint-url", "http://127.0.0.1:1"],
        ["sink", "inspect", "db.t", "--catalog", "type=sql", "--catalog", "warehouse=s3://bucket/table"],
        ["inspect", os.devnull, *AT_GLUE],
        ["put", "s", "--records", "1", "--profile", "clickstream", *AT_GLUE],
    ],
    ids=["s3", "local-s3", "catalog", "inspect-glue", "put-glue"],
)
@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_other_commands_that_need_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], how: str
) -> None:
    """Tables on S3 and Glue's registry: as for Kinesis."""
    fails = f"credential_process = sh -c 'echo {SECRET} >&2; false'"
    have_profile(monkeypatch, tmp_path, "credential_process = sleep 600" if how == "hangs" else fails)
    monkeypatch.setattr(cli_credentials, "_SECONDS", 0.3)
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 2
    said = "no credentials have come" if how == "hangs" else "it has failed"
    assert done.output.startswith(f"Error: credential_process of the profile 'p': {said}")
    assert len(done.output.splitlines()) == 1
    assert SECRET not in done.output


@pytest.mark.parametrize("args", [["list"], ["tail", "s"]], ids=["boto3", "aiobotocore"])
def test_a_process_s_program_that_is_missing(tmp_path: Path, args: list[str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    (tmp_path / "config").write_text("[default]\nregion = us-east-1\ncredential_process = /nowhere/program\n")
    env = {**kept, "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    command = [sys.executable, "-m", "fastkcl", "kinesis", *args]
    done = subprocess.run(command, capture_output=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"Error: credential_process of the profile 'default': /nowhere/program: No such file")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("{" + SECRET, "cannot be read (KeyError)"),
        (json.dumps({"accessToken": SECRET, "expiresAt": "soon"}), "cannot be read (ParserError)"),
        (json.dumps({"accessToken": [SECRET], "expiresAt": "2099-01-01T00:00:00Z"}), "AWS does not take (accessToken)"),
        (
            json.dumps({"accessToken": SECRET, "expiresAt": "2020-01-01T00:00:00Z"}),
            "Token has expired and refresh failed",
        ),
    ],
    ids=["garbage", "no-date", "no-text", "expired"],
)
def test_a_token_in_the_cache_of_sso(tmp_path: Path, token: str, said: str) -> None:
    """What cannot be used is told with the command that makes a new one, and without the token."""
    (tmp_path / ".aws" / "sso" / "cache").mkdir(parents=True)
    name = hashlib.sha1(b"s").hexdigest()  # noqa: S324 - botocore's name of the file
    (tmp_path / ".aws" / "sso" / "cache" / f"{name}.json").write_text(token)
    session = "sso_session = s\nsso_account_id = 1\nsso_role_name = r\nregion = us-east-1\n"
    where = "[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://x.invalid/start\n"
    (tmp_path / "config").write_text(f"[default]\n{session}{where}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env = {**kept, "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    env |= {"HOME": str(tmp_path), "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-m", "fastkcl", "kinesis", "list"], capture_output=True, timeout=60, env=env
    )
    message = done.stderr.decode()
    assert (done.returncode, len(message.splitlines())) == (2, 1)
    assert said in message
    assert message.endswith(": run `aws sso login --profile default`\n")
    assert SECRET not in message
