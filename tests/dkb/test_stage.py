"""A stage as its supervisor, its user and its command line see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import case_files
import pytest
from case_files import Case
from dkb_helpers import STAGE, Stage, play
from fastkcl import dkb
from fastkcl.dkb.arguments import parse_arguments
from fastkcl.dkb.errors import StageError
from fastkcl.dkb.files import input_files
from fastkcl.dkb.markers import LARGEST_MARKER_BYTES, PRESETS, Markers, escape, unescape
from fastkcl.stdio import given_files
from hypothesis import given
from hypothesis import strategies as st

DIALOGUES = case_files.load("dkb-frames", "dialogue")
OPTIONS = case_files.load("dkb-frames", "options")


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("case", DIALOGUES, ids=[case["name"] for case in DIALOGUES])
def test_dialogue_case(case: Case, bytewise: bool) -> None:
    play(case, bytewise=bytewise)


@pytest.mark.parametrize("case", OPTIONS, ids=[case["name"] for case in OPTIONS])
def test_options_case(case: Case) -> None:
    if "error" in case:
        with pytest.raises(StageError) as caught:
            parse_arguments(case["args"])
        assert (caught.value.kind, caught.value.exit_code) == (case["error"]["kind"], case["exit"])
    else:
        expected = [case["markers"][name].encode() for name in ("eom", "eop", "eob", "bnc")]
        assert list(parse_arguments(case["args"]).markers) == expected


class TestMarkers:
    @given(st.binary(max_size=20))
    def test_escapes_there_and_back(self, marker: bytes) -> None:
        assert unescape(escape(marker)) == marker

    @pytest.mark.parametrize(
        ("text", "marker"),
        [
            ("", b""),
            (r"\0\n", b"\0\n"),
            (r"\x1e", b"\x1e"),
            (r"\\n", b"\\n"),
            ("é", "é".encode()),
            (r"\017a", b"\x0fa"),
        ],
    )
    def test_escapes(self, text: str, marker: bytes) -> None:
        assert unescape(text) == marker

    @pytest.mark.parametrize("text", ["\\", r"\q", r"\x1", r"\400"])
    def test_an_escape_that_nobody_knows(self, text: str) -> None:
        with pytest.raises(StageError, match="marker"):
            unescape(text)

    def test_presets_keep_the_rules(self) -> None:
        assert [markers.check() for markers in PRESETS.values()] == list(PRESETS.values())

    @pytest.mark.parametrize(
        ("markers", "kind"),
        [
            (Markers(b"\n", b"\0", b"\n", b""), "marker_prefix"),
            (Markers(b"EO"), "marker_prefix"),
            (Markers(b"x" * (LARGEST_MARKER_BYTES + 1)), "marker_length"),
        ],
    )
    def test_refused(self, markers: Markers, kind: str) -> None:
        with pytest.raises(StageError) as caught:
            markers.check()
        assert caught.value.kind == kind


class TestMessages:
    def test_the_flag_is_taken_out_and_put_back_last(self) -> None:
        message = dkb.JSONMessage.read(b'{"_incomplete": true, "a": 1}')
        assert (message.content(), message.incomplete()) == ({"a": 1}, True)
        message.content()["b"] = 2
        assert message.write() == b'{"a": 1, "b": 2, "_incomplete": true}'
        assert message.incomplete(False) is True
        assert message.write() == b'{"a": 1, "b": 2}'

    @pytest.mark.parametrize("text", [b'{"_incomplete": false}', b'{"_incomplete": 1}', b"{}"])
    def test_a_flag_that_is_not_true(self, text: bytes) -> None:
        message = dkb.JSONMessage.read(text)
        assert (message.content(), message.incomplete(), message.write()) == ({}, False, b"{}")

    def test_only_objects_can_carry_it(self) -> None:
        assert dkb.JSONMessage.read(b"[1]").write() == b"[1]"
        with pytest.raises(ValueError, match="only a JSON object"):
            dkb.JSONMessage([1], incomplete=True).write()

    @pytest.mark.parametrize("number", [float("inf"), float("nan")])
    def test_writes_no_number_that_the_next_stage_cannot_read(self, number: float) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            dkb.JSONMessage({"a": number}).write()

    @pytest.mark.parametrize("data", [b"", b"nope", b"\xff", b"[" * 100_000, b"NaN", b"1 2"])
    def test_no_json(self, data: bytes) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it is called
            dkb.JSONMessage.read(data)

    def test_output_is_ascii_without_control_characters(self) -> None:
        assert dkb.JSONMessage({"é": "\n\0"}).write() == b'{"\\u00e9": "\\n\\u0000"}'

    def test_other_types(self) -> None:
        assert dkb.TextMessage.read("é".encode()).write() == "é".encode()
        assert dkb.BytesMessage.read(b"\xff").write() == b"\xff"
        assert dkb.TTLMessage.read(b"<a> <b> <c> .").content() == "<a> <b> <c> ."
        for cls, data in ((dkb.TextMessage, b"\xff"), (dkb.TTLMessage, b"")):
            with pytest.raises(ValueError):  # noqa: PT011
                cls.read(data)
        for wrong in (dkb.TextMessage(1), dkb.BytesMessage("a")):
            with pytest.raises(TypeError):
                wrong.write()


class TestStream:
    @pytest.mark.parametrize("size", [1, 2, 0])
    def test_columns(self, size: int) -> None:
        with Stage("arrow", "echo", size, "-m", "s") as stage:
            stage.send(b"a\n" if size == 1 else b"a\nb\n")
            if size == 0:
                stage.quiet(0.3)
                stage.send(b"EOB")
            stage.expect({1: b"a\n\0", 2: b"BNCa\nb\n\0", 0: b"a\nb\n\0"}[size])
            stage.send(b"\xff\n")
            if size == 2:
                stage.expect(b"BNC")
            stage.end_input()
            stage.expect(b"\xff\n\0")
            assert stage.finish()[0] == 0

    def test_supervisor_driven(self) -> None:
        """No BNC; an unreadable message is passed over; EOB with nothing gets an EOP alone, at once."""
        with Stage("json", "echo", 0, "-m", "s") as stage:
            stage.send(b"EOB")
            stage.expect(b"\0")
            stage.send(b"1\nnope\n2\n")
            stage.quiet(0.3)
            stage.send(b"EOB")
            stage.expect(b"1\n2\n\0")
            stage.send(b"3\nrest")
            stage.end_input()
            stage.expect(b"3\n\0")
            code, errors = stage.finish()
        assert code == 0
        assert "(WARN) (Stage) a message of 4 bytes cannot be read as json" in errors
        assert "4 bytes at the end of input without EOM are dropped: b'rest'" in errors
        assert errors.count("printed\n") == 2

    def test_an_unreadable_message_in_an_open_batch_is_not_counted(self) -> None:
        with Stage("json", "echo", 2, "-m", "s") as stage:
            for message in (b"1\n", b"nope\n", b"\xff\n", b"\n"):
                stage.send(message)
                stage.expect(b"BNC")
            stage.send(b"2\n")
            stage.expect(b"1\n2\n\0")
            assert stage.finish()[0] == 0

    def test_cyclic_extraction(self) -> None:
        with Stage("json", "extract", None, "-m", "s") as stage:
            for _ in range(2):
                stage.send(b"\n")
                stage.expect(b'{"n": 0}\n{"n": 1}\n{"n": 2}\n\0')
            assert stage.finish()[0] == 0

    def test_no_end_of_process_in_mode_m(self) -> None:
        with Stage("text", "echo", None, "-m", "m") as stage:
            stage.send(b"a\nb\n")
            stage.expect(b"a\nb\n")
            assert stage.finish()[0] == 0

    def test_an_exception_drops_the_whole_batch(self) -> None:
        with Stage("text", "raise", 2, "-m", "s") as stage:
            stage.send(b"a\nb\n")
            stage.expect(b"BNC")
            code, errors = stage.finish()
        assert code == 1
        assert "RuntimeError: process raises" in errors
        assert "process failed with RuntimeError: process raises; the request is not answered" in errors

    def test_a_message_that_is_too_long(self) -> None:
        with Stage("text", "echo", None, "-m", "s") as stage:
            try:
                for _ in range(65):
                    stage.send(b"x" * (1 << 20))
            except BrokenPipeError:
                pass
            code, errors = stage.finish()
        assert code == 1
        assert "message_too_long: a message is longer than max_message_bytes=67108864" in errors

    def test_a_supervisor_that_has_gone(self) -> None:
        with Stage("text", "echo", None, "-m", "s") as stage:
            assert stage.process.stdout is not None
            stage.process.stdout.close()
            stage.send(b"a\n")
            assert stage.process.wait(30) == 1

    def test_the_first_signal_is_noted_the_second_stops(self) -> None:
        with Stage("text", "echo", None, "-m", "s") as stage:
            stage.send(b"a\n")
            stage.expect(b"a\n\0")
            stage.process.send_signal(signal.SIGTERM)
            stage.send(b"b\n")
            stage.expect(b"b\n\0")
            stage.process.send_signal(signal.SIGTERM)
            assert stage.process.wait(30) == 128 + signal.SIGTERM

    def test_a_terminal(self) -> None:
        terminal, other = os.openpty()
        try:
            command = [sys.executable, str(STAGE), "json", "echo", "-", "-m", "s"]
            done = subprocess.run(command, stdin=other, capture_output=True, text=True, timeout=60, check=False)
        finally:
            os.close(terminal)
            os.close(other)
        assert (done.returncode, "standard input is a terminal: pipe messages in" in done.stderr) == (2, True)

    def test_skip_marks_and_passes_on(self) -> None:
        with Stage("json", "raise", 5, "-m", "s", "--skip") as stage:
            stage.send(b'{"a":1}\n')
            stage.expect(b'{"a": 1, "_incomplete": true}\n\0')
            stage.send(b"[1]\n")
            code, errors = stage.finish()
        assert code == 1
        assert "--skip: only a JSON object can be marked incomplete" in errors


def run(tmp_path: Path, *arguments: str, message_type: str = "json", behaviour: str = "echo") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(STAGE), message_type, behaviour, "-", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


class TestFiles:
    def test_each_file_has_its_output(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"a":1}\n{"_incomplete":true,"a":2}\n')
        (tmp_path / "b.json").write_text("3\n4")
        (tmp_path / "c.ttl").write_text("not ours")
        code, told = run(tmp_path)
        assert (code, told.count("without EOM")) == (0, 1)
        assert (tmp_path / "out/a.json").read_text() == '{"a": 1}\n{"a": 2}\n'
        assert (tmp_path / "out/b.json").read_text() == "3\n"
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.json", "b.json"]
        code, told = run(tmp_path)
        assert code == 1
        assert "a.json: exists already" in told

    def test_a_whole_file_is_one_message(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in/x.txt").write_text("a\nb\n")
        (tmp_path / "in/y.txt").write_text("other")
        code, told = run(tmp_path, "-e", "", "-i", "in", "-o", "./there", "x.txt", message_type="text")
        assert (code, told) == (0, "printed\n")
        assert (tmp_path / "there/x.txt").read_text() == "a\nb\n\n"

    def test_files_to_the_stream_and_back(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("1\n2\n")
        code, told = run(tmp_path, "-m", "s", "-s", "f", "-b", "2")
        assert (code, told) == (0, "1\n2\n\0printed\n")
        done = subprocess.run(
            [sys.executable, str(STAGE), "json", "echo", "-", "-m", "s", "-d", "f", "-o", str(tmp_path / "to")],
            input=b"1\n2\n",
            check=True,
            capture_output=True,
        )
        (made,) = (tmp_path / "to").iterdir()
        assert (made.suffix, made.read_bytes(), done.stdout) == (".json", b"1\n\0" + b"2\n\0", b"")
        assert made.stem.isdigit()

    def test_a_failure_leaves_no_half_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("1\n2\n")
        code, told = run(tmp_path, behaviour="raise")
        assert code == 1
        assert "process failed" in told
        assert list((tmp_path / "out").iterdir()) == []

    @pytest.mark.parametrize(("end", "code"), [("raise", 1), ("exit", 3), ("return", 1)])
    def test_a_forked_child_leaves_the_files_alone(self, end: str, code: int, tmp_path: Path) -> None:
        """Whatever has brought it back, its parent reads on and writes each result once."""
        (tmp_path / "a.txt").write_text("1\nfork\n2\n3\n")
        found, told = run(tmp_path, message_type="text", behaviour=f"fork and {end}")
        assert (found, f"fork {code}\n" in told) == (0, True), told
        assert ("a forked child came back into the stage of its parent" in told) is (end == "return")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]
        assert (tmp_path / "out/a.txt").read_text() == "1\nfork\n2\n3\n"

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (["nothing.json"], 1, "nothing.json: no such file"),
            (["-i", "nowhere"], 1, "nowhere: no such directory"),
            (["-s", "h"], 2, "HDFS is not offered"),
            (["-b", "-1"], 2, "--batch-size -1"),
            (["--nonsense"], 2, "unrecognized arguments"),
            (["-c", "no.ini"], 2, "no.ini: cannot be opened"),
            (["-c", "bad.ini"], 3, "bad.ini: File contains no section headers"),
            (["-e", "EO"], 1, "EOM 'EO' is a prefix of EOB 'EOB'"),
        ],
    )
    def test_refused(self, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
        (tmp_path / "bad.ini").write_text("no section\n")
        found, told = run(tmp_path, *arguments)
        assert (found, says in told) == (code, True), told
        assert "(ERROR) " in told


class TestUse:
    def test_process_may_be_a_function_of_the_stage(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("1\n2\n")
        (tmp_path / "c.ini").write_text("[plus]\nnumber = 40\n")

        def process(stage: dkb.ProcessorStage, message: dkb.Message) -> bool:
            stage.output(message.content() + int(stage.CONFIG["plus"]["number"]))
            return message.content() != 1

        stage = dkb.ProcessorStage()
        stage.process = process
        stage.configure(["-i", str(tmp_path), "-c", str(tmp_path / "c.ini")])
        assert stage.run() == 0
        assert (tmp_path / "out/a.json").read_text() == "42\n"

    def test_nobody_waits_for_a_pipe(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(given_files, "PATIENCE", 0.05)
        os.mkfifo(tmp_path / "pipe")
        stage = dkb.ProcessorStage()
        with pytest.raises(SystemExit) as raised:
            stage.configure(["-i", str(tmp_path), "-c", str(tmp_path / "pipe")])
        assert raised.value.code == 2
        with pytest.raises(StageError, match="pipe: not a regular file"):
            input_files(str(tmp_path), ["pipe"], ".json")

    def test_one_function(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"a": 1, "_incomplete": true}\n{"a": 2}\n{"a": 3}\n')

        @dkb.processor(batch_size=2)
        def double(batch: list[dict[str, int]]) -> object:
            return [{"a": 2 * one["a"]} for one in batch]

        double.configure(["-i", str(tmp_path)])
        assert double.run() == 0
        expected = '{"a": 2, "_incomplete": true}\n{"a": 4, "_incomplete": true}\n{"a": 6}\n'
        assert (tmp_path / "out/a.json").read_text() == expected

    @pytest.mark.parametrize("result", [None, 1, "yes"])
    def test_what_process_returns_is_a_bool(
        self, tmp_path: Path, result: object, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a.json").write_text("1\n")
        stage = dkb.ProcessorStage()
        stage.process = lambda _stage, _message: result  # type: ignore[assignment, return-value]
        stage.configure(["-i", str(tmp_path)])
        assert stage.run() == 1
        assert f"process returned {result!r}: True writes" in capfd.readouterr().err

    def test_stop_ends_after_the_request(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text("1\n2\n")

        class Once(dkb.ProcessorStage):
            def process(self, message: dkb.Message) -> bool:
                self.output(message)
                self.stop()
                return True

        stage = Once()
        stage.configure(["-i", str(tmp_path)])
        assert stage.run() == 0
        assert (tmp_path / "out/a.json").read_text() == "1\n"
