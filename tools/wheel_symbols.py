"""The demands of a wheel's extension on the system, and whether that system meets them.

    ELF      libraries and versions of symbols (glibc), or symbols (musl, as zig has them)
    Mach-O   libraries, the oldest macOS, and symbols by the lists (.tbd) that it was linked against
    PE       the libraries that it imports from, by name

Symbols of Python are abi3audit's to check.
"""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from platforms import Platform

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 17)
GNU_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"} | {
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
# Of the C library that musllinux_1_2 means; zig has a newer one, with these: of 1.2.2 to 1.2.5.
NEWER_THAN_MUSL_1_2 = {
    *("_Fork", "gettid", "reallocarray", "tcgetwinsize", "tcsetwinsize"),
    *("qsort_r", "pthread_getname_np"),
    *("statx", "preadv2", "pwritev2"),
}
MACOS = "11.0"
MACOS_LIBRARIES = {
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libiconv.2.dylib",
    "/usr/lib/libcharset.1.dylib",  # libc's bindings name it, for locale_charset
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
}
WINDOWS_LIBRARIES = {
    *("kernel32.dll", "ntdll.dll", "ws2_32.dll", "bcrypt.dll", "bcryptprimitives.dll", "userenv.dll", "advapi32.dll"),
    *("msvcrt.dll", "python3.dll"),
}
WINDOWS_SETS = ("api-ms-win-core-", "api-ms-win-crt-")
"""Libraries that begin so are parts of every Windows 10: the system's core, and the Universal C Runtime."""
_OF_PYTHON = re.compile(r"_?Py[A-Z_]|_Py_")


class SymbolError(Exception):
    """The extension would not load there. `str()` says what it asks for."""


def _zig() -> Path:
    """Its libraries for other systems."""
    import ziglang

    return Path(ziglang.__file__).parent / "lib"


def _refuse(what: str, found: set[str]) -> None:
    if found:
        raise SymbolError(f"{what}: {', '.join(sorted(found))}")


def check_glibc(extension: bytes) -> str:
    """Libraries and versions of symbols of an extension for glibc.

    Raises:
        SymbolError: one that a system of that age does not have.
    """
    elf = ELFFile(io.BytesIO(extension))
    _refuse("libraries that not every Linux has", _needed(elf) - GNU_LIBRARIES)
    versions = set()
    for _, auxiliaries in elf.get_section_by_name(".gnu.version_r").iter_versions():
        versions |= {each.name for each in auxiliaries}
    numbers = {
        tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in versions if name.startswith("GLIBC_")
    }
    newest = max(numbers)
    text = ".".join(map(str, newest))
    if newest > GLIBC:
        raise SymbolError(f"it needs glibc {text}, and its name says {'.'.join(map(str, GLIBC))}")
    return f"glibc {text}"


def check_musl(extension: bytes) -> str:
    """Libraries and symbols of an extension for musl, which has no versions of symbols.

    Raises:
        SymbolError: one that musl 1.2 does not have.
    """
    elf = ELFFile(io.BytesIO(extension))
    _refuse(
        "libraries besides musl",
        {name for name in _needed(elf) if not re.fullmatch(r"libc\.(musl-\w+\.)?so(\.1)?", name)},
    )
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    asked = {
        each.name for each in symbols if each.entry.st_shndx == "SHN_UNDEF" and each.entry.st_info.bind == "STB_GLOBAL"
    }
    listed = set(re.findall(r"^(\w+):$", (_zig() / "libc" / "musl" / "libc.S").read_text(), re.MULTILINE))
    asked = {name for name in asked if name and not _OF_PYTHON.match(name)}
    _refuse("symbols that musl 1.2 does not have", asked - (listed - NEWER_THAN_MUSL_1_2))
    return f"{len(asked)} symbols of musl"


def _needed(elf: ELFFile) -> set[str]:
    tags = elf.get_section_by_name(".dynamic").iter_tags()
    return {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}


def _llvm(tool: str, *arguments: str | Path) -> str:
    return subprocess.run([f"llvm-{tool}", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def check_macos(extension: Path) -> str:
    """Libraries, the oldest system and symbols of an extension for macOS.

    Raises:
        SymbolError: one that is in no list of the libraries it was linked against.
    """
    headers = _llvm("objdump", "--macho", "--private-headers", extension)
    loads = set(re.findall(r"cmd LC_LOAD_(?:WEAK_)?DYLIB\n.*\n +name (\S+)", headers))
    _refuse("libraries that not every Mac has", loads - MACOS_LIBRARIES)
    oldest = re.search(r"cmd LC_(?:BUILD_VERSION|VERSION_MIN_MACOSX)\n(?:.*\n)*? +(?:minos|version) (\S+)", headers)
    if oldest is None or oldest[1] != MACOS:
        raise SymbolError(f"it is for macOS {oldest[1] if oldest else '?'} and newer, and its name says {MACOS}")
    # A line has the symbol last, be it weak or not.
    asked = {line.split()[-1] for line in _llvm("nm", "--undefined-only", extension).splitlines() if line.strip()}
    listed = set()
    stubs = [_zig() / "libc" / "darwin" / "libSystem.tbd", *(ROOT / "tools" / "macos_sdk").rglob("*.tbd")]
    for stub in stubs:
        listed |= set(re.findall(r"[\w$]+", stub.read_text()))
    asked = {name for name in asked if not _OF_PYTHON.match(name.removeprefix("_"))}
    _refuse("symbols that no list has", asked - listed)
    return f"macOS {MACOS}, {len(asked)} symbols of {len(loads)} libraries"


def check_windows(extension: bytes) -> str:
    """The libraries that an extension for Windows imports from.

    Raises:
        SymbolError: one that not every Windows 10 has.
    """
    import pefile

    image = pefile.PE(data=extension)
    imports = {entry.dll.decode().lower(): len(entry.imports) for entry in image.DIRECTORY_ENTRY_IMPORT}
    others = {name for name in imports if name not in WINDOWS_LIBRARIES and not name.startswith(WINDOWS_SETS)}
    _refuse("libraries that not every Windows has", others)
    return "imports " + ", ".join(sorted(name.removesuffix(".dll") for name in imports))


def check(extension: Path, platform: Platform) -> str:
    """What the extension asks of its system, in a few words.

    Raises:
        SymbolError: something that not every such system has.
    """
    if "apple" in platform.target:
        return check_macos(extension)
    content = extension.read_bytes()
    if "windows" in platform.target:
        return check_windows(content)
    return check_musl(content) if "musl" in platform.target else check_glibc(content)
