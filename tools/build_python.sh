#!/usr/bin/env bash
# Builds a CPython that no package brings, to try wheels and the extension in, in a few minutes: from Debian's source of it, or
# from one at hand.
#
#   tools/build_python.sh musl FOLDER [SOURCE.tar.xz]           Python 3.11 on musl, with zlib of Debian's source and the modules that
#                                                               need no other library: tests use no more (tools/debian.sh musl)
#   tools/build_python.sh free-threaded FOLDER [SOURCE.tar.xz]  Python 3.14 without a GIL, with pip (tools/debian.sh free-threaded)
#
# FOLDER/bin/python3 is there afterwards; nothing is done if it is there before.
set -euo pipefail

kind=${1:-} given=${2:-} source=${3:-}
case "$kind" in
    musl) name=python3.11 suite="" ;;
    free-threaded) name=python3.14 suite=sid ;;
    *)
        echo "usage: $0 musl|free-threaded FOLDER [SOURCE.tar.xz]" >&2
        exit 2
        ;;
esac
folder=$(mkdir -p "${given:?a folder}" && cd "$given" && pwd)
if [ -x "$folder/bin/python3" ]; then exit 0; fi

# from_debian NAME: the file of a source. Debian's list of sources, of that suite, is beside those of the machine, which stay as they are.
lists=$folder/apt
options=(-q -o Dir::Etc::sourceparts="$lists/parts" -o Dir::Etc::sourcelist=/dev/null -o Dir::State::lists="$lists/state")
from_debian() {
    if ! [ -d "$lists" ]; then
        mkdir -p "$lists/parts" "$lists/state" "$lists/source"
        sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$lists/parts/debian.sources"
        if [ -n "$suite" ]; then
            # The first paragraph is the archive's; those of updates have no such suite.
            sed -i -e "s/^Suites:.*/Suites: $suite/" -e '/^$/,$d' "$lists/parts/debian.sources"
        fi
        apt-get "${options[@]}" update >&2
    fi
    (cd "$lists/source" && apt-get "${options[@]}" source --download-only --tar-only "$1" >&2)
    echo "$lists/source/$1"_*.orig.tar.*
}

if [ -z "$source" ]; then source=$(from_debian "$name"); fi
mkdir -p "$folder/build"
tar -xf "$source" -C "$folder/build" --strip-components=1

cd "$folder/build"
# Quick to build rather than quick to run. The loader of musl is Debian's, of 1.2.3.
case "$kind" in
    musl)
        # musl-gcc says that it is for glibc's folders, and the modules would be compiled with glibc's headers.
        cat >"$folder/build/musl-cc" <<'END'
#!/bin/sh
case "$*" in
    *-print-multiarch*) echo "$(uname -m)-linux-musl" ;;
    *) exec musl-gcc "$@" ;;
esac
END
        chmod +x "$folder/build/musl-cc"
        export CC="$folder/build/musl-cc" CPPFLAGS="-I$folder/build/zlib" LDFLAGS="-L$folder/build/zlib" PKG_CONFIG=false
        mkdir zlib
        tar -xf "$(from_debian zlib)" -C zlib --strip-components=1
        (cd zlib && CFLAGS="-O1 -fPIC" ./configure --static && make --silent libz.a) >zlib.log 2>&1 || { tail -n 50 zlib.log; exit 1; }
        CFLAGS=-O1 ./configure --quiet --prefix="$folder" --disable-test-modules \
            --without-ensurepip ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no
        ;;
    free-threaded)
        CFLAGS=-O1 ./configure --quiet --prefix="$folder" --disable-test-modules --disable-gil
        ;;
esac
make --silent --jobs="${JOBS:-2}" install >install.log 2>&1 || { tail -n 50 install.log; exit 1; }
cd "$folder"
rm -rf build apt
"$folder/bin/python3" -c "import sys; print('Python', sys.version.split()[0], '$kind')"
