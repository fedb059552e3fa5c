"""Test session set-up: where case files come from, and a note in the summary about those that did not run.

``pytest --cases DIR`` reads the conformance cases from DIR. The option is the plugin's in tests/plugin, which the
development environment has installed: pytest must know it before it reads this file.
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import case_files
import pytest
from hypothesis import settings
from paths import TESTS

pytest_plugins = [
    "run_folder",
    "time_limits",
    "no_skips",
    "needed_versions",
    "portable_ways",
    "services",
    "java_helpers",
    "original_async_kinesis",
    "original_kclpy",
    "spark_fixtures",
]

# Examples take long on a busy machine, which is no failure; HYPOTHESIS_PROFILE=thorough for a longer look.
settings.register_profile("default", deadline=None, max_examples=100, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    for number in (signal.SIGHUP, signal.SIGINT):
        # A run in the background ignores these, and every program that it starts would inherit that. A handler is not
        # inherited.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    for room in (path.name for path in TESTS.iterdir() if path.is_dir()):
        config.addinivalue_line("markers", f"{room}: the tests in tests/{room}")
    if not config.pluginmanager.hasplugin("fastkcl_cases"):
        raise pytest.UsageError(
            "the tests' own plugin is not installed: run `make test`, or `pip install tests/plugin`"
        )
    try:
        case_files.configure(config.getoption("--cases"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    # Tests and their modules stay. To look for garbage among them while they come takes a third of the collection, and
    # each gc.collect() of a test would look through them again.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests with their room. Deselect case tests without a case, which pytest would report as skipped."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            item.add_marker(item.path.relative_to(TESTS).parts[0])
    empty = [item for item in items if _is_empty_case_test(item)]
    if empty:
        config.hook.pytest_deselected(items=empty)
        gone = set(empty)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    # pytest hands the handler of `caplog` to each logger that does not propagate; PySpark's give it their JSON format.
    plugin = pyfuncitem.config.pluginmanager.get_plugin("logging-plugin")
    plugin.caplog_handler.setFormatter(plugin.formatter)
    return (yield)


def _is_empty_case_test(item: pytest.Item) -> bool:
    """Whether a case test was parametrised over nothing: its file is not in the directory of ``--cases``.

    With the bundled directory an empty set is a mistake in the test and is left to `empty_parameter_set_mark`.
    """
    if case_files.is_bundled() or "case" not in item.name:
        return False
    skips = item.iter_markers("skip")
    return any("empty parameter set" in str(mark.kwargs.get("reason", "")) for mark in skips)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = list(_unchecked())
    if lines:
        terminalreporter.section("conformance: what did not run here, or not as published")
        for line in lines:
            terminalreporter.write_line(line)


def _unchecked() -> Iterator[str]:
    for file, topic in case_files.postponed():
        yield f"{file.path.name}: {len(file.cases)} cases wait for {topic}"
    for file in case_files.files().values():
        for name, erratum in file.corrected:
            yield f"{file.path.name}, {name}: read with {erratum.corrected} instead: {erratum.why}"
    if not case_files.is_bundled():
        absent = [s for s in case_files.KINDS if s not in case_files.files() and s not in case_files.SYSTEMS_TO_COME]
        if absent:
            yield f"not in {case_files.directory()}: {', '.join(f'{stem}.jsonl' for stem in absent)}"
    try:
        import codec_helpers
    except ImportError as error:
        yield f"everything that decodes: {error}"
        return
    missing = codec_helpers.unsupported_isas()
    if missing:
        yield f"codec backends that this CPU or build does not have: {', '.join(missing)}"
