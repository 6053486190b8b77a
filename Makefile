# Every command of this project. `make` alone lists them.
#
# PYTHON is the interpreter for the virtual environment: any from 3.11 on that has its own C headers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP_STAMP := $(VENV)/.setup-done
LOCKS := requirements/build.txt requirements/dev.txt
# The generator of the documentation site has a virtual environment of its own: nothing else needs it.
DOCS_VENV := .venv-docs
# Kubernetes releases that `test-versions` runs on: the newest, and the oldest that is supported.
VERSIONS := v1.37.2 v1.35.8
KUBERNETES_VERSION ?= $(firstword $(VERSIONS))
export KUBERNETES_VERSION
# The Cluster API release that `test-cluster-api` runs on, unless CLUSTER_API_VERSION names another one that
# tests/controlplane/cluster-api pins. All other targets use the newest.
OLDEST_CLUSTER_API := v1.12.4
# Without stored bytecode every run rewrites the assertions of all tests, and every program compiles its source.
unexport PYTHONDONTWRITEBYTECODE
# What a release consists of. Each target writes its artifacts into dist/, with the same bytes for the same commit.
# `chart` comes after `image`, whose digest it names.
RELEASE_TARGETS := wheel plugin packages image chart
FAST_TESTS := tests/unit tests/attacks tests/fuzz
# The order of tests is random. It is the same in each run, so that a failure occurs again; SEED=default draws another.
SEED ?= 1
PYTEST := $(BIN)/python -m pytest --randomly-seed=$(SEED)
# Lines that the fast tests run; the report names the modules with gaps.
COVERAGE := --cov=authenticator --cov=common --cov=signer --cov-report=term:skip-covered
# Each of the two workers keeps to whole files: what a file's tests share is made once.
BOTH_CORES := -n 2 --dist loadfile
PROVIDE := $(BIN)/python -m tests.controlplane.provide --version $(KUBERNETES_VERSION)
# What builds the artifacts of a release.
WITH_BUILDERS := PYTHONPATH=$(CURDIR)/packaging
BUILDERS := $(WITH_BUILDERS) $(BIN)/python -m builders

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: system-packages $(SETUP_STAMP) ## Bring Debian packages, a virtual environment, locked dependencies

.PHONY: system-packages
system-packages:
	@tests/setup/system-packages.sh $(PYTHON)

# The binding to the TPM library is compiled here, with its build requirements from a lock of their own.
$(SETUP_STAMP): pyproject.toml $(LOCKS) | system-packages
	@echo "setup: virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: needs Python 3.11 or newer, not " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: locked dependencies (about a minute the first time; the TPM binding is compiled)"
	@$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/build.txt
	@$(BIN)/pip install --quiet --no-deps --require-hashes --no-build-isolation --requirement requirements/dev.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Written for all supported Python versions at once, and without the address of any package index.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command 'make lock' $(UPGRADE)
.PHONY: lock
lock: setup ## Write requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	@echo "lock: dependencies for Python 3.11 to 3.14"
	@$(COMPILE) pyproject.toml --all-extras --group build --group test --group fuzz --group lock --output-file requirements/dev.txt
	@$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	@$(COMPILE) --group packages --constraint requirements/build.txt --output-file requirements/packages.txt
	@$(COMPILE) pyproject.toml --extra node --constraint requirements/dev.txt --output-file requirements/node.txt
	@$(COMPILE) pyproject.toml --extra signer --extra gce --constraint requirements/dev.txt --output-file requirements/signer.txt
	@$(COMPILE) pyproject.toml --extra signer --extra operator --constraint requirements/dev.txt --output-file requirements/operator.txt
	@$(COMPILE) --group docs --constraint requirements/dev.txt --output-file requirements/docs.txt

.PHONY: controlplane
controlplane: setup ## Bring the programs that the tests run against (built once per machine)
	@$(PROVIDE) --need all
	@for program in cluster-api clusterctl vcsim; do $(PROVIDE) --need $$program || exit 1; done
	@$(PROVIDE) --crds

.PHONY: demo
ifeq ($(FROM),packages)
demo: ONLY := quick-start
demo: rehearse-release
else
demo: setup ## Show nodes joining and intruders refused; FROM=packages follows the quick start
	@$(PROVIDE) --need kube-apiserver,etcd,kubectl
	@$(PROVIDE) --crds
	@$(BIN)/python -m tests.demo
endif

.PHONY: recording
recording: setup ## Run the demo and write its picture, docs/images/demo.svg
	@$(PROVIDE) --need kube-apiserver,etcd,kubectl
	@$(PROVIDE) --crds
	@$(BIN)/python -m tests.demo.recording

.PHONY: dashboard-picture
dashboard-picture: setup ## Run a signer for 6 minutes and write the picture of its dashboard, docs/images/dashboard.png
	@$(PROVIDE) --need kube-apiserver,etcd,kubectl
	@$(PROVIDE) --crds
	@$(BIN)/python -m tests.demo.dashboard

.PHONY: test
ifdef T
test: setup $(if $(filter tests/integration% tests/e2e% tests/bench%,$(T)),controlplane)
	$(PYTEST) $(T) $(ARGS)
