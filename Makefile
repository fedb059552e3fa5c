# What README, CONTRIBUTING and .ci/run call. A fresh machine needs Python >= 3.11, Rust stable and a C compiler;
# everything else, a JDK for Spark included, comes from the package indexes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled once, not by each of the many processes of the tests.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name Cargo.toml)

.PHONY: public-names docs-serve demo test test-rust test-python test-system test-long test-chaos test-paths test-neon test-asan test-models test-portable fuzz fuzz-quick fuzz-build bench bench-codec bench-quick docs lint format wheel wheel-built sdist clean

# The dependencies, and a first build of the extension.
$(VENV)/.installed: pyproject.toml tests/plugin/pyproject.toml tests/plugin/fastkcl_cases.py
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "fastkcl needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]' ./tests/plugin
	touch $@

# The extension again, where Rust sources are newer.
$(VENV)/.built: $(VENV)/.installed $(RUST_SOURCES)
	env -u CONDA_PREFIX VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --skip-install --quiet
	touch $@

demo: $(VENV)/.built
	$(BIN)/fastkcl demo

# Everything that needs no daemon of Java and no long trial. ROOM=kinesis runs one room (a folder of tests/; or several);
# ORDER=random shuffles them, and SEED=n repeats an order. Tests wait more than they compute: more workers than cores.
# Spark gives a Python worker ten seconds to start, which nobody can change, and ends the query of one that a busy machine
# keeps longer. Such a test begins again, and the report says so.
ROOM ?=
ORDER ?=
SEED ?= $(shell date +%s)
WORKERS ?= 8
RERUNS := -p rerunfailures --reruns=2 --only-rerun='Python worker failed to connect back'
PYTEST = $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal --durations=20 $(RERUNS) \
	$(if $(filter random,$(ORDER)),-p randomly --randomly-seed=$(SEED))

test: $(if $(ROOM),,test-rust) test-python

test-rust:
	cargo test --locked --workspace --quiet

# The codec for 64-bit Arm under emulation; tools/debian.sh neon installs what that needs. Rust's standard library for it
# is rustup's (`rustup target add aarch64-unknown-linux-gnu`), or Debian's, with Debian's compiler.
NEON := aarch64-unknown-linux-gnu
test-neon:
	if ! [ -d "$$(rustc --print sysroot)/lib/rustlib/$(NEON)" ]; then export RUSTC=/usr/bin/rustc; fi; \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /" \
	FASTKCL_REQUIRE_ISA=neon,portable FASTKCL_PATH_CASES=6000 FASTKCL_PATH_LINES=2 \
	cargo test --locked --package fastkcl-codec --target $(NEON) --target-dir target/neon --profile emulated --quiet \
		--lib --test cases --test guard_pages --test kinesis --test paths

# Both paths of the codec on ten million cases, and on every cut and limit of ten thousand lines; hostile answers of 2 GiB.
test-paths:
	FASTKCL_PATH_CASES=10000000 FASTKCL_PATH_LINES=10000 \
	cargo test --locked --package fastkcl-codec --quiet --test paths --test kinesis -- --include-ignored

# The codec's tests under AddressSanitizer: reads and writes beyond what was given, and leaks.
test-asan:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo test --locked --package fastkcl-codec --quiet \
		--target $(shell rustc -vV | sed -n 's/^host: //p') --target-dir target/asan --lib --test cases --test guard_pages --test kinesis --test paths

# The codec without what only Linux has, as on macOS and Windows: its memory is never mapped, moved or trimmed.
test-portable:
	RUSTFLAGS="--cfg portable" cargo test --locked --package fastkcl-codec --quiet --target-dir target/portable

# The pool's slots in each order of steps that three threads can take, by loom. Half a minute, most of it to build loom.
test-models:
	RUSTFLAGS="--cfg loom" cargo test --locked --package fastkcl-codec --quiet --target-dir target/loom --lib -- pool::slots::models

