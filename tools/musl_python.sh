#!/usr/bin/env bash
# Builds a CPython that runs on musl, to try the wheels for it: Debian's source of Python 3.11, by musl-gcc, in a few minutes.
# It has the modules that need no other library, which is all that the codec's tests use.
#
#   tools/musl_python.sh FOLDER    FOLDER/bin/python3 afterwards; nothing is done if it is there
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
if [ -x "$folder/bin/python3" ]; then exit 0; fi

# Debian's list of sources, beside those of the machine, which stay as they are.
lists=$folder/apt
mkdir -p "$lists/parts" "$lists/state" "$lists/source"
sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$lists/parts/debian.sources"
options=(-q -o Dir::Etc::sourceparts="$lists/parts" -o Dir::Etc::sourcelist=/dev/null -o Dir::State::lists="$lists/state")
apt-get "${options[@]}" update
(cd "$lists/source" && apt-get "${options[@]}" source --download-only --tar-only python3.11)
mkdir -p "$folder/build"
tar -xf "$lists"/source/python3.11_*.orig.tar.* -C "$folder/build" --strip-components=1

cd "$folder/build"
# Quick to build rather than quick to run. The loader of musl is Debian's, of 1.2.3.
CC=musl-gcc CFLAGS=-O1 ./configure --quiet --prefix="$folder" --disable-test-modules --without-ensurepip --with-openssl=no \
    ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no
make --silent --jobs="${JOBS:-2}" install >install.log 2>&1 || { tail -n 50 install.log; exit 1; }
cd "$folder"
rm -rf build apt
"$folder/bin/python3" -c 'import sys, hashlib, select, zlib' 2>/dev/null || true
"$folder/bin/python3" -c 'import sys; print("Python", sys.version.split()[0], "on musl")'
