# What a release needs, and what its workflows check. The Makefile includes this file; it has PYTHON, VENV and BIN.

.PHONY: lint-workflows lint-images images test-images test-oldest test-newest licences check-release github-release dist-clean check-wheels

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
check-release:
	$(PYTHON) tools/release.py check $(TAG)

# Needs gh and its token; dist/ has what is published.
github-release: check-release
	mkdir -p target
	$(PYTHON) tools/release.py notes $(TAG) >target/release-notes.md
	gh release create --verify-tag --title "fastkcl $(TAG)" --notes-file target/release-notes.md "$(TAG)" dist/*

dist-clean:
	rm -rf dist

# Each wheel in dist/, in a clean environment of this machine.
check-wheels:
	$(PYTHON) tools/check_wheel.py dist/*.whl