# Fuzz targets of rust/fuzz, under AddressSanitizer, from the case files on: an hour each, or a minute. What one finds is
# in target/fuzz/artifacts, and becomes a case.
FUZZ_TARGETS := line base64 framing frames get_records kpl markers paths finish aggregates batches avro protobuf payload_framing
FUZZ_SECONDS ?= 3600
FUZZ_JOBS ?= $(shell nproc 2>/dev/null || echo 2)
fuzz-quick: FUZZ_SECONDS = 60
fuzz fuzz-quick: fuzz-build
	$(PYTHON) tools/fuzz_seeds.py target/fuzz/seeds
	$(MAKE) --jobs=$(FUZZ_JOBS) --output-sync=target FUZZ_SECONDS=$(FUZZ_SECONDS) $(FUZZ_TARGETS:%=fuzz-target-%)

fuzz-build:
	command -v cargo-fuzz >/dev/null || cargo install --quiet --locked --version 0.13.2 cargo-fuzz
	RUSTC_BOOTSTRAP=1 cargo fuzz build --fuzz-dir rust/fuzz --target-dir target/fuzz

fuzz-target-%:
	mkdir -p target/fuzz/corpus/$* target/fuzz/artifacts/$*
	RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz --target-dir target/fuzz $* \
		target/fuzz/corpus/$* target/fuzz/seeds/$* -- -max_total_time=$(FUZZ_SECONDS) \
		-dict=rust/fuzz/tokens.dict -artifact_prefix=target/fuzz/artifacts/$*/ -print_final_stats=1

# The first step compiles the tests, once for all workers; it is silent unless a module cannot be read.
test-python: $(VENV)/.built
	$(if $(filter system%,$(ROOM)),$(error make test-system runs tests/system))
	said=$$($(BIN)/python -m pytest --collect-only -qq $(addprefix tests/,$(ROOM))) || { echo "$$said"; exit 1; }
	$(PYTEST) $(addprefix tests/,$(ROOM))

# What has to die, hang or last: real daemons of KCL 3, 1.15 and 1.7 between local AWS and children of all kinds, chaos,
# streaming queries. Needs Maven for the jars of KCL 1, once; a Java of the machine's own is needed by Maven alone.
test-system: WORKERS = 5
test-system: $(VENV)/.built
	$(BIN)/python -c 'from fastkcl.daemon.jars import *; [find_jars(one, environ={}) for one in VERSIONS if one.is_1]'
	$(PYTEST) -m 'system and not long' tests/system

# The full counts of the same: each fault with each daemon and each sink, and seeds of chaos by the dozen; power cuts of a
# model by the thousand, and of a real ext4 where root can mount one. Hours.
test-long: WORKERS = 3
test-long: LONG := --timeout=7200
test-long: $(VENV)/.built
	$(BIN)/python -c 'from fastkcl.daemon.jars import *; [find_jars(one, environ={}) for one in VERSIONS if one.is_1]'
	$(MAKE) test-paths test-models
	FASTKCL_CHAOS_RUNS=50 FASTKCL_GROUP_RUNS=20 CHAOS_SOURCE_KILLS=8 CHAOS_SOURCE_RUNS=8 SOURCE_CRASHES=2000 FASTKCL_GROWTH_HUNDREDS=10 FASTKCL_DOWN_SECONDS=600 \
	  $(PYTEST) -m 'system' tests/system
	FASTKCL_LEASE_SEEDS=3000 $(PYTEST) $(LONG) tests/leases
	FASTKCL_HISTORIES=300 $(PYTEST) $(LONG) tests/kinesis/test_histories.py
	FASTKCL_SCHEMA_RECORDS=100000 $(PYTEST) $(LONG) tests/codec/test_schema_payloads_avro.py tests/codec/test_schema_payloads_protobuf.py
	FASTKCL_POWER_CUTS=2500 $(PYTEST) -m system tests/system/test_power_cuts.py
	FASTKCL_CONTENTION_WRITERS=32 $(PYTEST) -m system tests/system/test_contention.py
	FASTKCL_ICEBERG_SCHEDULES=100000 $(PYTEST) $(LONG) tests/tables/test_iceberg_model.py tests/tables/test_iceberg_group_model.py
	$(MAKE) test-chaos