else
test: setup controlplane docs ## Run all tests, or T=path::name; a skipped test is a failed one
	$(PYTEST) $(BOTH_CORES) $(COVERAGE) $(FAST_TESTS) tests/model $(ARGS)
	$(PYTEST) $(BOTH_CORES) tests/integration $(ARGS)
	$(PYTEST) tests/systemd $(ARGS)
	$(PYTEST) tests/e2e $(ARGS)
endif

# Cheap ones first; `test-versions` runs all tests twice.
EVERYTHING := check lint-workflows test-site test-chart test-image test-node-images test-upgrade test-cluster-api \
	test-newcomer rehearse-release dist test-packages test-pythons test-versions
.PHONY: test-everything
test-everything: setup ## Run all test targets that `make test` does not, and print their results (hours)
	@tests/setup/each-target.sh $(EVERYTHING)

# Debian 12 has no package of it, so `make test` does not need it.
PROVERIF ?= proverif

.PHONY: prove
prove: setup ## Prove the exchange with ProVerif 2.05, and find the attack without each rule (PROVERIF=program)
	@$(BIN)/python -m tests.model.proverif $(PROVERIF)

.PHONY: packages
packages: setup ## Build the deb and the rpm for nodes into dist/
	@$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/packages.txt
	@packaging/node/package/tree.sh build/node
	@mkdir -p dist
	@packaging/node/package/pack.sh build/node dist
	@du --apparent-size --summarize --human-readable build/node/usr dist/node-attestation-authenticator*

build/python/bin/python3: packaging/node/package/build-python.sh
	@$(BUILDERS).node_tree cpython build/python

.PHONY: bundled
bundled: setup build/python/bin/python3 ## Build the packages for nodes without a fitting Python into dist/ (its CPython takes 10 minutes)
	@$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/packages.txt
	@$(BUILDERS).node_tree bundled build/bundled
	@mkdir -p dist
	@packaging/node/package/pack.sh build/bundled dist

.PHONY: arm64
arm64: setup ## Build the packages for arm64 nodes into dist/, with a cross compiler
	@$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/packages.txt
	@$(BUILDERS).node_tree arm64 build/arm64
	@mkdir -p dist
	@MACHINE=aarch64 packaging/node/package/pack.sh build/arm64 dist

.PHONY: test-packages
test-packages: packages bundled arm64 controlplane ## Install, run, upgrade and remove the node packages in clean Debian systems
	@tests/setup/system-packages.sh $(PYTHON) packages
	$(PYTEST) tests/packaging/node $(ARGS)

.PHONY: unit
unit: setup ## Run the fast tests only
	$(PYTEST) $(BOTH_CORES) $(FAST_TESTS) $(ARGS)

.PHONY: cluster
cluster: setup ## Start control planes and a signer, print their kubeconfigs, run until Ctrl-C
	@$(PROVIDE) --need kube-apiserver,etcd,kubectl
	@$(PROVIDE) --crds
	@$(BIN)/python -m tests.demo.cluster

.PHONY: test-versions
test-versions: ## Run `make test` on each supported Kubernetes release
	@set -e; for version in $(VERSIONS); do \
		echo "test-versions: Kubernetes $$version"; $(MAKE) test KUBERNETES_VERSION=$$version; done

.PHONY: test-cluster-api
test-cluster-api: export CLUSTER_API_VERSION := $(OLDEST_CLUSTER_API)
test-cluster-api: setup ## Test with the oldest supported Cluster API, its CRDs and its manager
	@$(PROVIDE) --need all
	@$(PROVIDE) --need cluster-api
	$(PYTEST) tests/integration/test_api_versions.py tests/integration/test_machine_conditions.py \
		tests/integration/test_bootstrap_data.py tests/integration/test_harness.py $(ARGS)

.PHONY: test-pythons
test-pythons: setup ## Run the fast tests on Python 3.13 and 3.14, in Debian 13 and Debian testing
	$(WITH_BUILDERS) $(BIN)/python -m tests.release.pythons trixie testing

.PHONY: format
format: setup ## Format the code and sort its imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

.PHONY: check
check: setup ## Format, lint, types, import rules and fast tests, without network: under a minute
	@$(MAKE) --no-print-directory --jobs --output-sync=target check-style check-types check-imports
	tests/setup/without-network.sh $(PYTEST) -n 2 --hypothesis-profile=quick $(FAST_TESTS) $(ARGS)

# Each uses one core only, so `check` runs them together.
.PHONY: check-style check-types check-imports
check-style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
check-types:
	$(BIN)/mypy
check-imports:
	$(BIN)/lint-imports --no-logo

$(DOCS_VENV)/.setup-done: requirements/docs.txt
	@echo "docs: virtual environment in $(DOCS_VENV)"
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/pip install --quiet --no-deps --require-hashes --requirement requirements/docs.txt
	@touch $@

.PHONY: docs
docs: $(DOCS_VENV)/.setup-done ## Build the documentation site and check its links and anchors
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --clean --strict
	@echo "docs: build/site/index.html"

