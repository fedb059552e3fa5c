"""The class path and the command line that start the Java daemon, as ``amazon_kclpy_helper.py`` prints them.

    python -m fastkcl.kclpy.helper --print_command --java /usr/bin/java --properties app.properties
    $(python -m fastkcl.kclpy.helper --print_command -j java -p app.properties)    # and run it

Options, output, exit codes and importable functions are the original's; `--jars` is ours. A class path holds, in
this order: the paths of the user, the jars in the order of their names, the folder of the properties file.

The jars are looked for in this order:

    --jars DIR          there and nowhere else
    amazon_kclpy/jars   if that package is installed beside us; it is found without being imported
    FASTKCL_JARS=DIR    otherwise

Without any jar the output is the original's, and standard error names the missing jars.
"""

from __future__ import annotations

import os
import sys

from fastkcl.kclpy.alias import installed_original

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["get_dir_of_file", "get_kcl_app_command", "get_kcl_classpath", "get_kcl_dir", "get_kcl_jar_path", "main"]

DAEMON_CLASS = "software.amazon.kinesis.multilang.MultiLangDaemon"
"""The main class of the Java daemon."""
JARS_VARIABLE = "FASTKCL_JARS"
"""Environment variable: the folder of the jars where amazon_kclpy is not installed."""
# Part of the usage lines, which are the original's byte for byte.
_PROGRAM = "A script for generating a command to run an Amazon KCLpy app"


def get_dir_of_file(f: str) -> str:
    """The absolute path of the folder that a file is in.

    Args:
        f: path of the file, which need not exist.
    """
    return os.path.dirname(os.path.abspath(f))


def get_kcl_dir() -> str:
    """The absolute path of the installed amazon_kclpy package, or of this package where there is none."""
    return _original_package() or get_dir_of_file(__file__)


def get_kcl_jar_path() -> str:
    """The jars' absolute paths as a part of a class path; empty if there are none."""
    return _separator().join(_jars(None))


def get_kcl_classpath(properties: str | None = None, paths: Sequence[str] = []) -> str:
    """The class path of the daemon.

    Args:
        properties: path of the properties file; its folder comes last.
        paths: the first ones; made absolute. A path may end in ``/*``, as java understands it.
    """
    return _classpath(properties, paths, None)


def get_kcl_app_command(
    args: argparse.Namespace,
    multi_lang_daemon_class: str,
    properties: str,
    log_configuration: str,
    paths: Sequence[str] = [],
) -> str:
    """The command that starts the daemon, for a shell; nothing in it is quoted.

    Args:
        args: anything with the attributes `java`, path of the java program, and `properties`, path of the properties
            file; also with `jars`, folder of the jars, or None.
        multi_lang_daemon_class: the main class.
        properties: the daemon's arguments that name its properties file: ``--properties-file FILE``.
        log_configuration: likewise ``--log-configuration FILE``, or an empty string.
        paths: the first ones on the class path.
    """
    classpath = _classpath(args.properties, paths, getattr(args, "jars", None))
    return f"{args.java} -cp {classpath} {multi_lang_daemon_class} {properties} {log_configuration}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the script.

    Args:
        argv: its arguments; None for those of the process.

    Raises:
        SystemExit: with 2 for a wrong option, with 0 after ``--help``.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.use_sample_props:
        if args.properties:
            sys.stderr.write("Replacing provided properties with sample properties due to arg --sample\n")
        args.properties = os.path.join(get_dir_of_file(__file__), "sample.properties")
    if args.print_classpath:
        _warn_without_jars(args.jars)
        sys.stdout.write(_classpath(args.properties, args.paths, args.jars) + "\n")
    elif args.print_command and args.java and args.properties:
        _warn_without_jars(args.jars)
        log = "" if args.log_configuration is None else f"--log-configuration {args.log_configuration}"
        properties = f"--properties-file {args.properties}"
        sys.stdout.write(get_kcl_app_command(args, DAEMON_CLASS, properties, log, paths=args.paths) + "\n")
    else:
        if args.print_command:
            sys.stderr.write("Must provide arguments: --java and --properties\n")
        parser.print_usage()


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        epilog="More than amazon_kclpy_helper.py has: --jars DIR, the folder of the KCL's jars. Without it they are"
        f" those of the installed amazon_kclpy, or where that is missing those in the folder {JARS_VARIABLE}.",
    )
    parser.add_argument("--print_classpath", action="store_true", help="print the class path; with -p, -c")
    parser.add_argument(
        "--print_command", action="store_true", help="print the daemon's command line; needs -j and -p, with -c, -l"
    )
    parser.add_argument("-j", "--java", metavar="PATH_TO_JAVA", help="the java program, e.g. /usr/bin/java")
    parser.add_argument(
        "-p", "--properties", "--props", "--prop", metavar="PATH_TO_PROPERTIES", help="the daemon's properties file"
    )
    parser.add_argument(
        "--sample",
        "--sample-props",
        "--use-sample-properties",
        dest="use_sample_props",
        action="store_true",
        help="take the properties file that comes with this package",
    )
    parser.add_argument(
        "-c",
        "--classpath",
        "--path",
        dest="paths",
        action="append",
        default=[],
        metavar="PATH",
        help="put this first on the class path; may be given several times",
    )
    parser.add_argument(
        "-l",
        "--log-configuration",
        metavar="PATH_TO_LOG_CONFIGURATION",
        help="a logback.xml for the daemon's log",
    )
    # Ours, and therefore kept out of the usage lines. --j and --ja would otherwise become ambiguous.
    parser.add_argument("--jars", help=argparse.SUPPRESS)
    parser.add_argument("--j", "--ja", dest="java", help=argparse.SUPPRESS)
    return parser


def _original_package() -> str | None:
    """The folder of the installed amazon_kclpy."""
    spec = installed_original()
    return None if spec is None or spec.origin is None else get_dir_of_file(spec.origin)


def _jar_folders(given: str | None) -> list[str]:
    """Where the jars may be, first choice first."""
    if given:
        return [given]
    original = _original_package()
    folders = [] if original is None else [os.path.join(original, "jars")]
    from_environment = os.environ.get(JARS_VARIABLE)
    return [*folders, from_environment] if from_environment else folders


def _jars(given: str | None) -> list[str]:
    """The absolute paths of the jars, sorted by name.

    Args:
        given: their folder, or None to look for it.
    """
    for folder in _jar_folders(given):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        # As the shell pattern *jar that the original uses: hidden files are none.
        found = sorted(name for name in names if name.endswith("jar") and not name.startswith("."))
        if found:
            return [os.path.join(os.path.abspath(folder), name) for name in found]
    return []


def _classpath(properties: str | None, paths: Sequence[str], jars: str | None) -> str:
    parts = [*(os.path.abspath(path) for path in paths), *_jars(jars)]
    if properties:
        parts.append(get_dir_of_file(properties))
    return _separator().join(parts)


def _separator() -> str:
    return ":" if os.name == "posix" else ";"


def _warn_without_jars(given: str | None) -> None:
    if _jars(given):
        return
    folders = _jar_folders(given)
    where = f" in {' or '.join(folders)}" if folders else f": amazon_kclpy is not installed and {JARS_VARIABLE} not set"
    sys.stderr.write(
        f"fastkcl: no KCL jars were found{where}. The daemon does not start without them. Either install amazon_kclpy,"
        " whose package holds them, or put amazon-kinesis-client-multilang and its dependencies into a folder (Maven:"
        f" dependency:copy-dependencies) and name that with --jars DIR or {JARS_VARIABLE}=DIR\n"
    )


if __name__ == "__main__":
    main()