# Tables on an S3 server. A proxy loses requests and answers; writers are killed, or stopped and woken beside their
# successors. Ten minutes for each format and catalog, alone and with shared commits; CHAOS="glue or shared" chooses. The
# server is built once, which takes minutes.
CHAOS_SECONDS ?= 600
GATEWAY := target/versitygw-v1.8.0/versitygw
test-chaos: $(VENV)/.built $(GATEWAY)
	TABLE_CHAOS_SECONDS=$(CHAOS_SECONDS) VERSITYGW="$(abspath $(GATEWAY))" $(BIN)/python -m pytest -m system -s tests/system/test_table_chaos.py $(if $(CHAOS),-k "$(CHAOS)")

$(GATEWAY):
	$(PYTHON) -m venv target/go
	target/go/bin/python -m pip install --quiet --disable-pip-version-check --requirement tools/gateway.txt
	GOBIN="$(abspath $(dir $@))" GOPATH="$(abspath target/go/path)" GOCACHE="$(abspath target/go/cache)" GOFLAGS=-modcacherw \
		target/go/bin/go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	rm -rf target/go

# All suites, about an hour; some of them: make bench BENCH="decode pipe". The figures into docs/ too:
# make bench BENCH=--write.
bench: $(VENV)/.built
	$(BIN)/python bench/run.py $(BENCH)

# The codec alone, beside other ways in Rust and C++.
bench-codec: BENCH = codec
bench-codec: bench

# Equal results only, no times, in a minute. The Spark suites are left out: they compare their tables whenever they run.
bench-quick: $(VENV)/.built
	$(BIN)/python -m pytest bench --benchmark-disable -q --ignore=bench/test_bench_spark.py --ignore=bench/test_bench_source.py --numprocesses=2 --dist=worksteal

# The documentation's site, in target/site; `make docs-serve` shows it at http://127.0.0.1:8000.
docs: $(VENV)/.built
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --no-deps --package fastkcl-codec --features avro,protobuf
	$(BIN)/python tools/site_pages.py target/site-pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "target/site/index.html"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory target/site 8000

# Public names, and addresses of pages, that are gone since a commit or a tag: none without a reason (tools/public_moves.toml).
public-names: $(VENV)/.installed
	$(BIN)/python tools/public_names.py --pages $(or $(BASE),$(error make public-names BASE=v0.1.0))

lint: $(VENV)/.built lint-workflows lint-images lint-crate
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.built
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# This machine's wheel of a release, for any Linux from glibc 2.17 on; zig brings the old glibc to link against. `make wheels` builds all seven.
OWN_WHEEL := dist/*manylinux*$(shell uname -m).whl
wheel: $(VENV)/.wheel-tools licences
	rm -rf $(OWN_WHEEL)
	BIN="$(abspath $(BIN))" $(BIN)/python tools/wheels.py $(shell uname -m)-unknown-linux-gnu
	$(PYTHON) tools/check_wheel.py --import $(OWN_WHEEL)

# The wheel, and its extension in the place of one that is built here: CI tests the bytes that users get.
wheel-built: $(VENV)/.installed wheel
	$(BIN)/python -m zipfile -e $(OWN_WHEEL) target/wheel
	cp target/wheel/fastkcl/_core.abi3.so python/fastkcl/
	touch $(VENV)/.built

sdist: $(VENV)/.installed licences
	rm -rf dist/*.tar.gz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(shell grep '^maturin==' tools/wheels.txt)
	$(BIN)/maturin sdist --out dist

clean:
	rm -rf $(VENV) target dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks python/fastkcl/*.so

include tools/release.mk
