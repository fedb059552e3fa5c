#!/usr/bin/env bash
# Installs what tests and CI need beyond README's prerequisites (Python, Rust, a C compiler), from Debian's packages.
# Call it as root, or where sudo asks for nothing; without arguments it installs everything:
#
#   tools/debian.sh neon    qemu-user, a linker and Rust's standard library for 64-bit Arm   (make test-neon)
#   tools/debian.sh java    Maven and a JDK, which fetch the jars of KCL 1                    (make test-system)
#   tools/debian.sh node    Node.js, for the example in processv1                             (make test)
#   tools/debian.sh systemd systemd-analyze, for the unit in docs/deployment.md               (make test)
#   tools/debian.sh browser Chromium and its driver, for the documentation's site             (make test-system)
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

systemd() { has systemd-analyze || install systemd; }

browser() { { has chromium && has chromedriver; } || install chromium chromium-driver; }

for part in "${@:-neon java node systemd browser}"; do
    for name in $part; do
        case "$name" in
            neon | java | node | systemd | browser) "$name" ;;
            *)
                echo "$0: unknown part '$name'; there are: neon java node systemd browser" >&2
                exit 2
                ;;
        esac
    done
done
