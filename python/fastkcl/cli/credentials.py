"""Gets the credentials of a command at its start, within seconds, and says in one line why they do not come.

botocore waits without an end for a profile's credential_process, and for minutes for a service that is away. Here the
wait has a bound. Where standard error is a terminal, it is longer, as a process may ask a person there for a code.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click

from fastkcl.credentials import fault_of, late, profile_with, provider_of, told

__all__ = ["CredentialsError", "find_credentials", "find_credentials_async"]

_SECONDS: Final = 5.0
_ASKED_SECONDS: Final = 60.0
_ENDED_SECONDS: Final = 0.5
_CONNECT_SECONDS: Final = 2.0
_ATTEMPTS: Final = 2
"""At a service that gives credentials, at the start: its error is wanted before the wait is over."""


class CredentialsError(click.ClickException):
    """There are no credentials, and why."""

    exit_code = 2


def find_credentials(session: Any) -> bool:  # noqa: ANN401 - botocore has no types
    """Whether a session of botocore has credentials; they are there then, and can be sent.

    Raises:
        CredentialsError: they do not come, cannot be read, or cannot be sent.
        BotoCoreError: the profile, or a service, has another fault.
        ClientError: a service refuses them.
    """
    found: futures.Future[Any] = futures.Future()

    def find() -> None:
        try:
            credentials = session.get_credentials()
            if credentials is not None:
                found.set_result((credentials.method, credentials.get_frozen_credentials()))
            else:
                found.set_result(None)
        except BaseException as error:
            found.set_exception(error)

    with _told(session), _in_haste(session):
        if _asks(session):
            find()  # in this thread, which an interrupt reaches at the question
            return _checked(session, found.result())
        thread = threading.Thread(target=find, daemon=True, name="fastkcl-credentials")
        thread.start()
        for seconds in _waits():
            if futures.wait([found], seconds).done:
                return _checked(session, found.result())
        raise _late(session, _stack(sys._current_frames().get(thread.ident or 0)))


async def find_credentials_async(session: Any) -> bool:  # noqa: ANN401
    """As `find_credentials`, of a session of aiobotocore."""

    async def find() -> tuple[str, Any] | None:
        credentials = await session.get_credentials()
        return None if credentials is None else (credentials.method, await credentials.get_frozen_credentials())

    with _told(session), _in_haste(session):
        if _asks(session):
            return _checked(session, await find())
        task = asyncio.ensure_future(find())
        for seconds in _waits():
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return _checked(session, task.result())
        error = _late(session, _awaited(task.get_coro()))
        await asyncio.wait({task}, timeout=_ENDED_SECONDS)  # an ended process leaves nothing open
        if task.cancel():
            await asyncio.wait({task})
        raise error


def _waits() -> Iterator[float]:
    """Seconds to wait, again and again."""
    yield _SECONDS
    if sys.stderr.isatty():
        click.echo(f"waiting for credentials, for {_ASKED_SECONDS:g} s at most", err=True)
        yield _ASKED_SECONDS - _SECONDS


def _asks(session: Any) -> bool:  # noqa: ANN401
    """Whether botocore itself asks a person, for the code of a device."""
    profile = profile_with(session, "mfa_serial")
    return "mfa_serial" in session.full_config.get("profiles", {}).get(profile, {})


@contextmanager
def _in_haste(session: Any) -> Iterator[None]:  # noqa: ANN401
    """Calls of services that give credentials are tried less often; those of later times are as botocore has them."""
    from botocore.config import Config

    kept = session.get_default_client_config()
    short = Config(connect_timeout=_CONNECT_SECONDS, retries={"total_max_attempts": _ATTEMPTS})
    session.set_default_client_config(short if kept is None else kept.merge(short))
    try:
        yield
    finally:
        session.set_default_client_config(kept)


@contextmanager
def _told(session: Any) -> Iterator[None]:  # noqa: ANN401
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        text = told(error, session)
        if text is None:
            raise
        raise CredentialsError(text) from None


def _checked(session: Any, found: tuple[str, Any] | None) -> bool:  # noqa: ANN401
    """See that credentials can be sent, as a header has them."""
    if found is None:
        return False
    provider, keys = found
    for name, value in (
        ("access key", keys.access_key),
        ("session token", keys.token),
        ("secret key", keys.secret_key),
    ):
        if not isinstance(value, str) and (value is not None or name != "session token"):
            raise CredentialsError(fault_of(provider, f"the {name} is no text", session))
        if name != "secret key" and value and not (value.isascii() and value.isprintable() and " " not in value):
            raise CredentialsError(
                f"the {name} has a line feed, a space or another character that no request can send; look at"
                " AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN, AWS_PROFILE and the file of credentials"
            )
    return True


def _late(session: Any, frames: list[FrameType]) -> CredentialsError:  # noqa: ANN401
    """The error of a wait that is over; a process that is waited for is ended."""
    for frame in frames:
        waited_for = frame.f_locals.get("self")
        if isinstance(waited_for, subprocess.Popen):
            waited_for.kill()
        elif isinstance(waited_for, Process):  # its pipes are closed, too, as a child of its own may hold them
            waited_for._transport.close()  # type: ignore[attr-defined]
    return CredentialsError(late(provider_of(frames), _ASKED_SECONDS if sys.stderr.isatty() else _SECONDS, session))


def _stack(innermost: FrameType | None) -> list[FrameType]:
    """A thread's frames, the innermost one last."""
    frames = []
    while innermost is not None:
        frames.append(innermost)
        innermost = innermost.f_back
    return frames[::-1]


def _awaited(coroutine: Any) -> list[FrameType]:  # noqa: ANN401
    """The frames of a coroutine, and of those that it waits for, the innermost one last."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append(frame)
        coroutine = coroutine.cr_await
    return frames
