"""The command line that starts a daemon, and the daemon's environment.

    java <JVM options> -cp <user's paths>:<jars>:<folder of the properties> <main class> <properties file>

The JVM gets options that the daemon needs and does not ask for. UTF-8 in any locale: before Java 18 the locale decides
and turns characters of partition keys into question marks. For KCL 1 on Java 9 and later an opened module: without it
SDK 1 cannot build an exception, and a throttled checkpoint is answered with the wrong error. JSON instead of CBOR where
Kinesis is a stand-in.

Children inherit the environment whole. FASTKCL_STREAM is added to it: no message names the stream to a child.
"""

from __future__ import annotations

import locale
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastkcl.daemon.jars import JarSet
from fastkcl.daemon.keys import Generation
from fastkcl.daemon.log_lines import kcl_1_options
from fastkcl.daemon.options import EXECUTABLE, OptionsError, is_stand_in
from fastkcl.daemon.settings import Options
from fastkcl.java import Java

__all__ = ["MINIMUM_JAVA", "STREAM_VARIABLE", "Launch", "plan"]

MINIMUM_JAVA = 8
"""The oldest Java that the daemons run on, by their class files."""
STREAM_VARIABLE = "FASTKCL_STREAM"
"""Environment variable: which stream a child reads."""

_ARGUMENT_FILES_SINCE = 9
_MODULES_SINCE = 9
_COMMANDS_BY_LOCALE_SINCE = 18  # before, by file.encoding, which is set


@dataclass(frozen=True, slots=True)
class Launch:
    """How a daemon is started."""

    generation: Generation
    java: Java
    jvm_options: tuple[str, ...]
    classpath: tuple[str, ...]
    """Without the folder of the properties file."""
    environment: Mapping[str, str]
    """Variables to add to the environment."""
    log_configuration: Path | None
    """The user's; its log is not folded."""
    secrets: Mapping[str, str]
    """System properties that are on no command line."""

    def command(
        self, properties: Path, *, folding: Path | None = None, mark: str = "", argument_file: Path | None = None
    ) -> list[str]:
        """The command line.

        Args:
            properties: the properties file, which need not exist yet.
            folding: the logback.xml by which `fastkcl.daemon.log` can read the log, where the user has none of their
                own; None for the daemon's usual log.
            mark: of the lines of that log.
            argument_file: where the secrets are written.
        """
        command = [str(self.java.executable), *self.jvm_options]
        if argument_file is not None:
            command.append(f"@{argument_file}")
        if self.generation.is_1:
            if self.log_configuration is not None:
                command.append(f"-Djava.util.logging.config.file={self.log_configuration}")
            elif folding is not None:
                command += kcl_1_options(mark)
        # KCL 1 looks for the file by its name on the class path.
        classpath = [*self.classpath, str(properties.absolute().parent)]
        command += ["-cp", os.pathsep.join(classpath), self.generation.main_class]
        if self.generation.is_1:
            return [*command, properties.name]
        log = self.log_configuration or folding
        command += ["--properties-file", str(properties)]
        return command if log is None else [*command, "--log-configuration", str(log)]

    def shell_line(self, properties: Path) -> str:
        """The command line for a shell, with the variables that are added; without secrets."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*(["env", *variables] if variables else []), *self.command(properties)])

    def argument_file(self) -> str:
        """The secrets as a file of arguments for java."""
        quoted = (f"-D{name}={value}".replace("\\", "\\\\").replace('"', '\\"') for name, value in self.secrets.items())
        return "".join(f'"{argument}"\n' for argument in quoted)


def plan(
    options: Options,
    jars: JarSet,
    java: Java,
    *,
    jvm_options: Sequence[str] = (),
    classpath: Sequence[str] = (),
    log_configuration: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Launch:
    """How to start a daemon with these options.

    Args:
        options: its settings.
        jars: the daemon.
        java: for its JVM.
        jvm_options: the user's, which come last and win, e.g. ``-Xmx512m``.
        classpath: the user's, which comes first.
        log_configuration: the user's: a logback.xml, or for KCL 1 a logging.properties.
        environ: the environment that it will have.

    Raises:
        OptionsError: this Java cannot serve the options.
    """
    if options.secrets and java.version < _ARGUMENT_FILES_SINCE:
        raise OptionsError(
            [
                f"credentials under a prefix are handed to the JVM in a file, which needs Java {_ARGUMENT_FILES_SINCE}"
                f" or newer; {java.executable} is Java {java.version}"
            ]
        )
    child, encoding = options.settings[EXECUTABLE], locale.getencoding()
    if java.version >= _COMMANDS_BY_LOCALE_SINCE and not _survives(child.value, encoding):
        raise OptionsError(
            [
                f"{child.origin}: {child.value!r}: Java {java.version} would write it in the locale's encoding,"
                f" {encoding}, with question marks for characters that it does not have: set LC_ALL=C.UTF-8"
            ]
        )
    return Launch(
        generation=options.generation,
        java=java,
        jvm_options=(*_jvm_options(options, java), *jvm_options),
        classpath=(*(str(Path(path).absolute()) for path in classpath), f"{jars.folder}/*"),
        environment=_environment(options, environ),
        log_configuration=log_configuration,
        secrets=options.secrets,
    )


def _survives(command: str, encoding: str) -> bool:
    """Whether a command is still itself when it is written in the locale's encoding."""
    try:
        return command.encode(encoding) == os.fsencode(command)
    except UnicodeEncodeError:
        return False


def _jvm_options(options: Options, java: Java) -> list[str]:
    # From Java 18 on only the two streams still follow the locale.
    found = ["-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-Dstderr.encoding=UTF-8"]
    if options.generation.is_1 and java.version >= _MODULES_SINCE:
        found.append("--add-opens=java.base/java.lang=ALL-UNNAMED")
    if is_stand_in(options):
        found.append("-Dcom.amazonaws.sdk.disableCbor=true" if options.generation.is_1 else "-Daws.cborEnabled=false")
    return found


def _environment(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    found = {STREAM_VARIABLE: options.stream}
    # A stand-in takes any credentials, but asks for some; looking for a cloud's would take long.
    given = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
    if is_stand_in(options) and not options.secrets and not any(environ.get(name) for name in given):
        found |= {"AWS_ACCESS_KEY_ID": "stand-in", "AWS_SECRET_ACCESS_KEY": "stand-in"}
    return found
