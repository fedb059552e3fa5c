"""The platforms that wheels are built for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Platform:
    """One platform.

    Attributes:
        target: Rust's name of it.
        compatibility: the kind of wheel, as maturin has it.
        tag: one of the tags of the platform in the name of the wheel.
    """

    target: str
    compatibility: str
    tag: str


PLATFORMS = (
    Platform("x86_64-unknown-linux-gnu", "manylinux2014", "manylinux_2_17_x86_64"),
    Platform("aarch64-unknown-linux-gnu", "manylinux2014", "manylinux_2_17_aarch64"),
    Platform("x86_64-unknown-linux-musl", "musllinux_1_2", "musllinux_1_2_x86_64"),
    Platform("aarch64-unknown-linux-musl", "musllinux_1_2", "musllinux_1_2_aarch64"),
    Platform("x86_64-apple-darwin", "pypi", "macosx_11_0_x86_64"),
    Platform("aarch64-apple-darwin", "pypi", "macosx_11_0_arm64"),
    Platform("x86_64-pc-windows-gnu", "pypi", "win_amd64"),
)
ABI = "cp311-abi3"
"""Each wheel is for the stable ABI of the oldest Python."""


def platform_of(wheel: str) -> Platform | None:
    """The platform that a wheel's file name says; None where it is not one of ours."""
    tags = wheel.removesuffix(".whl").split(f"-{ABI}-")
    if len(tags) != 2:
        return None
    return next((each for each in PLATFORMS if each.tag in tags[1].split(".")), None)
