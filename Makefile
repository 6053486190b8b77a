# Every command of this project. `make` alone lists them.
#
# PYTHON is the interpreter for the virtual environment: any from 3.11 on that has its own C headers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP_STAMP := $(VENV)/.setup-done
LOCKS := requirements/build.txt requirements/dev.txt
# Kubernetes releases that `test-versions` runs on: the newest, and the oldest that is supported.
VERSIONS := v1.37.1 v1.35.8
KUBERNETES_VERSION ?= $(firstword $(VERSIONS))
export KUBERNETES_VERSION
FAST_TESTS := tests/unit tests/attacks tests/fuzz
# Each of the two workers keeps to whole files: what a file's tests share is made once.
PYTEST := $(BIN)/python -m pytest
# Lines that the fast tests run; the report names the modules with gaps.
COVERAGE := --cov=authenticator --cov=common --cov=signer --cov-report=term:skip-covered
BOTH_CORES := -n 2 --dist loadfile
PROVIDE := $(BIN)/python -m tests.controlplane.provide --version $(KUBERNETES_VERSION)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: system-packages $(SETUP_STAMP) ## Bring Debian packages, a virtual environment, locked dependencies

.PHONY: system-packages
system-packages:
	@tests/setup/system-packages.sh $(PYTHON)

# The binding to the TPM library is compiled here, with its build requirements from a lock of their own.
$(SETUP_STAMP): pyproject.toml setup.py authenticator/launcher.py $(LOCKS) | system-packages
	@echo "setup: virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: needs Python 3.11 or newer, not " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: locked dependencies (about a minute the first time; the TPM binding is compiled)"
	@$(BIN)/pip install --quiet --require-hashes --requirement requirements/build.txt
	@$(BIN)/pip install --quiet --require-hashes --no-build-isolation --requirement requirements/dev.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Written for all supported Python versions at once, and without the address of any package index.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command 'make lock' $(UPGRADE)
.PHONY: lock
lock: setup ## Write requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	@echo "lock: dependencies for Python 3.11 to 3.13"
	@$(COMPILE) pyproject.toml --all-extras --group build --group test --group fuzz --group lock --output-file requirements/dev.txt
	@$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	@$(COMPILE) pyproject.toml --extra node --constraint requirements/dev.txt --output-file requirements/node.txt
	@$(COMPILE) pyproject.toml --extra signer --constraint requirements/dev.txt --output-file requirements/signer.txt
	@$(COMPILE) pyproject.toml --extra signer --extra operator --constraint requirements/dev.txt --output-file requirements/operator.txt

.PHONY: controlplane
controlplane: setup ## Bring the programs of the Kubernetes control plane (built once per machine)
	@$(PROVIDE) --need all
	@$(PROVIDE) --need cluster-api
	@$(PROVIDE) --crds

.PHONY: demo
demo: setup ## Show nodes joining and intruders refused, on software TPMs and a real control plane
	@$(PROVIDE) --need kube-apiserver,etcd,kubectl
	@$(PROVIDE) --crds
	@$(BIN)/python -m tests.demo

.PHONY: test
ifdef T
test: setup $(if $(filter tests/integration% tests/e2e% tests/bench%,$(T)),controlplane)
	$(PYTEST) $(T) $(ARGS)
else
test: setup controlplane ## Run all tests, or T=path::name; a skipped test is a failed one
	$(PYTEST) $(BOTH_CORES) $(COVERAGE) $(FAST_TESTS) tests/model $(ARGS)
	$(PYTEST) $(BOTH_CORES) tests/integration $(ARGS)
	$(PYTEST) tests/systemd $(ARGS)
	$(PYTEST) tests/e2e $(ARGS)
endif

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

.PHONY: format
format: setup ## Format the code and sort its imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

.PHONY: check
check: setup ## Format, lint, types, import rules and fast tests, without network: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	tests/setup/without-network.sh $(PYTEST) -n 2 $(FAST_TESTS) $(ARGS)

.PHONY: fuzz
fuzz: setup ## Fuzz every parser, guided by coverage, for SECONDS each (default 60)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

.PHONY: bench
bench: setup controlplane ## Measure what is promised about speed and size
	$(PYTEST) -p no:randomly --capture=no tests/bench $(ARGS)

.PHONY: clean
clean: ## Remove everything that make created in this directory
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
