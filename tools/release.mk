# What a release needs, and what its workflows check. The Makefile includes this file; it has PYTHON, VENV and BIN.

.PHONY: wheels wheel-system check-wheels check-sdist test-wheels test-wheel-cases test-wheel-native test-wheel-arm test-wheel-musl test-reproducible test-free-threaded
.PHONY: lint-crate check-crate check-semver advisories lint-workflows lint-images images test-images test-oldest test-newest licences check-release github-release dist-clean

# What builds wheels and looks into them; it needs no more of .venv than pip.
WHEEL_TOOLS := $(VENV)/.wheel-tools
$(WHEEL_TOOLS): tools/wheels.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tools/wheels.txt
	touch $@

# Once on a machine, as root: what the wheels for other systems are made with.
wheel-system:
	tools/debian.sh wheels

# Wheels for Linux (glibc from 2.17 on, musl), macOS and Windows, all from one Linux machine. Each is checked as far as it can be,
# and imported if it is for this machine. WHEEL_TARGETS names some of them, as Rust does.
WHEEL_TARGETS ?=
wheels: $(WHEEL_TOOLS) licences
	rm -rf dist/*.whl
	BIN="$(abspath $(BIN))" $(BIN)/python tools/wheels.py $(WHEEL_TARGETS)
	$(BIN)/python tools/check_wheel.py dist/*.whl

# Each wheel in dist/ that is for this machine, in a clean environment of PYTHON.
check-wheels:
	$(PYTHON) tools/check_wheel.py --import dist/*.whl

# The sources in dist/, built and imported in a clean environment of PYTHON: minutes.
check-sdist:
	$(PYTHON) tools/check_wheel.py --import dist/*.tar.gz

# The wheel in dist/ that is for this machine: the conformance cases, in a clean environment of PYTHON.
test-wheel-cases:
	$(PYTHON) tools/try_wheel.py cases

# The wheels in dist/ in the place of the checkout's package: the quick suite (or ROOM) on this machine's, the conformance cases on
# those for 64-bit Arm, under qemu, and for musl, in a CPython that is built for it.
test-wheels: test-wheel-native test-wheel-arm test-wheel-musl

test-wheel-native: $(VENV)/.installed
	BIN="$(abspath $(BIN))" $(BIN)/python tools/try_wheel.py native --numprocesses=$(WORKERS) --dist=worksteal $(RERUNS) \
		$(if $(ROOM),$(addprefix tests/,$(ROOM)),tests)

test-wheel-arm: $(VENV)/.installed
	tools/debian.sh arm
	$(BIN)/python tools/try_wheel.py arm

test-wheel-musl: $(VENV)/.installed
	tools/debian.sh musl
	tools/build_python.sh musl target/musl-python
	$(BIN)/python tools/try_wheel.py musl

# A second build of the commit that dist/ is of, in another folder and with nothing of the first: equal byte by byte.
HOST := $(shell uname -m)-unknown-linux-gnu
test-reproducible: $(WHEEL_TOOLS)
	test -z "$$(git status --porcelain)" || { echo "commit first: the second build is of HEAD"; exit 1; }
	rm -rf target/again
	git clone --quiet . target/again
	cd target/again && $(PYTHON) tools/licences.py && BIN="$(abspath $(BIN))" "$(abspath $(BIN))/python" tools/wheels.py $(HOST)
	for wheel in target/again/dist/*.whl; do cmp "$$wheel" "dist/$${wheel##*/}"; done

# A CPython without a GIL has no stable ABI before 3.15: its wheel is of its own, built here and tried by many threads.
# PYTHON names it, e.g. python3.14t; tools/build_python.sh builds one. The file that is left out reads by DuckDB and polars, of which there is
# no package; the test, what a child gives back to the system: this Python's own allocator keeps small objects' pages for longer.
test-free-threaded:
	$(PYTHON) -c 'import sys, sysconfig; sys.exit(None if sysconfig.get_config_var("Py_GIL_DISABLED") else "PYTHON is no free-threaded CPython; name one, e.g. make test-free-threaded PYTHON=python3.14t")'
	$(PYTHON) -m venv .venv-free-threaded
	.venv-free-threaded/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-timeout psutil hypothesis typing_extensions pyarrow \
		fastavro protobuf pysimdjson nanoarrow arro3-core mypy . ./tests/plugin
	PYTHON_GIL=0 .venv-free-threaded/bin/python -m pytest --ignore=tests/codec/test_arrow_zero_copy.py \
		--deselect=tests/kclpy/test_memory.py::test_idle_child_is_as_small_as_the_originals tests/codec tests/kcl tests/stdio/test_reader.py tests/kclpy/test_memory.py

