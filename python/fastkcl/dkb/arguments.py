r"""The command line of a stage.

    -m, --mode f|s|m          f: files to files (default); s: stdin to stdout; m: the same without EOP, no files
    -s, --source f|s          the source of the input, by default that of the mode
    -d, --dest f|s            the destination of the results, the same
    -i, --input-dir DIR       of the files, default "."; FILE… names them, otherwise all of the input type's extension
    -o, --output-dir DIR      default "out", in the input's directory unless absolute or with ./ or ../ at its start
    -e, --end-of-message      markers; backslash escapes work in all four
    -E, --end-of-process
    --end-of-batch
    --batch-not-complete
    -b, --batch-size N        1: messages one by one; N: batches that the worker asks for; 0: that the supervisor ends
    --skip                    pass the input on, marked incomplete, without processing it
    -c, --config FILE         INI, for the stage's CONFIG

Exit codes: 2 for invalid arguments, and a config file that cannot be opened; 3 for one that cannot be parsed; 1 for
valid arguments that do not go together.
"""

from __future__ import annotations

import argparse
import configparser
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from typing import NamedTuple, NoReturn

from fastkcl.dkb.errors import StageError
from fastkcl.dkb.markers import Markers, unescape
from fastkcl.stdio.given_files import read_given

__all__ = ["EXIT_CONFIG", "Options", "parse_arguments", "read_config"]

EXIT_ARGUMENTS = 2
EXIT_CONFIG = 3
_MOST_CONFIG = 16 << 20  # bytes
_BY_MODE = {"f": ("f", "f"), "s": ("s", "s"), "m": ("s", "s")}


class Options(NamedTuple):
    """The options of a stage."""

    mode: str
    source: str
    """``f`` for files, ``s`` for standard input."""
    dest: str
    """``f`` for files, ``s`` for standard output."""
    input_dir: str
    output_dir: str
    files: tuple[str, ...]
    markers: Markers
    """An empty EOM: each file is one message."""
    batch_size: int | None
    """None: as the stage says."""
    skip: bool
    config: str | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StageError("arguments", f"{message}; see --help", EXIT_ARGUMENTS)


def _parser(description: str) -> _Parser:
    parser = _Parser(description=description)
    add = parser.add_argument
    add("-m", "--mode", choices="fsm", default="f", help="f: files to files; s: stream; m: stream of a map-reduce job")
    add("-s", "--source", choices="fsh", help="f: files; s: standard input (default: by the mode)")
    add("-d", "--dest", choices="fsh", help="f: files; s: standard output (default: by the mode)")
    add("-i", "--input-dir", metavar="DIR", default=".", help="directory of the input files (default: .)")
    add("-o", "--output-dir", metavar="DIR", default="out", help="directory for the output files (default: out)")
    add("-e", "--end-of-message", metavar="EOM", help=r"marker after each message (default: \n)")
    add("-E", "--end-of-process", metavar="EOP", help=r"marker after all results of a request (default: \0, mode s)")
    add("--end-of-batch", metavar="EOB", help="marker: process what you have (default: EOB)")
    add("--batch-not-complete", metavar="BNC", help="marker: send one more (default: BNC)")
    add("-b", "--batch-size", metavar="N", type=int, help="1: single messages; 0: batches that the supervisor ends")
    add("--skip", action="store_true", help="do not process: pass input on, marked incomplete")
    add("-c", "--config", metavar="FILE", help="configuration in INI format")
    add("files", metavar="FILE", nargs="*", help="input files (default: all of the input type's extension)")
    return parser


def parse_arguments(arguments: Sequence[str], description: str = "") -> Options:
    """The options of these arguments, with the defaults of the mode filled in.

    Raises:
        StageError: they are none, or do not go together; it has the exit code.
        SystemExit: ``--help``.
    """
    given = _parser(description).parse_args(arguments)
    source, dest = _BY_MODE[given.mode]
    source, dest = given.source or source, given.dest or dest
    for option, value in (("--source", source), ("--dest", dest)):
        if value == "h":
            raise StageError("arguments", f"{option} h: HDFS is not offered; use files or the stream", EXIT_ARGUMENTS)
        if value == "f" and given.mode == "m":
            raise StageError("mode", f"{option} f: mode m is for streams; use mode f or s for files")
    if given.batch_size is not None and given.batch_size < 0:
        raise StageError("arguments", f"--batch-size {given.batch_size}: use 0, 1 or more", EXIT_ARGUMENTS)
    eom, eop, eob, bnc = (
        None if text is None else unescape(text)
        for text in (given.end_of_message, given.end_of_process, given.end_of_batch, given.batch_not_complete)
    )
    if eom == b"" and source != "f":
        raise StageError("empty_eom", "an empty end of message makes each file one message, but the source is a stream")
    if eop is None:
        eop = b"\n" if eom == b"" else b"\0" if given.mode == "s" else b""
    defaults = Markers()
    markers = Markers(
        defaults.end_of_message if eom is None else eom,
        eop,
        defaults.end_of_batch if eob is None else eob,
        defaults.batch_not_complete if bnc is None else bnc,
    )
    return Options(
        mode=given.mode,
        source=source,
        dest=dest,
        input_dir=given.input_dir,
        output_dir=given.output_dir,
        files=tuple(given.files),
        markers=markers.check(),
        batch_size=given.batch_size,
        skip=given.skip,
        config=given.config,
    )


def read_config(path: str) -> dict[str, dict[str, str]]:
    """The sections of an INI file.

    Raises:
        StageError: it cannot be opened (exit code 2) or parsed (3).
    """
    parser = configparser.ConfigParser()
    try:
        parser.read_file(TextIOWrapper(BytesIO(read_given(path, _MOST_CONFIG)), "utf-8"), path)
        return {section: dict(parser.items(section)) for section in parser.sections()}
    except OSError as error:
        raise StageError("config", f"{path}: cannot be opened: {error.strerror}", EXIT_ARGUMENTS) from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise StageError("config", f"{path}: {' '.join(str(error).split())}", EXIT_CONFIG) from None
