"""The lines of two pipes, whole and in their order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
from fastkcl.daemon.outputs import LONGEST, lines


class Pipes:
    """Two of them: what is written to each, and the lines that come of it."""

    def __init__(self) -> None:
        (self.log, self.to_log), (self.errors, self.to_errors) = os.pipe(), os.pipe()

    def close(self) -> None:
        """The process has ended."""
        os.close(self.to_log)
        os.close(self.to_errors)

    def read_while(self, write: Callable[[], None]) -> list[str]:
        """All lines of what a thread writes meanwhile."""

        def work() -> None:
            try:
                write()
            finally:
                self.close()

        thread = threading.Thread(target=work)
        thread.start()
        found = list(lines(self.log, self.errors))
        thread.join()
        return found


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    os.close(made.log)
    os.close(made.errors)


def write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def test_what_is_logged_comes_before_its_copy(pipes: Pipes) -> None:
    def work() -> None:
        for number in range(300):
            text = b"%d" % number * (number * 20)
            write(pipes.to_log, b"logged " + text + b"\n")
            write(pipes.to_errors, text + b"\n")

    found = pipes.read_while(work)
    logged = [index for index, line in enumerate(found) if line.startswith("logged ")]
    assert len(found) == 600
    assert all(found[index].removeprefix("logged ") in found[index + 1 :] for index in logged)


def test_lines_of_one_pipe_are_not_mixed_with_those_of_the_other(pipes: Pipes) -> None:
    def work() -> None:
        for _ in range(200):
            for half in (b"a" * 5000, b"b" * 5000 + b"\n"):
                write(pipes.to_log, half)
                write(pipes.to_errors, half.upper() if half.endswith(b"\n") else half)

    found = pipes.read_while(work)
    assert sorted(found) == sorted(["a" * 5000 + "b" * 5000] * 200 + ["a" * 5000 + "B" * 5000] * 200)


def test_ends_of_lines(pipes: Pipes) -> None:
    def work() -> None:
        write(pipes.to_log, b"one\r\ntwo\rthree\n\nf\xc3\xbcnf \xff\x85x\nno end")

    assert pipes.read_while(work) == ["one", "two", "three", "", "fünf \\xff\\x85x", "no end"]


def test_a_line_that_is_too_long_is_left_out(pipes: Pipes) -> None:
    def work() -> None:
        write(pipes.to_errors, b"x" * LONGEST + b"\n" + b"x" * (LONGEST + 1) + b"\nnext\n")

    assert [(len(line), line[:4]) for line in pipes.read_while(work)] == [(LONGEST, "xxxx"), (4, "next")]


def test_one_that_is_closed_first(pipes: Pipes) -> None:
    os.close(pipes.to_log)

    def work() -> None:
        pipes.to_log = os.dup(pipes.to_errors)
        write(pipes.to_errors, b"a\nb\n")

    assert pipes.read_while(work) == ["a", "b"]