# What would be published as a crate; MSRV is clippy's to check. The crate has the project's licence beside it.
lint-crate:
	cmp LICENSE rust/codec/LICENSE
	for feature in '' avro dkb kinesis payload processv1 protobuf; do \
		cargo clippy --locked --quiet --package fastkcl-codec --no-default-features --features "$$feature" -- -D warnings || exit; done
	cargo publish --dry-run --locked --allow-dirty --no-verify --quiet --package fastkcl-codec

# The packed crate, built as its users would. RUSTUP_TOOLCHAIN=1.89.0 takes the oldest Rust.
check-crate:
	cargo publish --dry-run --locked --allow-dirty --package fastkcl-codec --all-features

# Whether users of the codec have to change their code while its MINOR stays: since the newest tag before this commit, or BASELINE.
SEMVER_CHECKS := 0.51.0
BASELINE ?=
check-semver:
	cargo install --locked --quiet --root target/tools --version $(SEMVER_CHECKS) cargo-semver-checks
	since="$(BASELINE)"; since="$${since:-$$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || true)}"; \
	if [ -z "$$since" ]; then echo "there is no tag before this commit: nothing to compare the codec with"; exit; fi; \
	target/tools/bin/cargo-semver-checks semver-checks --package fastkcl-codec --default-features --features avro,protobuf --baseline-rev "$$since"

# Known weaknesses of what Cargo.lock has. It asks a server, so it is no part of lint.
CARGO_AUDIT := 0.22.2
advisories:
	cargo install --locked --quiet --root target/tools --version $(CARGO_AUDIT) cargo-audit
	target/tools/bin/cargo-audit audit

# Exact versions, here and in tools/linters.txt: a new rule of a linter is a change of ours, at a time of our choice.
ACTIONLINT := v1.7.12
KUSTOMIZE := v5.7.1
LINTERS := $(VENV)/.linters-$(ACTIONLINT)-$(KUSTOMIZE)

# Go's folders lie in .venv while the two are built, and are removed afterwards (700 MB).
$(LINTERS): $(VENV)/.installed tools/linters.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tools/linters.txt
	PATH="$(abspath $(BIN)):$$PATH" GOBIN="$(abspath $(BIN))" GOPATH="$(abspath $(VENV))/go" GOCACHE="$(abspath $(VENV))/go/build" \
		GOFLAGS=-modcacherw GOTOOLCHAIN=local sh -ec ' \
		$(BIN)/go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT); \
		$(BIN)/go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE)'
	rm -rf $(VENV)/go
	touch $@

# zizmor looks nothing up: a lint must not depend on somebody's server.
lint-workflows: $(LINTERS)
	$(BIN)/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet --no-progress --persona pedantic .github/workflows

# The images' files, and the objects of deploy/ as kustomize makes them.
lint-images: $(LINTERS)
	$(BIN)/hadolint images/*/Dockerfile
	mkdir -p target
	$(BIN)/kustomize build deploy/example >target/objects.yaml
	$(BIN)/kubernetes-validate --kubernetes-version 1.30 --strict target/objects.yaml

# The folder that the images are built from. Needs the wheel and, once, Maven.
images: wheel $(VENV)/.built
	$(BIN)/python tools/image_context.py target/images

# What their files run, in a scratch root: root on Linux, a few minutes.
test-images: images
	$(BIN)/python -m pytest -m system tests/system/test_images.py

# The oldest versions that docs/versions.md names, in an environment of their own: rooms that use them.
test-oldest:
	PIP_CONSTRAINT="$(abspath tools/oldest.txt)" $(MAKE) VENV=.venv-oldest ROOM="codec processing spark tables" test-python

# The newest of everything. It changes .venv.
test-newest: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable '.[dev]'
	$(MAKE) test-python

# Of each crate that is linked into a wheel: its licence, its text. A licence that nobody has read is an error.
licences:
	$(PYTHON) tools/licences.py

# One tag, one version, one section of the CHANGELOG. TAG=v0.2.0; without it, the version that the sources have.
TAG ?=
export TAG
check-release:
	$(PYTHON) tools/release.py check $${TAG:+"$$TAG"}

# Needs gh and its token; dist/ has what is published.
github-release: check-release
	mkdir -p target
	$(PYTHON) tools/release.py notes $${TAG:+"$$TAG"} >target/release-notes.md
	case "$$TAG" in *[0-9][abr]*) candidate=--prerelease;; esac; \
	gh release create --verify-tag $$candidate --title "fastkcl $$TAG" --notes-file target/release-notes.md "$$TAG" dist/*

dist-clean:
	rm -rf dist
