"""The public surface of amazon_kclpy, name by name and signature by signature: nothing of it may be missing in ours.

Both are taken apart by children/kclpy_surface.py in the interpreters that have them. Everything that ours leaves out or
adds is listed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import fastkcl.kclpy
import pytest
from kclpy_helpers import environment
from paths import PROGRAMS

Surface = dict[str, Any]
PROGRAM = str(PROGRAMS / "kclpy_surface.py")
OURS = Path(fastkcl.kclpy.__file__).parent

CLASSES = {
    "": [],
    "checkpoint_error": ["CheckpointError"],
    "dispatch": ["MalformedAction"],
    "jars": [],
    "kcl": ["Checkpointer", "KCLProcess", "RecordProcessorBase", "_IOHandler"],
    "messages": [
        "CheckpointInput",
        "InitializeInput",
        "LeaseLostCheckpointer",
        "LeaseLostInput",
        "MessageDispatcher",
        "ProcessRecordsInput",
        "Record",
        "ShardEndedInput",
        "ShutdownInput",
        "ShutdownRequestedInput",
    ],
    "v2": [],
    "v2.processor": ["RecordProcessorBase", "V1toV2Processor"],
    "v3": [],
    "v3.processor": ["RecordProcessorBase", "V2toV3Processor"],
}
"""The classes of the original by the module that defines them."""

LEFT_OUT = {
    "dispatch": {"_format_serializer_names"},  # private, of one message's text
    # What the original's modules import from the standard library.
    "kcl": {"abc", "json", "traceback"},
    "messages": {"abc", "base64", "datetime"},
    "v2.processor": {"abc"},
    "v3.processor": {"abc"},
}
"""Names of the original that ours has not, by module."""

LEFT_OUT_MEMBERS = {"__metaclass__"}
"""Members of the original's classes that ours have not. Python 3 does not look at this one."""

ADDED_MODULES = {"alias", "helper", "launch", "per_record", "pipe", "variables"}
ADDED_EXPORTS = {"": {"install"}}
ADDED_BASES = {"messages.Record": ["messages._WithAttributes", "fastkcl._core.KclpyRecordBase"]}
ADDED_PARAMETERS = {"kcl.KCLProcess": [["on_error", "KEYWORD_ONLY", "None"], ["dead_letter", "KEYWORD_ONLY", "None"]]}
"""Of the constructor."""
ADDED_MEMBERS = {"messages.ProcessRecordsInput": {"batch": ["property"]}}
"""Public ones."""
ADDED_ATTRIBUTES = {"kcl._IOHandler": {"dialect", "failure"}, "messages.ProcessRecordsInput": {"batch"}}
"""Public attributes of instances."""


@cache
def surface_of(python: str, *arguments: str, path: str | None = None) -> Surface:
    variables = {} if path is None else {"PYTHONPATH": path}
    done = subprocess.run(
        [python, *arguments], env=environment(**variables), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: Surface = json.loads(done.stdout)
    return found


@pytest.fixture
def original(original_python: Path) -> Surface:
    return surface_of(str(original_python), PROGRAM, "amazon_kclpy")


@pytest.fixture(params=["by its name", "by the original's name"])
def ours(request: pytest.FixtureRequest) -> Surface:
    how = (PROGRAM, "fastkcl.kclpy")
    if request.param == "by the original's name":
        how = ("-m", "fastkcl", "run", PROGRAM, "amazon_kclpy")
    return surface_of(sys.executable, *how, path=str(OURS.parents[1]))


def test_the_lists_of_this_test_are_whole(original: Surface) -> None:
    defined = {
        module: sorted(name for name, (kind, *rest) in names.items() if kind == "class" and rest[1] is not None)
        for module, names in original["modules"].items()
    }
    assert defined == CLASSES
    for module, names in LEFT_OUT.items():
        assert names < original["modules"][module].keys()
    classes = {f"{module}.{name}" for module, names in CLASSES.items() for name in names}
    assert classes == original["instances"].keys()


def test_modules(original: Surface, ours: Surface) -> None:
    assert ours["modules"].keys() - original["modules"].keys() == ADDED_MODULES
    assert original["modules"].keys() <= ours["modules"].keys()


@pytest.mark.parametrize("module", CLASSES)
def test_names(module: str, original: Surface, ours: Surface) -> None:
    theirs, found = original["modules"][module], ours["modules"][module]
    assert theirs.keys() - found.keys() == LEFT_OUT.get(module, set())
    for name in theirs.keys() & found.keys():
        kind, *rest = theirs[name]
        # Of a class that the module defines only its name; its details have tests of their own.
        upto = 2 if kind == "class" else len(theirs[name])
        assert found[name][:upto] == [kind, *rest][:upto], name


@pytest.mark.parametrize("module", CLASSES)
def test_exports(module: str, original: Surface, ours: Surface) -> None:
    # The package itself exports whatever of its modules happens to be imported.
    theirs = set(original["exports"][module]) if module else set()
    expected = theirs - LEFT_OUT.get(module, set()) - {"sys"}
    assert set(ours["exports"][module]) == expected | ADDED_EXPORTS.get(module, set())


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in CLASSES.items() for name in names])
def test_a_class(module: str, name: str, original: Surface, ours: Surface) -> None:
    full_name = f"{module}.{name}"
    theirs, found = original["modules"][module][name][2], ours["modules"][module][name][2]
    added = ADDED_PARAMETERS.get(full_name, [])

    assert [base for base in found["bases"] if base not in ADDED_BASES.get(full_name, [])] == theirs["bases"]
    assert found["signature"] == (theirs["signature"] + added if added else theirs["signature"])

    expected = {key: value for key, value in theirs["members"].items() if key not in LEFT_OUT_MEMBERS}
    if added:
        kind, parameters = expected["__init__"]
        expected["__init__"] = [kind, parameters + added]
    assert {key: found["members"].get(key) for key in expected} == expected
    more = {key: value for key, value in found["members"].items() if key not in expected and not key.startswith("_")}
    assert more == ADDED_MEMBERS.get(full_name, {})

    theirs_of_instance, of_instance = original["instances"][full_name], ours["instances"][full_name]
    assert {key: of_instance.get(key) for key in theirs_of_instance} == theirs_of_instance
    assert of_instance.keys() - theirs_of_instance.keys() == ADDED_ATTRIBUTES.get(full_name, set())
