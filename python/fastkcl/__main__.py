"""The command ``fastkcl``, also as ``python -m fastkcl``.

A command that runs as a daemon's child must not wait for a command line library, so it is dispatched here, before
the CLI is imported. Everything else is for people and needs the extra ``cli``.
"""

import sys


def main() -> None:
    """Run the command line. Exits with its status."""
    if sys.argv[1:2] == ["run"]:
        from fastkcl.kclpy import launch

        launch.main(sys.argv[2:])
        return
    try:
        import click  # noqa: F401 - only to see whether the extra is there
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        sys.stderr.write(f"fastkcl: the command line needs {error.name}: pip install 'fastkcl[cli]'\n")
        sys.exit(2)
    from fastkcl.cli.main import cli

    cli(prog_name="fastkcl")


if __name__ == "__main__":
    main()