.PHONY: test-site
test-site: setup docs ## Open every page of the documentation in Chromium, at the width of a desktop and of a phone
	@tests/setup/system-packages.sh $(PYTHON) site
	$(PYTEST) tests/site $(ARGS)

.PHONY: lint-workflows
lint-workflows: setup ## Check the workflows with actionlint (built once per machine)
	$$($(PROVIDE) --need actionlint)/actionlint -color

# A clone has no built files. The other checks need a forge, or a service on the internet.
SCORECARD_CHECKS := Binary-Artifacts,Dangerous-Workflow,Dependency-Update-Tool,License,Pinned-Dependencies,Security-Policy,Token-Permissions
.PHONY: scorecard
scorecard: setup ## Run the checks of OpenSSF Scorecard that need no network (built once per machine)
	@rm -rf build/scorecard && git clone --quiet . build/scorecard
	$$($(PROVIDE) --need scorecard)/scorecard --local build/scorecard --checks $(SCORECARD_CHECKS) $(ARGS)

.PHONY: fuzz
fuzz: setup ## Fuzz every parser, guided by coverage, for SECONDS each (default 60)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

.PHONY: mutants
mutants: setup ## Change one thing at a time in the checks, and list the changes that no fast test notices (an hour)
	$(BIN)/python -m tests.mutation $(ARGS)

.PHONY: bench
bench: setup controlplane ## Measure what is promised about speed and size
	$(PYTEST) --randomly-dont-reorganize --capture=no tests/bench $(ARGS)

.PHONY: simulate
simulate: setup ## Simulate 100,000 Machines on measured costs (minutes of CPU; ARGS='--list' lists the scenarios)
	$(BIN)/python -m tests.bench.simulation $(ARGS)

# The image that the pods pull; releases set it.
IMAGE ?=
CHART = HELM=$$($(PROVIDE) --need helm4)/helm4 $(BUILDERS).chart

.PHONY: chart
chart: setup ## Package the chart of the signer, with the manifests rendered from it, into dist/
	@$(CHART) release dist $(if $(IMAGE),--image $(IMAGE))

.PHONY: manifests
manifests: setup ## Write the CRDs from their declarations, and packaging/signer/manifests from the chart
	@$(BUILDERS).crds packaging/signer/crds
	@$(CHART) manifests packaging/signer/manifests

.PHONY: test-chart
test-chart: setup controlplane ## Test the chart with Helm 3, Helm 4, clusterctl and API servers
	$(PYTEST) tests/packaging/signer --ignore=tests/packaging/signer/test_image.py $(ARGS)

.PHONY: image
image: setup ## Build the container image of the signer, without a daemon, into dist/
	@tests/setup/system-packages.sh $(PYTHON) image
	@$(BUILDERS).image signer dist

.PHONY: insecure
insecure: image ## Build the image of the insecure signer into dist/, for development only: no release has it
	@$(BUILDERS).image insecure dist

.PHONY: test-image
test-image: insecure controlplane ## Build the image, and run the signer in it with the chart's arguments and rights
	$(PYTEST) tests/packaging/signer/test_image.py $(ARGS)

.PHONY: wheel
wheel: setup ## Build the source distribution and the wheel into dist/
	packaging/release/build-python.sh $(BIN)/python

# Where the files of this release will be.
RELEASE_URL ?= https://example.com/node-attestation
.PHONY: plugin
plugin: wheel ## Build the commands for operators as one file into dist/
	@$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/packages.txt
	@packaging/operator/build-plugin.sh $(BIN)/python $(RELEASE_URL)

.PHONY: dist
dist: setup ## Build all artifacts of a release twice, compare the bytes, describe the files in dist/
	packaging/release/build-twice.sh $(VENV) $(RELEASE_TARGETS)
	@$(MAKE) --no-print-directory description
	$(PYTEST) tests/release

.PHONY: description
description: setup ## Write the bills of materials and the checksums of the files in dist/
	SYFT=$$($(PROVIDE) --need syft)/syft $(BUILDERS).describe dist

.PHONY: rehearse-release
rehearse-release: setup controlplane ## Build 0.1.0 and 0.1.1, publish them locally, install, upgrade, go back (ONLY=image,chart)
	@tests/setup/system-packages.sh $(PYTHON) rehearsal
	$(WITH_BUILDERS) $(BIN)/python -m tests.release.rehearsal $(if $(ONLY),--only $(ONLY)) $(ARGS)

.PHONY: test-newcomer
test-newcomer: ONLY := quick-start
test-newcomer: rehearse-release ## Follow the quick start from the published files of a release, to a Ready node, and then day two
	$(PYTEST) tests/packaging/newcomer $(ARGS)

.PHONY: test-upgrade
test-upgrade: setup controlplane ## Upgrade from the previous release under load, and go back; each version beside the other
	$(PYTEST) tests/upgrade $(ARGS)

.PHONY: test-node-images
test-node-images: packages ## Give the files for node images to Ansible, cloud-init and Ignition, in a Debian system
	$(PYTEST) tests/imaging $(ARGS)

.PHONY: clean
clean: ## Remove everything that make created in this directory
	rm -rf $(VENV) $(DOCS_VENV) .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis *.egg-info build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
