"""Puts something of its own where the standard files are, imports kcl and serves; the first argument says which way.

Written for amazon_kclpy. The second argument is a file for the input that the program and its files get.
"""

# ruff: noqa: PTH123, SIM115 - as programs open their standard files

import codecs
import contextlib
import io
import os
import sys

log = open(sys.argv[2], "a", encoding="utf-8")


def note(what, text):
    log.write(f"{what}: {text!r}\n")
    log.flush()


def serve(*files, while_importing=contextlib.nullcontext, while_running=contextlib.nullcontext, between=None, **named):
    with while_importing():
        from amazon_kclpy import kcl
        from amazon_kclpy.v3 import processor

    class Processor(processor.RecordProcessorBase):
        def initialize(self, i):
            self.say("initialize", i.shard_id)

        def process_records(self, i):
            for record in i.records:
                self.say(record.sequence_number, ascii(record.partition_key), len(record.binary_data))
                if "errors" in sys.argv[1]:
                    raise ValueError("boom")
            i.checkpointer.checkpoint(i.records[-1].sequence_number)

        def lease_lost(self, i):
            pass

        def shard_ended(self, i):
            i.checkpointer.checkpoint()

        def shutdown_requested(self, i):
            i.checkpointer.checkpoint()

        def say(self, *what):
            note("program", what)
            if "prints" in sys.argv[1]:
                print("printed", *what)

    if between is not None:
        between()
    with while_running():
        kcl.KCLProcess(Processor(), *files, **named).run()


class Tee:
    """No more than what is asked of a file."""

    def __init__(self, name, file):
        self.name = name
        self.file = file

    def write(self, text):
        if self.name != "stderr" or text.startswith("Caught"):
            note(self.name, text.partition("Traceback")[0])
        return self.file.write(text)

    def flush(self):
        self.file.flush()

    def readline(self):
        line = self.file.readline()
        note(self.name, line)
        return line


class DelegatingTee(Tee):
    """Whatever else is asked, the file answers."""

    def __getattr__(self, name):
        return getattr(self.file, name)


class TextTee(io.TextIOWrapper):
    def write(self, text):
        note("text", text)
        return super().write(text)

    def readline(self, *size):
        line = super().readline(*size)
        note("text", line)
        return line


class WritingTee(io.BufferedWriter):
    def write(self, data):
        note("bytes", bytes(data))
        return super().write(data)


class CountingReader(io.BufferedReader):
    total = 0

    def read1(self, size=-1):
        data = super().read1(size)
        CountingReader.total += len(data)
        return data


class RawTee(io.FileIO):
    def write(self, data):
        note("raw", bytes(data))
        return super().write(data)


# ---- descriptors ------------------------------------------------------------------------------------------------


def descriptors_moved_prints():
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(between=lambda: setattr(sys, "stdout", sys.stderr))


