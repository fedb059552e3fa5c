"""A Spark Connect server at a port and with a token of one's choice, so that it can come back where it was.

Not a test. ``connect_server.py PORT TOKEN`` writes the JVM's process id and the URL when it answers, and ends the JVM
when its standard input ends.
"""

import os
import secrets
import sys

from fastkcl.spark import LocalSpark

if __name__ == "__main__":
    port, token = sys.argv[1:]
    secrets.token_urlsafe = lambda _bytes: token  # LocalSpark makes a new one each time
    settings = {"spark.connect.grpc.binding.port": port, "spark.driver.memory": "1g"}
    local = LocalSpark("local[2]", connect=True, settings=settings)
    print(local.pid, local.url, flush=True)
    sys.stdin.read()
    try:
        os.kill(local.pid, 0)
    except ProcessLookupError:
        os._exit(0)  # somebody has killed it: there is nothing to say good-bye to
    local.close()
