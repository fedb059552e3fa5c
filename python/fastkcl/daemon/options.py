"""The daemon's properties, merged from four sources and checked before a JVM is started.

    our defaults  ◀  properties file  ◀  environment  ◀  command line           the later wins

Every key may be spelt in any case and with any separator (`fastkcl.daemon.keys`), in each of these sources; from the
environment only names that mean a key are taken, and dots cannot be written there. The result has the daemon's own
spellings, and the source of each value.

There are two kinds of problems. A wrong value, or a missing required key, is an error, and all errors are reported at
once. A key that the daemon would ignore in silence is a warning, and an error for a strict caller: a key that it does
not know, a key that is written twice.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import javaproperties

from fastkcl.daemon import credentials, defaults
from fastkcl.daemon.keys import Generation, find_key, suggest
from fastkcl.daemon.settings import Options, Setting
from fastkcl.stdio.given_files import read_given

__all__ = [
    "EXECUTABLE",
    "OptionsError",
    "Source",
    "collect",
    "executable_name",
    "is_stand_in",
    "missing_keys",
    "read_file",
]

_MOST_BYTES = 16 << 20  # of a properties file
_MOST_LOOKED_THROUGH = 32 << 20
"""Bytes of values that go on in further lines: at each line the library looks through all of its value before it."""

EXECUTABLE = "executableName"
"""The key of the child's command."""
_WORDS_OF_A_PATH = 20
"""Looked for: a path with more spaces is not one that somebody forgot to think of."""
_MOST_WORDS = 1000
"""Of a command, which are looked at for such a path."""
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OPENING_QUOTE = re.compile(r"""(?<!\S)["']""")
_QUOTED = re.compile(r"""(["'])\S* .*?\1(?!\S)""")
_LONG_NAME = 8  # letters: the shorter a name is, the more are like it
_SLIP = 0.9  # how like a key a variable has to be, as there are many that have nothing to do with a daemon


