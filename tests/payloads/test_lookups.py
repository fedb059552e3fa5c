"""Which id is looked up when: the table of a registry's possible answers, by a clock that a test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from clocks import Clock
from fastkcl.payloads.registries.answers import AwayError, MissingError, SchemaText, UnusableError
from fastkcl.payloads.registries.lookups import FIRST_PAUSE, LONGEST_PAUSE, SECOND_LOOK, SPREAD, Missing
from fastkcl.payloads.registries.registry import Registry, RegistryAwayError

TEXT = SchemaText("avro", '"long"')
AWAY = AwayError("https://registry: GET of 7: status 503")
MISSING = MissingError("no 7")


class Scripted:
    """A client whose answers are given; the last one stays."""

    where = "the registry"

    def __init__(self, *answers: SchemaText | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, float]] = []
        self.clock = Clock()

    def by_id(self, id: str) -> SchemaText:
        self.asked.append((id, self.clock.now))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def latest(self, name: str) -> SchemaText:
        return self.by_id(f"newest {name}")

    def registry(self, max_outage: float = 60.0, chance: Callable[[], float] = lambda: 0.0) -> Registry:
        return Registry(self, max_outage, clock=self.clock, chance=chance, wait=self.clock.sleep)


EVENTS: dict[str, tuple[list[SchemaText | Exception], SchemaText | Missing, list[float]]] = {
    "known": ([TEXT], TEXT, [0.0]),
    "registered just now": ([MISSING, TEXT], TEXT, [0.0, SECOND_LOOK]),
    "unknown": ([MISSING], Missing("no 7"), [0.0, SECOND_LOOK]),
    "unusable": ([UnusableError("two formats")], Missing("two formats"), [0.0]),
    "away, then there": ([AWAY, AWAY, TEXT], TEXT, [0.0, FIRST_PAUSE / 2, FIRST_PAUSE * 1.5]),
    "away, then unknown": ([AWAY, MISSING], Missing("no 7"), [0.0, FIRST_PAUSE / 2, FIRST_PAUSE / 2 + SECOND_LOOK]),
    "away between both looks": ([MISSING, AWAY, TEXT], TEXT, [0.0, SECOND_LOOK, SECOND_LOOK + FIRST_PAUSE / 2]),
}
"""What a registry answers; what is known then; and when it was asked."""


@pytest.mark.parametrize("event", EVENTS)
def test_an_id_is_looked_up(event: str) -> None:
    answers, known, times = EVENTS[event]
    client = Scripted(*answers)
    assert client.registry().schemas(["7", "7"]) == {"7": known}
    assert client.asked == [("7", pytest.approx(time)) for time in times]


@pytest.mark.parametrize("answers", [answers for answers, _, _ in EVENTS.values()], ids=list(EVENTS))
def test_what_is_known_is_not_asked_for_again(answers: list[SchemaText | Exception]) -> None:
    client = Scripted(*answers)
    registry = client.registry()
    first = registry.schemas(["7"])
    asked = len(client.asked)
    client.clock.now += 1e6
    assert registry.schemas(["7"]) == first
    assert len(client.asked) == asked


def test_what_was_missing_is_asked_for_again_where_it_is_to_be_forgotten() -> None:
    client = Scripted(TEXT, MISSING, MISSING, MISSING, TEXT)
    registry = client.registry()
    assert registry.schemas(["6", "7"]) == {"6": TEXT, "7": Missing("no 7")}
    registry.forget_missing()
    assert registry.schemas(["6", "7"]) == {"6": TEXT, "7": TEXT}
    assert [id for id, _ in client.asked] == ["6", "7", "7", "7", "7"]


def test_an_outage_ends_with_an_error_that_names_the_call_and_begins_no_second_one() -> None:
    client = Scripted(AWAY)
    registry = client.registry(max_outage=60.0)
    with pytest.raises(RegistryAwayError, match=r"GET of 7: status 503; so for \d\d s, and max_outage is 60 s"):
        registry.schemas(["7"])
    assert 60 <= client.clock.now <= 60 + LONGEST_PAUSE
    assert len(client.asked) < 12
    asked = len(client.asked)
    with pytest.raises(RegistryAwayError):  # whoever tries the batch again waits for one more look, not for a minute
        registry.schemas(["7"])
    assert len(client.asked) == asked + 1
    client.answers = [TEXT]
    assert registry.schemas(["7"]) == {"7": TEXT}


def test_an_hour_without_a_record_is_no_outage() -> None:
    client = Scripted(AWAY, TEXT, AWAY, TEXT)
    registry = client.registry(max_outage=60.0)
    registry.schemas(["7"])
    client.clock.now += 3600
    assert registry.schemas(["8"]) == {"8": TEXT}


def test_ids_that_are_missing_wait_together() -> None:
    client = Scripted(MISSING)
    registry = client.registry()
    assert set(registry.schemas(["1", "2", "3"])) == {"1", "2", "3"}
    assert [id for id, _ in client.asked] == ["1", "2", "3", "1", "2", "3"]
    assert client.clock.now == SECOND_LOOK


def test_processes_that_start_together_do_not_ask_together() -> None:
    times = []
    for chance in (0.0, 0.5, 1.0):
        client = Scripted(TEXT)
        client.registry(chance=lambda chance=chance: chance).schemas(["7"])  # type: ignore[misc]
        times.append(client.asked[0][1])
    assert times == [0.0, SPREAD / 2, SPREAD]


def test_the_newest_version_is_that_of_the_first_look() -> None:
    client = Scripted(TEXT)
    registry = client.registry()
    assert registry.latest("clicks") is registry.latest("clicks") is TEXT
    assert client.asked == [("newest clicks", 0.0)]
    with pytest.raises(UnusableError, match="^no 7$"):
        Scripted(MISSING).registry().latest("clicks")


def test_threads_share_one_look_an_id() -> None:
    client = Scripted(TEXT)
    registry = Registry(client, 60.0, chance=lambda: 0.0)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(registry.schemas(["7"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [{"7": TEXT}] * 8
    assert len(client.asked) == 1
