"""Writes down which jars make a daemon, with their checksums, for ``fastkcl daemon`` to fetch.

    python tools/lock_jars.py com.amazonaws:amazon-kinesis-client:1.7.1 > python/fastkcl/daemon/jars-1.7.1.lock
    python tools/lock_jars.py --exactly python/fastkcl/daemon/jars-3.1.3.lock > new.lock

Maven resolves the run-time dependencies of the given coordinates; with ``--exactly FILE``, a lock or a list of
coordinates, these and nothing else.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


def lock(coordinates: list[str], *, exactly: bool) -> list[str]:
    """A line for each jar, sorted: coordinates, a space, SHA-256."""
    exclude = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>".format(
            *each.split(":"), exclude if exactly else ""
        )
        for each in coordinates
    )
    with tempfile.TemporaryDirectory() as folder:
        pom, listing, jars = Path(folder, "pom.xml"), Path(folder, "list"), Path(folder, "jars")
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>fastkcl</groupId><artifactId>lock</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        maven = ["mvn", "-B", "-q", "-f", str(pom), "-DincludeScope=runtime"]
        subprocess.run([*maven, f"{_PLUGIN}:list", f"-DoutputFile={listing}"], check=True, stdout=sys.stderr)
        subprocess.run(
            [*maven, f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={jars}"], check=True, stdout=sys.stderr
        )
        found = re.findall(r"^ +([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)", listing.read_text(), re.M)
        lines = []
        for group, artifact, version in sorted(found):
            jar = jars / f"{artifact}-{version}.jar"
            lines.append(f"{group}:{artifact}:{version} {hashlib.sha256(jar.read_bytes()).hexdigest()}")
            jar.unlink()
        if any(jars.iterdir()):
            raise SystemExit(f"not in Maven's list: {sorted(path.name for path in jars.iterdir())}")
        return lines


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    exactly = sys.argv[1] == "--exactly"
    given = Path(sys.argv[2]).read_text().splitlines() if exactly else sys.argv[1:]
    coordinates = [line.split()[0] for line in given if line and not line.startswith("#")]
    sys.stdout.write("# A jar a line: Maven coordinates, SHA-256. Written by tools/lock_jars.py.\n")
    sys.stdout.writelines(f"{line}\n" for line in lock(coordinates, exactly=exactly))