class OptionsError(ValueError):
    """A daemon cannot be started with these options.

    `problems` has a line for each reason, `warnings` one for each thing beside it that is worth a look.
    """

    def __init__(self, problems: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


@dataclass(frozen=True, slots=True)
class Source:
    """One key as somebody wrote it."""

    name: str
    """The key in the writer's spelling."""
    value: str
    origin: str
    """Where, for people: ``app.properties, line 3``."""


def collect(
    generation: Generation,
    *,
    file: Iterable[Source] = (),
    environ: Mapping[str, str] | None = None,
    endpoint_url: Source | None = None,
    command_line: Iterable[Source] = (),
    credentials_prefix: str | None = None,
    strict: bool = False,
) -> Options:
    """Put the properties together and check them.

    Args:
        generation: which daemon they are for.
        file: the content of a properties file (`read_file`).
        environ: variables to look for keys in; None for none.
        endpoint_url: one URL for Kinesis, DynamoDB and CloudWatch, as a stand-in for AWS has.
        command_line: the last source.
        credentials_prefix: of the variables for a credentials provider of that kind; see `credentials`.
        strict: a warning is an error.

    Raises:
        OptionsError: there are errors; it reports all of them.
    """
    options = Options(generation)
    problems: list[str] = []
    variables = {} if environ is None else environ
    everywhere = [] if endpoint_url is None else [replace(endpoint_url, name=key) for key in _endpoints(generation)]
    for place in (file, _from_environment(options, variables, problems), everywhere, command_line):
        _merge(options, place, problems)
    region = next((name for name in _REGION_VARIABLES if variables.get(name)), None)
    if region and "regionName" not in options.settings:
        options.settings["regionName"] = Setting("regionName", variables[region], f"environment variable {region}")
    for key, value in defaults.properties(generation, options.settings.keys(), stand_in=is_stand_in(options)):
        options.settings[key] = Setting(key, value, "default")
    _check_values(options, problems)
    _check_required(options, problems)
    try:
        credentials.apply(options, os.environ if environ is None else environ, credentials_prefix)
    except ValueError as error:
        problems.append(str(error))
    if strict and options.warnings:
        raise OptionsError(problems + options.warnings)
    if problems:
        raise OptionsError(problems, options.warnings)
    return options


def read_file(path: Path) -> list[Source]:
    """The keys and values of a Java properties file.

    Raises:
        OptionsError: it cannot be read.
    """
    found: list[Source] = []
    line = 1
    try:
        text = read_given(path, _MOST_BYTES)
        _check_lines(text, path)
        # Java reads these files as ISO 8859-1, and so does the library with bytes.
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found.append(Source(element.key, element.value, f"{path}, line {line}"))
            line += element.source.count("\n")
    except OSError as error:
        raise OptionsError([f"{path}: {error.strerror or error}"]) from None
    except javaproperties.InvalidUEscapeError as error:
        raise OptionsError([f"{path}, line {line}: {error}"]) from None
    return found


def _check_lines(text: bytes, path: Path) -> None:
    looked_through = size = 0
    for number, line in enumerate(text.splitlines(), 1):
        if (len(line) - len(line.rstrip(b"\\"))) % 2 == 0 or (not size and line.lstrip().startswith((b"#", b"!"))):
            size = 0
            continue
        size += len(line)
        looked_through += size
        if looked_through > _MOST_LOOKED_THROUGH:
            raise OptionsError(
                [f"{path}, line {number}: too long a value that goes on line by line: write it in one line"]
            )


def executable_name(command: Sequence[str]) -> str:
    """The command of a child as the daemon takes it.

    Raises:
        OptionsError: it cannot be written so.
    """
    for argument in command:
        if " " in argument or not argument:
            what = "is empty" if not argument else "has a space in it"
            raise OptionsError(
                [
                    f"the child's command: {argument!r} {what}. The daemon splits the command at spaces and knows no"
                    " quotes, so no path and no argument can have one. Put the command into a script whose path has"
                    " none, or give the value by an environment variable, which children inherit"
                ]
            )
    return " ".join(command)


def missing_keys(options: Options, version: str) -> list[str]:
    """Messages about keys and values that this release of the daemon does not have yet.

    Args:
        options: of the daemon.
        version: the release, as `fastkcl.daemon.jars` finds it.
    """
    return [
        f"{setting.origin}: KCL {version} does not know {what}; KCL {first} and later do"
        for setting in options.settings.values()
        if (key := find_key(options.generation, setting.key)) is not None
        and (first := key.later_than(version, setting.value)) is not None
        for what in (key.name if key.since == first else f"{key.name} = {setting.value}",)
    ]


def is_stand_in(options: Options) -> bool:
    """Whether Kinesis is not Amazon's, but something that plays its part."""
    host = urlsplit(options.get("kinesisEndpoint") or "").hostname
    return host is not None and not re.search(r"\.amazonaws\.com(\.cn)?$", host)


def _endpoints(generation: Generation) -> tuple[str, ...]:
    """The keys of all endpoints; KCL 1 has none for CloudWatch."""
    both = ("kinesisEndpoint", "dynamoDBEndpoint")
    return both if generation.is_1 else (*both, "cloudWatchClient.endpointOverride")


def _from_environment(options: Options, environ: Mapping[str, str], problems: list[str]) -> Iterator[Source]:
    """Variables that are named like a key; one that looks like a typing error is a problem."""
    generation = options.generation
    seen: dict[str, Source] = {}
    for name, value in environ.items():
        key = None if "." in name else find_key(generation, name)
        if key is None:
            if _is_like_a_key(generation, name):
                unknown = _unknown(generation, Source(name, value, f"environment variable {name}"))
                options.warnings.append(f"{unknown} It is left out; --no-environment looks at none")
            continue
        source = Source(name, value, f"environment variable {name}")
        other = seen.setdefault(key.name, source)
        if other.value != value:
            problems.append(
                f"the environment variables {other.name} and {name} both mean {key.name} and differ: unset one"
            )
    yield from seen.values()


def _merge(options: Options, place: Iterable[Source], problems: list[str]) -> None:
    here: dict[str, Source] = {}
    for source in place:
        key = find_key(options.generation, source.name)
        if key is None:
            options.warnings.append(_unknown(options.generation, source))
            options.settings[source.name] = Setting(source.name, source.value, source.origin)
            continue
        if key.name in here:
            options.warnings.append(
                f"{source.origin}: {key.name} is also set at {here[key.name].origin}; this one wins"
            )
        here[key.name] = source
        try:
            options.settings[key.name] = Setting(key.name, key.normalize(source.value), source.origin)
        except ValueError as error:
            problems.append(f"{source.origin}: {source.name} {error}")
    if "streamName" in here and "streamArn" not in here and "streamArn" in options.settings:
        # For the daemon the ARN wins, wherever it is from.
        earlier = options.settings.pop("streamArn")
        options.notes.append(
            f"{here['streamName'].origin}: the stream is named, so streamArn of {earlier.origin} is left out"
        )


def _is_like_a_key(generation: Generation, name: str) -> bool:
    """Whether a variable must be meant for a daemon: a key of another generation's, or one with a slip in it."""
    if any(find_key(other, name) for other in Generation):
        return True
    return len(name) >= _LONG_NAME and suggest(generation, name, cutoff=_SLIP) is not None


def _unknown(generation: Generation, source: Source) -> str:
    meant = suggest(generation, source.name)
    others = [other.value for other in Generation if other is not generation and find_key(other, source.name)]
    text = f"{source.origin}: KCL {generation.value} has no key {source.name}"
    if others:
        text += f" (KCL {' and '.join(others)} has)"
    text += ", and the daemon would not report it"
    return f"{text}. Did you mean {meant}?" if meant else f"{text}."


def _check_values(options: Options, problems: list[str]) -> None:
    executable = options.get(EXECUTABLE)
    if executable is not None:
        program = executable.strip(" ").partition(" ")[0]
        if not program:
            problems.append(f"{options.settings[EXECUTABLE].origin}: {EXECUTABLE} is empty")
        elif quoted := _quoted(executable):
            problems.append(
                f"{options.settings[EXECUTABLE].origin}: {quoted[0]} in {EXECUTABLE}: the daemon splits the command at"
                " spaces and knows no quotes, so the child would get it in pieces, quotes and all. Put the command into"
                " a script, or give the value by an environment variable, which children inherit"
            )
        elif shutil.which(program) is None:
            problems.append(_no_program(executable.strip(" "), program, options.settings[EXECUTABLE].origin))
        elif split := _split_path(executable.strip(" ").split(" "), after=1):
            problems.append(f"{options.settings[EXECUTABLE].origin}: {EXECUTABLE}: {split}")
    for key in ("kinesisEndpoint", "dynamoDBEndpoint"):
        url = options.get(key)
        if url and not re.match(r"https?://[^/]", url):
            problems.append(f"{options.settings[key].origin}: {key} must be a URL such as https://host, not {url!r}")


def _no_program(command: str, program: str, origin: str) -> str:
    text = f"{origin}: the child's program {program} cannot be run: "
    text += "it is not on PATH" if "/" not in program else "there is no such program"
    split = _split_path(command.split(" "))
    return f"{text}. {split}" if split else text


def _quoted(command: str) -> re.Match[str] | None:
    """The first words of a command that quotes put together.

    Where the first quote of a kind is not closed, none of its kind is: so it takes two looks, however many there are.
    """
    first = {match[0]: match.start() for match in reversed(list(_OPENING_QUOTE.finditer(command)))}
    return next((match for at in sorted(first.values()) if (match := _QUOTED.match(command, at))), None)


def _split_path(words: list[str], *, after: int = 0) -> str | None:
    """Why a command does not start the intended file, if some of its words name one only when put together again.

    Args:
        words: of the command, at each space.
        after: how many are right as they are.
    """
    for begin in range(after, min(len(words), _MOST_WORDS)):
        if not words[begin] or _is_there(words[begin]):
            continue
        for end in range(begin + 2, min(begin + _WORDS_OF_A_PATH, len(words)) + 1):
            whole = " ".join(words[begin:end])
            if _is_there(whole):
                return (
                    f"{whole!r} is there, but the daemon splits the command at spaces and knows no quotes: no path in"
                    " it can have a space"
                )
    return None


def _is_there(path: str) -> bool:
    with suppress(OSError):  # too long for a path
        return Path(path).exists()
    return False


def _check_required(options: Options, problems: list[str]) -> None:
    arn = options.generation is Generation.KCL_3
    if not (options.get("streamName") or (arn and options.get("streamArn"))):
        problems.append(_missing("streamName", "--stream NAME", "the stream to read"))
    if not options.get("applicationName"):
        problems.append(_missing("applicationName", "--application NAME", "whose leases and checkpoints, a table name"))
    if options.get(EXECUTABLE) is None:
        problems.append(_missing(EXECUTABLE, "-- COMMAND", "the child to start for each shard"))


def _missing(key: str, option: str, meaning: str) -> str:
    variable = re.sub("([A-Z])", r"_\1", key).upper()
    return f"{key} is missing ({meaning}): {option}, or {key} in a properties file, or {variable} in the environment"
