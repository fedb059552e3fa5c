"""The server of the Spark bench, in a process of its own, as a process has one JVM at the most.

    spark_server.py CORES HEAP

Says its address and the JVM's process id when it has done its first job, and ends when its input does.
"""

import json
import sys

from fastkcl.spark import LocalSpark


def main(cores: str, heap: str) -> None:
    """Serve."""
    with LocalSpark(f"local[{cores}]", connect=True, settings={"spark.driver.memory": heap}) as spark:
        spark.session.range(1000).write.format("noop").mode("overwrite").save()
        print(json.dumps({"url": spark.url, "pid": spark.pid}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