def output_moved_prints():
    """The protocol's file is given, and whatever else writes to fd 1 lands on standard error."""
    protocol = open(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(output_file=protocol)


def both_moved():
    null = os.open(os.devnull, os.O_RDONLY)
    sys.stdin = os.fdopen(os.dup(0))
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(null, 0)
    os.dup2(2, 1)
    serve()


def input_moved():
    sys.stdin = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve()


def opened_by_name():
    sys.stdin = open("/dev/stdin", encoding="utf-8")
    sys.stdout = open("/dev/stdout", "w", encoding="utf-8")
    serve()


# ---- other text files on the same descriptors -------------------------------------------------------------------


def input_detached():
    sys.stdin = io.TextIOWrapper(sys.stdin.detach(), encoding="utf-8")
    serve()


def output_detached():
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8", line_buffering=True)
    serve()


def errors_detached():
    sys.stderr = io.TextIOWrapper(sys.stderr.detach(), encoding="utf-8", errors="replace")
    serve()


def all_detached():
    sys.stdin = io.TextIOWrapper(sys.stdin.detach(), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(sys.stderr.detach(), encoding="utf-8")
    serve()


def detached_and_given():
    """`sys.stdin` and `sys.stdout` stay what they are without a buffer."""
    files = io.TextIOWrapper(sys.stdin.detach()), io.TextIOWrapper(sys.stdout.detach())
    serve(*files)


def wrapped():
    sys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", write_through=True)
    serve()


def reconfigured():
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    sys.stderr.reconfigure(line_buffering=True, write_through=True)
    serve()


def opened_again():
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    serve()


def opened_again_and_closed_at_the_end():
    sys.stdin = os.fdopen(sys.stdin.fileno())
    sys.stdout = os.fdopen(sys.stdout.fileno(), "w", 1)
    serve()


def opened_without_buffer():
    sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)
    serve()


def bytes_in():
    serve(input_file=sys.stdin.buffer)


def codecs_writer():
    sys.stdout = codecs.getwriter("utf-8")(sys.stdout.buffer)
    serve()


def given():
    serve(sys.stdin, sys.stdout, sys.stderr)


# ---- something that looks on ------------------------------------------------------------------------------------


def tee_input():
    sys.stdin = Tee("stdin", sys.stdin)
    serve()


def tee_output():
    sys.stdout = Tee("stdout", sys.stdout)
    serve()


def tee_errors():
    sys.stderr = Tee("stderr", sys.stderr)
    serve()


def tee_all_with_errors():
    sys.stdin = Tee("stdin", sys.stdin)
    sys.stdout = Tee("stdout", sys.stdout)
    sys.stderr = Tee("stderr", sys.stderr)
    serve()


def delegating_tee_all_with_errors():
    sys.stdin = DelegatingTee("stdin", sys.stdin)
    sys.stdout = DelegatingTee("stdout", sys.stdout)
    sys.stderr = DelegatingTee("stderr", sys.stderr)
    serve()


def tee_after_the_import():
    """Bound are the files of the import."""
    serve(between=lambda: setattr(sys, "stdout", Tee("stdout", sys.stdout)))


def tee_of_another_file_after_the_import():
    """Beside an input of one's own, so that no reader takes the real one."""
    sys.stdin = Tee("stdin", sys.stdin)
    serve(between=lambda: setattr(sys, "stdout", Tee("stdout", sys.stderr)))


def derived_files():
    sys.stdin = TextTee(sys.stdin.buffer)
    sys.stdout = TextTee(sys.stdout.buffer)
    serve()


def derived_writer():
    sys.stdout = io.TextIOWrapper(WritingTee(open(1, "wb", 0, closefd=False)))
    serve()


def derived_raw():
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(RawTee(1, "w", closefd=False)))
    serve()


def derived_reader():
    sys.stdin = io.TextIOWrapper(CountingReader(sys.stdin.buffer.raw))
    serve()
    note("read", CountingReader.total)


def write_replaced():
    write = sys.stdout.write
    sys.stdout.write = lambda text: (note("write", text), write(text))
    serve()


def flush_replaced():
    flush = sys.stdout.flush
    sys.stdout.flush = lambda: (note("flush", ""), flush())
    serve()


def readline_replaced():
    readline = sys.stdin.readline
    sys.stdin.readline = lambda: (line := readline(), note("readline", line))[0]
    serve()


def write_of_the_buffer_replaced():
    buffer = sys.stdout.buffer
    write = buffer.write
    buffer.write = lambda data: (note("buffer", bytes(data)), write(data))[1]
    serve()


def attribute_set():
    sys.stdout.remark = "no method"
    serve()


# ---- redirected -------------------------------------------------------------------------------------------------


def redirected_import():
    out = sys.stdout
    serve(output_file=out, while_importing=lambda: contextlib.redirect_stdout(sys.stderr))


def redirected_import_into_memory():
    out, said = sys.stdout, io.StringIO()
    serve(output_file=out, while_importing=lambda: contextlib.redirect_stdout(said))
    note("said", said.getvalue())


def redirected_run_prints():
    serve(while_running=lambda: contextlib.redirect_stdout(sys.stderr))


def redirected_run_into_memory_prints():
    said = io.StringIO()
    serve(while_running=lambda: contextlib.redirect_stdout(said))
    note("said", said.getvalue())


def no_output_for_prints():
    serve(between=lambda: setattr(sys, "stdout", None))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    note("end", "")
