#!/usr/bin/env bash
# Installs what tests and CI need beyond README's prerequisites (Python, Rust, a C compiler), from Debian's packages.
# Call it as root, or where sudo asks for nothing; without arguments it installs what .ci/run needs:
#
#   tools/debian.sh neon    qemu-user, a linker and Rust's standard library for 64-bit Arm   (make test-neon)
#   tools/debian.sh java    Maven and a JDK, which fetch the jars of KCL 1                    (make test-system)
#   tools/debian.sh node    Node.js, for the example in processv1                             (make test)
#   tools/debian.sh ps      ps, for the portable ways to find processes                       (make test)
#   tools/debian.sh systemd systemd-analyze, for the unit in docs/deployment.md               (make test)
#   tools/debian.sh browser Chromium and its driver, for the documentation's site             (make test-system)
#
# and, only where it is named, because a release alone needs them:
#
#   tools/debian.sh wheels  Rust's standard library for each platform, LLVM's and MinGW's tools (make wheels)
#   tools/debian.sh arm     a Python for 64-bit Arm in target/arm-root, and its emulator       (make test-wheels)
#   tools/debian.sh musl    a compiler for musl                                                (make test-wheels)
#   tools/debian.sh free-threaded    the libraries that a CPython is built with                (tools/build_python.sh)
#
# What is there already, from wherever, is left alone. Repeating it costs nothing.
set -euo pipefail

SUDO=""
if [ "$(id -u)" != 0 ]; then SUDO="sudo -n"; fi
updated=""

install() {
    if [ -z "$updated" ]; then
        $SUDO apt-get update -q
        updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -q -y --no-install-recommends "$@"
}

has() { command -v "$1" >/dev/null 2>&1; }

# Rust's standard library for 64-bit Arm: of rustup's toolchain, or of Debian's.
neon_std() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ] ||
        { [ -x /usr/bin/rustc ] && [ -d /usr/lib/rustlib/aarch64-unknown-linux-gnu ]; }
}

neon() {
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        $SUDO dpkg --add-architecture arm64
    fi
    # Arm's own C library: threads of the one for cross-compiling hang in this emulator.
    if ! has qemu-aarch64 || ! has aarch64-linux-gnu-gcc || ! [ -e /lib/ld-linux-aarch64.so.1 ]; then
        install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross libc6:arm64 libgcc-s1:arm64
    fi
    # The compiler and both standard libraries, of one version: rustc-web is the newest that Debian has.
    neon_std || install rustc-web libstd-rust-web-dev:arm64
}

java() { mvn --version >/dev/null 2>&1 || install maven default-jdk-headless; }

node() { has node || has nodejs || install nodejs; }

ps() { [ -x /bin/ps ] || install procps; }

systemd() { has systemd-analyze || install systemd; }

browser() { { has chromium && has chromedriver; } || install chromium chromium-driver; }

# Debian's sources of it, which tools/wheels.py builds. Where no package has them (Ubuntu) rustup brings it built.
wheels() {
    if ! [ -d /usr/lib/rustlib/src/rust/library/std ]; then
        [ -n "$updated" ] || $SUDO apt-get update -q
        updated=yes
        if apt-cache show rust-web-src >/dev/null 2>&1; then
            install rustc-web cargo-web rust-web-src
        else
            sed -n 's/^    Platform("\([a-z0-9_-]*\)".*/\1/p' "$(dirname "$0")/platforms.py" | xargs rustup target add
        fi
    fi
    has llvm-objcopy || install llvm
    has x86_64-w64-mingw32-dlltool || install binutils-mingw-w64-x86-64
}

# Its packages unpacked in a folder: beside this machine's Python there is no place for another one.
arm() {
    has qemu-aarch64 || install qemu-user
    root="$(dirname "$0")/../target/arm-root"
    [ -x "$root/usr/bin/python3.11" ] && return
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        $SUDO dpkg --add-architecture arm64
        updated=""
    fi
    [ -n "$updated" ] || $SUDO apt-get update -q
    updated=yes
    mkdir -p "$root/packages"
    (
        cd "$root/packages"
        apt-get download -q {python3.11-minimal,libpython3.11-minimal,libpython3.11-stdlib,libc6,libgcc-s1,libstdc++6}:arm64 \
            {zlib1g,libexpat1,libffi8,libssl3,libbz2-1.0,liblzma5,libuuid1,libsqlite3-0}:arm64
    )
    for package in "$root"/packages/*.deb; do dpkg --extract "$package" "$root"; done
    rm -rf "$root/packages"
}

# With musl's loader in /lib, the snappy of Spark's jars takes this system for one of musl, and Spark writes no Parquet:
# remove the packages musl, musl-dev and musl-tools before Spark is used here again.
musl() { has musl-gcc || install musl-tools; }

free_threaded() {
    printf '#include <%s>\n' openssl/ssl.h zlib.h ffi.h | cc -E - >/dev/null 2>&1 || install libssl-dev zlib1g-dev libffi-dev
}

for part in "${@:-neon java node ps systemd browser}"; do
    for name in $part; do
        case "$name" in
            neon | java | node | ps | systemd | browser | wheels | arm | musl) "$name" ;;
            free-threaded) free_threaded ;;
            *)
                echo "$0: unknown part '$name'; there are: neon java node ps systemd browser wheels arm musl free-threaded" >&2
                exit 2
                ;;
        esac
    done
done
