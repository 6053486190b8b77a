# Every command of this project. `make` alone lists them.
#
# PYTHON is the interpreter for the virtual environment: any from 3.11 on that has its own C headers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP_STAMP := $(VENV)/.setup-done
LOCKS := requirements/build.txt requirements/dev.txt
CONTROLPLANE_VERSION ?= v1.37.1
OLDEST_CONTROLPLANE_VERSION := v1.34.4

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: system-packages $(SETUP_STAMP) ## Bring Debian packages, the virtual environment and locked dependencies

.PHONY: system-packages
system-packages:
	@tests/setup/system-packages.sh $(PYTHON)

# The binding to the TPM library is compiled here, with its build requirements from a lock of their own.
$(SETUP_STAMP): pyproject.toml $(LOCKS) | system-packages
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
	--no-emit-find-links --custom-compile-command 'make lock' $(UPGRADE) pyproject.toml
.PHONY: lock
lock: setup ## Write requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	$(COMPILE) --all-extras --group build --group test --group fuzz --group lock --output-file requirements/dev.txt
	$(COMPILE) --only-group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(COMPILE) --extra node --constraint requirements/dev.txt --output-file requirements/node.txt
	$(COMPILE) --extra signer --constraint requirements/dev.txt --output-file requirements/signer.txt
