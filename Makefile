# Two commands do everything on a machine with Python 3.11+: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo serve reproduce-quick test check checked all-tests coverage lint style types docs bench faults simulate fuzz mutants clean constraints hashed chromium postgres

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
APT := DEBIAN_FRONTEND=noninteractive apt-get
CAN_APT := [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
# Two more than there are cores: many tests wait, for a deadline or for another process.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n > 6 ? 8 : n + 2)))
PYTEST_ARGS ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder
COVERAGE ?=
# Tests write small files durably, thousands of times: in memory, where 8 GB of it are free, an fsync takes no time.
ROOMY := $(shell df --output=avail -B1G /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 >= 8 { print "/dev/shm" }')
ifneq ($(ROOMY),)
export PYTEST_DEBUG_TEMPROOT ?= $(ROOMY)
endif
# Where this is set, each of the hundreds of processes that the tests start compiles what it imports, torch too.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show this help
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 26

demo: .venv/.installed  ## Install into .venv and run the fraud demo, offline
	$(BIN)/bazaar demo

serve: .venv/.installed-service  ## Install the service and start a market to look at, with one-time sign-in links
	$(BIN)/bazaar serve --demo

reproduce-quick: .venv/.installed  ## Reproduce the paper in small: synthetic data, offline, two minutes
	$(BIN)/bazaar reproduce all --quick --device cpu --jobs 2 --out reproduction-quick

test: .venv/.installed-test chromium postgres  ## Install the test tools, lint, build the docs and run all tests
	@$(MAKE) --no-print-directory --jobs 2 all-tests checked

check: .venv/.installed-test  ## Style, and the tests that start no process, those of changed files first; three minutes
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m pytest -m "not process and not slow and not browser" --affected-first --maxfail 3 $(PYTEST_ARGS)

checked:  # beside the tests, which leave a part of two cores idle
	@$(MAKE) --no-print-directory style docs types

all-tests:
	@if [ -e .venv/.no-chromium ]; then \
		echo "!!! Chromium is not here and cannot be installed: THE BROWSER TESTS DO NOT RUN. !!!" >&2; \
		$(BIN)/python -m pytest -m "not browser" $(PYTEST_ARGS); \
	else \
		$(BIN)/python -m pytest $(PYTEST_ARGS) $(COVERAGE); \
		[ -z "$(COVERAGE)" ] || $(BIN)/python scripts/uncovered.py build/coverage.json; \
	fi

coverage:  ## The same, and name every function that no test runs; takes nearly twice as long
	$(MAKE) test COVERAGE="--cov --cov-report=json:build/coverage.json"

lint: style types  ## Check style, layers and types

style: .venv/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml

types: .venv/.installed-test
	$(BIN)/mypy

docs: .venv/.installed-test  ## Build the documentation into build/site, offline; a dead link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/.installed-test  ## Run the benchmarks; they print, and never fail for being slow
	@ran=0; for file in benchmarks/bench_*.py; do \
		[ -e "$$file" ] || continue; ran=1; echo "== $$file"; $(BIN)/python "$$file"; \
	done; [ $$ran = 1 ] || echo "benchmarks/ holds no bench_*.py yet"

faults: .venv/.installed-test  ## Let every I/O call of a small run fail and die in every way; half an hour on two cores
	$(BIN)/python scripts/faults.py

simulate: .venv/.installed-test  ## Play 10,000 markets over a simulated network that is hostile by a seed
	$(BIN)/python scripts/simulate.py

fuzz: .venv/.installed-test  ## Read 1,000,000 mutated messages, frames, files and ledger entries
	$(BIN)/python scripts/fuzz.py

mutants: .venv/.installed-test  ## Change the code of money and rights in thousands of small ways: do the tests notice?
	$(BIN)/python scripts/mutants.py

clean:  ## Remove the environment, caches and builds; runs/ stays
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find src tests benchmarks experiments -name __pycache__ -prune -exec rm -rf {} +

constraints:  ## Pin anew what an empty environment gets, by version and by hash (torch stays)
	rm -rf build/pin && $(PYTHON) -m venv build/pin
	echo 'torch==2.13.0' > build/torch.txt
	build/pin/bin/python -m pip install -c build/torch.txt -e '.[test,docs]'
	{ sed '/^#/!d' constraints.txt; \
		build/pin/bin/python -m pip freeze --all --exclude-editable --exclude pip \
		| sed -E 's/(==[^+]+)\+.*/\1/'; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	build/pin/bin/python scripts/hashes.py > build/hashes.txt
	mv build/hashes.txt hashes.txt

hashed: | .venv/bin/python  ## Install the packages of others only if their files have the hashes of hashes.txt (Linux, x86-64)
	$(PIP) install --quiet --require-hashes --no-deps -r hashes.txt

# Debian's python3 comes without ensurepip: there the package python3-venv brings it.
.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "make: Python 3.11 or newer is needed: install it, or give PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		if $(CAN_APT); then $(APT) update -qq && $(APT) install -yqq python3-venv && $(PYTHON) -m venv .venv; \
		else echo "make: $(PYTHON) cannot make a virtual environment: install python3-venv" >&2; exit 1; fi; }

.venv/.installed: pyproject.toml experiments/pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --quiet -c constraints.txt -e . -e experiments
	@touch $@

.venv/.installed-service: pyproject.toml experiments/pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --quiet -c constraints.txt -e '.[service]' -e experiments
	@touch $@ .venv/.installed

.venv/.installed-test: pyproject.toml experiments/pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --quiet --no-compile -c constraints.txt -e '.[test,docs]' -e experiments
	@touch $@ .venv/.installed .venv/.installed-service

# The browser tests want Chromium. In CI it must be there.
chromium: | .venv/bin/python
	@rm -f .venv/.no-chromium
	@if ! command -v chromium chromium-browser google-chrome >/dev/null; then \
		if $(CAN_APT) && { $(APT) update -qq; $(APT) install -yqq chromium >/dev/null; }; then :; \
		elif [ "$${CI:-}" = true ]; then echo "make: CI needs Chromium, and it cannot be installed" >&2; exit 1; \
		else touch .venv/.no-chromium; fi; \
	fi

# The ledger's tests start a PostgreSQL server of their own.
postgres:
	@if ! ls /usr/lib/postgresql/*/bin/initdb "$$(pg_config --bindir 2>/dev/null)/initdb" 2>/dev/null | grep -q .; then \
		if $(CAN_APT) && { $(APT) update -qq; $(APT) install -yqq postgresql >/dev/null; }; then :; \
		elif [ "$${CI:-}" = true ]; then echo "make: CI needs PostgreSQL, and it cannot be installed" >&2; exit 1; \
		else echo "make: PostgreSQL's server is not here: its tests cannot run" >&2; fi; \
	fi
