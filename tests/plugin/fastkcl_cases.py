"""The option ``--cases DIR`` of fastkcl's tests, known to pytest from its start.

pytest reads tests/conftest.py late: until then it takes the word after an unknown option for a test path, and looks for
its configuration there. So ``pytest --cases DIR`` needs the option to come from an installed plugin. This is all it
does; tests/conftest.py uses the value. It is installed with the development environment, never with fastkcl.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the option."""
    parser.addoption(
        "--cases",
        metavar="DIR",
        help="read the conformance cases from DIR instead of tests/data/cases; it may hold only some of the files",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make up for a configuration that was not found.

    pytest looks for pyproject.toml before it loads plugins, and takes DIR for a test path once more. With a DIR outside
    of the checkout it finds none, and would run everything in the current folder, benches too, with warnings allowed.
    """
    here = config.invocation_params.dir
    if (
        config.getoption("--cases")
        and config.inipath is None
        and config.args == [str(here)]
        and (here / "tests").is_dir()
    ):
        config.args = [str(here / "tests")]
        config.addinivalue_line("filterwarnings", "error")
