"""Serves the imports of ``amazon_kclpy`` from `fastkcl.kclpy`.

An import hook for this one name: ``amazon_kclpy`` and ``amazon_kclpy.x`` become the very modules ``fastkcl.kclpy`` and
``fastkcl.kclpy.x``, so that a class is the same under both names. It does not matter whether amazon_kclpy is
installed; only ``amazon_kclpy.jars``, which holds no code, is the installed one's if there is one.

A worker process of multiprocessing with spawn or forkserver imports the program again, without our hook but with our
``sys.path``. So we put a folder second in ``sys.path``, before all installed packages. It holds only a module
``amazon_kclpy``, which installs the hook.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

ORIGINAL = "amazon_kclpy"
"""The name that is served."""
_OURS = "fastkcl.kclpy"
_DATA = f"{ORIGINAL}.jars"
_BINDS_FILES = f"{ORIGINAL}.kcl"
_served: set[str] = set()
_FOR_WORKERS = __file__.rpartition("/")[0] + "/for_workers"


def install() -> None:
    """Serve ``import amazon_kclpy`` from here, from now on. Harmless when done before.

    Raises:
        RuntimeError: amazon_kclpy has been imported already; its classes are in use.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    loaded = sys.modules.get(ORIGINAL)
    if loaded is not None and loaded is not sys.modules[_OURS]:
        raise RuntimeError(
            f"{ORIGINAL} is imported already (from {getattr(loaded, '__file__', None)}):"
            f" call {_OURS}.install() before anything imports it"
        )
    sys.meta_path.insert(0, _Finder())
    if _FOR_WORKERS not in sys.path:
        sys.path.insert(1, _FOR_WORKERS)  # after the program's own folder, which is first


def installed_original() -> ModuleSpec | None:
    """The package amazon_kclpy on ``sys.path``, without importing it; None if there is none."""
    spec = PathFinder.find_spec(ORIGINAL, [entry for entry in sys.path if entry != _FOR_WORKERS])
    # A folder of that name is none.
    return None if spec is None or spec.origin is None or spec.submodule_search_locations is None else spec


class _Finder:
    """Finds ``amazon_kclpy`` and its submodules, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != ORIGINAL and not name.startswith(ORIGINAL + "."):
            return None
        if name == _DATA:
            installed = installed_original()
            if installed is not None:
                return PathFinder.find_spec(name, installed.submodule_search_locations)
        return ModuleSpec(name, _Loader())  # type: ignore[arg-type]  # importlib.abc is slow to import


class _Loader:
    """Hands out a module of ours under its other name, unchanged."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        ours = _OURS + spec.name.removeprefix(ORIGINAL)
        if spec.name in _served & {ORIGINAL, _BINDS_FILES} and _BINDS_FILES not in sys.modules:
            # Taken out of sys.modules since, so that other standard files are bound.
            vars(import_module(_OURS)).pop("kcl", None)
            sys.modules.pop(f"{_OURS}.kcl", None)
        _served.add(spec.name)
        try:
            module = import_module(ours)
        except ModuleNotFoundError as error:
            if error.name != ours:
                raise
            raise ModuleNotFoundError(f"No module named {spec.name!r} (served by {_OURS})", name=spec.name) from None
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has written the other name's spec into the module.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
