"""Lists the modules that are loaded when its first line runs, here and in worker processes that start afresh."""

import sys

early = [name for name in ("fastkcl.kclpy.kcl", "amazon_kclpy.kcl") if name in sys.modules]


def seen_by_worker():
    return early


if __name__ == "__main__":
    import multiprocessing

    print("here", early)
    for method in sys.argv[1:]:
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.apply(seen_by_worker))
    from amazon_kclpy import kcl

    print(kcl.__name__)
