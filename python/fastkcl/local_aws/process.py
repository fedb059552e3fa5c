"""The server as a child process of a test or a program: `LocalAws`."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fastkcl.local_aws.access import CONTROL_HEADER
from fastkcl.local_aws.faults import Fault

__all__ = ["LocalAws", "LocalAwsError"]


class LocalAwsError(Exception):
    """The server does not start or answer, or refuses a request; the message has the reason."""


_making_a_client = threading.Lock()


@cache
def _session() -> Any:  # noqa: ANN401 - boto3 has no types
    """One for all clients: it reads the descriptions of the services, which takes longer than most calls."""
    import boto3

    return boto3.session.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")


class LocalAws:
    """A server in a separate process, on a free port, from ``with`` to its end.

        with LocalAws(streams={"orders": 4}) as aws:
            kinesis = aws.client("kinesis")
            aws.faults(Fault("GetRecords", "ExpiredIteratorException", times=1))

    It ends with this process, however that ends.

    Args:
        streams: streams to make at the start, with their numbers of shards.
        port: 0 for a free one, which `restart` keeps.
        host: address to listen at; anything but loopback is for containers and other machines.
        allow_hosts: host names by which clients may call it, besides `host` and those of loopback.
        state: file that the state is kept in, without which `restart` begins with nothing.
        iterator_seconds: how long a shard iterator can be used.
        retention_seconds: how long records stay; None for the hours that each stream is set to.
        transition_seconds: how long a stream is CREATING, UPDATING or DELETING.
        shard_limits: whether shards refuse more than the service lets them take and give in a second.
        empty_answers: the share of GetRecords answers that come without their records, 0 to 1.
        false_zeros: the share of them that say MillisBehindLatest 0 where there are more records, 0 to 1.
        falling_seconds: up to which arrival times fall.
        clock_seconds: that the service's clock is ahead.
        trace: operations whose bodies go to standard error, or ``all``.
        start_timeout: seconds until it has to answer.
    """

    def __init__(
        self,
        *,
        streams: Mapping[str, int] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        allow_hosts: Sequence[str] = (),
        state: str | Path | None = None,
        iterator_seconds: float | None = None,
        retention_seconds: float | None = None,
        transition_seconds: float | None = None,
        shard_limits: bool = False,
        empty_answers: float | None = None,
        false_zeros: float | None = None,
        falling_seconds: float | None = None,
        clock_seconds: float | None = None,
        trace: tuple[str, ...] = (),
        start_timeout: float = 120.0,
    ) -> None:
        values = {
            "--state": None if state is None else str(state),
            "--iterator-seconds": iterator_seconds,
            "--retention-seconds": retention_seconds,
            "--transition-seconds": transition_seconds,
            "--empty-answers": empty_answers,
            "--false-zeros": false_zeros,
            "--falling-seconds": falling_seconds,
            "--clock-seconds": clock_seconds,
        }
        self._arguments = [f"{option}={value}" for option, value in values.items() if value is not None]
        self._arguments += [f"--host={host}", *(f"--allow-host={name}" for name in allow_hosts)]
        self._arguments += ["--shard-limits"] if shard_limits else []
        self._arguments += [f"--trace={operation}" for operation in trace]
        self._arguments += [f"--create-stream={name}:{shards}" for name, shards in (streams or {}).items()]
        self._port = port
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    # Life.

    def __enter__(self) -> LocalAws:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            LocalAwsError: it does not.
        """
        if self._process is not None:
            raise LocalAwsError("it runs already")
        command = [sys.executable, "-m", "fastkcl", "local-aws", f"--port={self._port}", "--until-stdin-ends"]
        self._process = subprocess.Popen(
            [*command, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout, self._start_timeout)
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0 if line is None else 30)
                self._end(signal.SIGKILL)
                raise LocalAwsError(f"fastkcl local-aws does not start: exit code {code}; see standard error")
            self._end(signal.SIGKILL)
            raise LocalAwsError(f"fastkcl local-aws has not started within {self._start_timeout:g} s")
        self._url = line.strip()
        self._port = int(self._url.rpartition(":")[2])

    def stop(self) -> int:
        """End it, and give its exit code: 0, also if it did not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a failing machine would, with SIGKILL; `start` brings it back on the same port."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def restart(self) -> None:
        """End it and start it again on the same port; connections are refused between."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it hang, until `resume`: connections are taken, and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise LocalAwsError("it does not run: use it in a with statement, or start it")
        return self._process

    # Addresses and credentials for users.

    @property
    def url(self) -> str:
        """Endpoint of all services."""
        return self._url

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running().pid

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which boto3 and other SDKs, the daemon's credentials included, find it."""
        return {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def daemon_properties(self) -> dict[str, str]:
        """Properties with which a MultiLangDaemon 2.x or 3.x finds it; it needs `environment` for its credentials."""
        return {
            "regionName": "us-east-1",
            "AwsCredentialsProvider": "EnvironmentVariableCredentialsProvider",
            "kinesisEndpoint": self._url,
            "dynamoDBEndpoint": self._url,
            "cloudWatchClient.endpointOverride": self._url,
        }

    def client(self, service: str, **options: Any) -> Any:  # noqa: ANN401 - boto3 has no types
        """A boto3 client of it.

        Args:
            service: e.g. ``kinesis``.
            options: for `boto3.session.Session.client`.
        """
        with _making_a_client:  # a session is not safe for threads
            return _session().client(service, endpoint_url=self._url, **options)

    # Faults.

    def faults(self, *faults: Fault) -> None:
        """Wait with these, in the place of those there were: none takes all back.

        Raises:
            LocalAwsError: it does not answer.
        """
        values = [{key: getattr(fault, key) for key in fault.__slots__} for fault in faults]
        self._control(json.dumps([{k: v for k, v in value.items() if v is not None} for value in values]).encode())

    def hits(self) -> list[int]:
        """How many calls each fault has met, in their order."""
        return [fault["hits"] for fault in self._control()["faults"]]

    def calls(self) -> dict[str, int]:
        """How many calls of each operation there were."""
        return dict(self._control()["calls"])

    # Time.

    def pass_time(self, seconds: float) -> None:
        """Set the service's clock forward, as if so much time had passed: records get old, iterators expire.

        A restart takes it back.

        Args:
            seconds: 0 to 3.2e8, which is ten years.

        Raises:
            LocalAwsError: it is refused, or does not answer.
        """
        self._control(json.dumps(seconds).encode(), path="/_clock")

    def _control(self, body: bytes | None = None, *, path: str = "/_faults") -> dict[str, Any]:
        try:
            request = urllib.request.Request(f"{self._url}{path}", body, {CONTROL_HEADER: "1"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                value = json.load(answer)
        except urllib.error.HTTPError as error:
            raise LocalAwsError(f"{self._url}: {error.read().decode(errors='replace').strip()}") from None
        except OSError as error:
            raise LocalAwsError(f"{self._url}: {error}") from None
        assert isinstance(value, dict)
        return value


def _first_line(stream: IO[str], timeout: float) -> str | None:
    """The first line; nothing if there is none, None if it does not come in time."""
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(timeout)
    return lines[0] if lines else None
