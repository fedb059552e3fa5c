"""Options with fractions: every one refuses a value that is no number of its range, in one line."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.cli.numbers import FiniteRange


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*words, name))
    else:
        yield words, command


OPTIONS = [
    (words, option)
    for words, command in commands(cli)
    for option in command.params
    if isinstance(option.type, click.types.FloatParamType)
]


def test_all_are_of_one_type() -> None:
    assert len(OPTIONS) >= 16
    assert [option.name for _, option in OPTIONS if not isinstance(option.type, FiniteRange)] == []


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "1e308", "-1e308", "1e999", "x", ""])
@pytest.mark.parametrize(("words", "option"), OPTIONS, ids=[f"{' '.join(words)} {o.name}" for words, o in OPTIONS])
def test_no_number(words: tuple[str, ...], option: click.Parameter, value: str) -> None:
    done = CliRunner().invoke(cli, [*words, f"{option.opts[0]}={value}"])
    assert done.exit_code == 2
    line = done.output.strip().splitlines()[-1]
    assert line.startswith(f"Error: Invalid value for '{option.opts[0]}'"), done.output
