"""Prints a program as Python has set it up: its names, its path, its arguments, its imports."""

import json
import pickle
import sys
import traceback

import beside

import __main__


class Mine:
    pass


def of_spec(spec):
    return spec and [spec.name, type(spec.loader).__name__, spec.origin, spec.parent, spec.has_location]


def last_frame():
    try:
        raise ValueError
    except ValueError as error:
        return list(traceback.extract_tb(error.__traceback__)[-1])


if __name__ == "__main__":
    json.dump(
        {
            "path": sys.path[0],
            "first": [entry for entry in sys.path if not entry.endswith("for_workers")][:2],
            "argv": sys.argv,
            "while_importing": beside.argv,
            "beside": beside.__file__,
            "file": __file__,
            "name": __name__,
            "package": __package__,
            "spec": of_spec(__spec__),
            "loader": [type(__loader__).__name__, getattr(__loader__, "name", None), getattr(__loader__, "path", None)],
            "cached": __cached__,
            "doc": __doc__,
            "builtins": __builtins__.__name__,
            "globals": sorted(globals()),
            "is_main": __main__ is sys.modules["__main__"] and vars(__main__) is globals(),
            "pickled": type(pickle.loads(pickle.dumps(Mine()))) is Mine,
            "frame": last_frame(),
            "flags": [sys.flags.safe_path, sys.flags.optimize],
        },
        sys.stdout,
    )
