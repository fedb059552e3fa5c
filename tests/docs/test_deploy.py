"""deploy/ and images/ agree with docs/deployment.md and with each other."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml
from fastkcl.daemon.jars import locked
from fastkcl.daemon.keys import Generation
from paths import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text()
BASE, EXAMPLE = ROOT / "deploy" / "base", ROOT / "deploy" / "example"
IMAGES = sorted(ROOT.glob("images/*/Dockerfile"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def resources(folder: Path) -> list[Path]:
    return [folder / name for name in read(folder / "kustomization.yaml")["resources"]]


def image_context() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_context", ROOT / "tools" / "image_context.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_base_is_the_page() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert [read(path) for path in resources(BASE)] == list(yaml.safe_load_all(block))


@pytest.mark.parametrize("path", resources(BASE), ids=lambda path: path.name)
def test_kubernetes_takes_an_object(path: Path) -> None:
    kubernetes_validate.validate(read(path), "1.30", strict=True)


def test_the_example_changes_what_is_there() -> None:
    """kustomize passes over an image and a number of replicas that it does not find, without a word."""
    assert resources(EXAMPLE) == [EXAMPLE / ".." / "base"]
    kustomization = read(EXAMPLE / "kustomization.yaml")
    deployment = read(BASE / "deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [image["name"] for image in kustomization["images"]] == [container["image"].partition(":")[0]]
    assert [each["name"] for each in kustomization["replicas"]] == [deployment["metadata"]["name"]]
    (patch,) = [read(EXAMPLE / each["path"]) for each in kustomization["patches"]]
    (patched,) = patch["spec"]["template"]["spec"]["containers"]
    assert (patch["kind"], patch["metadata"]["name"]) == (deployment["kind"], deployment["metadata"]["name"])
    assert patched["name"] == container["name"]
    assert {each["name"] for each in patched["env"]} < {each["name"] for each in container["env"]}


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.parent.name)
def test_an_image_has_its_base_by_digest_and_is_nobody_in_particular(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^FROM (.+)$", text, re.MULTILINE) == re.findall(r"^FROM (\S+@sha256:[0-9a-f]{64})$", text, re.M)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["1000"]
    assert f"images/{path.parent.name}/Dockerfile" in PAGE


def test_images_have_one_base() -> None:
    assert len({re.search(r"^FROM (.+)$", path.read_text(), re.MULTILINE)[1] for path in IMAGES}) == 1  # type: ignore[index]


def test_the_context_has_the_sums_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = image_context()
    jars, dist = tmp_path / "jars", tmp_path / "dist"
    jars.mkdir()
    dist.mkdir()
    for jar in locked(Generation.KCL_3):
        (jars / jar.file_name).write_bytes(b"another")
    with pytest.raises(SystemExit, match="there are 0; run make wheel"):
        module.make(tmp_path / "into", dist, jars, "x86_64")
    (dist / "fastkcl-1-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl").write_bytes(b"wheel")
    module.make(tmp_path / "into", dist, jars, "x86_64")
    made = tmp_path / "into"
    assert {path.name for path in made.iterdir()} == {"kcl", "dist", "daemon", "child"}
    sums = dict(reversed(line.split("  ")) for line in (made / "kcl" / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {path.name for path in (made / "kcl").glob("*.jar")}
    assert hashlib.sha256(b"another").hexdigest() not in sums.values()
