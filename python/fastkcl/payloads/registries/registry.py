"""Carries out the decisions of `lookups` for all readers of a process: one look at a time, one look for each id.

    reader ─▶ schemas(ids) ──▶ Lookups.next ──▶ Look: the client's call ──▶ found, missing, unusable, away
                   ▲                       └──▶ Wait: other readers may look at their ids meanwhile
                   └── each id's schema, or why there is none

Rules: a client is imported when it is made. Blocking, for any number of threads; a process that was forked has its own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from fastkcl.payloads.registries.answers import AwayError, MissingError, SchemaText, UnusableError
from fastkcl.payloads.registries.lookups import GaveUp, Look, Lookups, Missing, Wait
from fastkcl.payloads.registries.options import FolderRegistry, GlueRegistry, RegistryOptions
from fastkcl.payloads.told import Told
from fastkcl.stdio.log import logger

__all__ = ["Client", "Registry", "RegistryAwayError", "client_of", "registry_for"]

_LATEST = "latest:"
_TURN = 1.0  # seconds that a thread waits at once


class RegistryAwayError(ConnectionError):
    """A registry gave no schema for `max_outage`. Nothing is corrupt for it: the same batch can be opened later."""


class Client(Protocol):
    """Calls of one registry; each is made once, and raises what `answers` has."""

    where: str

    def by_id(self, id: str) -> SchemaText:  # noqa: A002
        """The schema of an id."""

    def latest(self, name: str) -> SchemaText:
        """The newest version of a subject or schema."""

    def register(self, name: str, format: str, text: str) -> str:  # noqa: A002
        """The id of a text, registered under a name."""


class Registry:
    """What a process knows of a registry.

    Args:
        client: makes the calls.
        max_outage: seconds for which it may be away.
        clock: seconds that do not go back.
        chance: 0 to 1.
        wait: lets that many seconds pass, or fewer; other threads may take their turn.
    """

    def __init__(
        self,
        client: Client,
        max_outage: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._client = client
        self._max_outage = max_outage
        self._lookups: Lookups[SchemaText] = Lookups(max_outage)
        self._turn = threading.Condition()
        self._clock = clock
        self._chance = chance
        self._wait = self._turn.wait if wait is None else wait
        self._is_away = False
        self.told = Told()
        """What this process has logged about this registry's schemas, of which a reader has one an id."""

    def schemas(self, ids: Iterable[str]) -> dict[str, SchemaText | Missing]:
        """The schemas of ids, or why there is none. Waits while the registry is away.

        Raises:
            RegistryAwayError: for longer than `max_outage`.
        """
        wanted = list(dict.fromkeys(ids))
        with self._turn:
            while True:
                match self._lookups.next(wanted, self._clock(), self._chance()):
                    case Look(id=id_):
                        self._look(id_)
                    case Wait(seconds=seconds):
                        self._wait(min(seconds, _TURN))
                    case GaveUp(seconds=seconds, reason=reason):
                        raise RegistryAwayError(
                            f"{reason}; so for {seconds:.0f} s, and max_outage is {self._max_outage:g} s"
                        )
                    case _:
                        return {each: found for each in wanted if (found := self._lookups.get(each)) is not None}

    def latest(self, name: str) -> SchemaText:
        """The newest version of a subject or schema, as this process has seen it first, or after `forget_latest`.

        Raises:
            UnusableError: there is none that can be used.
            RegistryAwayError: as of `schemas`.
        """
        found = self.schemas([_LATEST + name])[_LATEST + name]
        if isinstance(found, Missing):
            raise UnusableError(found.reason)
        return found

    def forget_latest(self, name: str) -> None:
        """Have the next `latest` ask the registry again: for a process that outlives its readers."""
        with self._turn:
            self._lookups.forget(_LATEST + name)

    def forget_missing(self) -> None:
        """Have ids that could not be used be asked for again: for a process that outlives its readers."""
        with self._turn:
            self._lookups.forget_missing()

    def _look(self, id: str) -> None:  # noqa: A002
        try:
            newest = id.startswith(_LATEST)
            schema = self._client.latest(id.removeprefix(_LATEST)) if newest else self._client.by_id(id)
        except MissingError as error:
            self._lookups.missing(id, self._clock(), str(error))
        except UnusableError as error:
            self._lookups.unusable(id, str(error))
        except AwayError as error:
            if not self._is_away:
                logger().warning("a registry is away, records wait for it: %s", error)
            self._is_away = True
            self._lookups.away(self._clock(), self._chance(), str(error))
            return
        else:
            self._lookups.found(id, schema)
        if self._is_away:
            logger().warning("%s: the registry answers again", self._client.where)
        self._is_away = False


def client_of(options: RegistryOptions) -> Client:
    """What makes the calls of a registry.

    Raises:
        ConfigurationError: it cannot be reached as it is set.
    """
    if isinstance(options, GlueRegistry):
        from fastkcl.payloads.registries.glue import GlueClient

        return GlueClient(options)
    if isinstance(options, FolderRegistry):
        from fastkcl.payloads.registries.folder import FolderClient

        return FolderClient(options)
    from fastkcl.payloads.registries.confluent import ConfluentClient

    return ConfluentClient(options)


_lock = threading.Lock()
_registries: dict[tuple[int, RegistryOptions, float], Registry] = {}


def registry_for(options: RegistryOptions, max_outage: float) -> Registry:
    """The registry as this process knows it: one for all of its readers.

    Raises:
        ConfigurationError: it cannot be reached as it is set.
    """
    key = os.getpid(), options, max_outage
    with _lock:
        for other in [other for other in _registries if other[0] != key[0]]:
            del _registries[other]  # of the process that was forked
        if key not in _registries:
            _registries[key] = Registry(client_of(options), max_outage)
        return _registries[key]
