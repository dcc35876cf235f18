# Needs make and a python3 (3.11 or later) with venv; everything else is set up in .venv by the first target that needs it.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := HYPOTHESIS_PROFILE=ci $(BIN)/pytest
CACHE := $(or $(DISAGGC_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/disaggc)

.PHONY: help demo test lint golden schemas testbed soak bench dist clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

$(VENV)/.run: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no python3 of version 3.11 or later found; set PYTHON=" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	DISAGGC_PURE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	DISAGGC_PURE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.run ## compile the five-node example: its plan, its files, one unit
	@rm -rf out/demo && $(BIN)/disaggc init out/demo/spec --example deepseek-r1-mi300x --quiet >/dev/null
	@$(BIN)/disaggc plan out/demo/spec/disaggc.yaml --refresh=false
	@echo && $(BIN)/disaggc build out/demo/spec/disaggc.yaml --out out/demo/files
	@cd out/demo/files && unit=$$(find . -name '*prefill*.service' | sort | head -n 1) && echo && echo "$$unit" && cat "$$unit"

lint: $(VENV)/.dev ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint ## the whole suite with the checks of `lint`
	$(PYTEST) -n 2 -m "not testbed and not soak and not bench"

testbed: $(VENV)/.dev ## stages against real systems; each one skips loudly where it cannot run
	DISAGGC_CACHE="$(CACHE)" .ci/testbed $(BIN)

golden: $(VENV)/.dev ## write the golden trees anew; review them as a diff
	$(PYTEST) -n 0 tests/examples/test_golden.py tests/examples/test_readme.py --regen-golden

schemas: $(VENV)/.dev ## write schemas/ anew
	$(PYTEST) -n 0 -k schema --regen-golden tests

soak: $(VENV)/.dev ## long random tests; keeps its table in docs/benchmarks/soak.md
	$(BIN)/python -m tests.soak --write

bench: $(VENV)/.dev ## CPU seconds of the commands as whole processes
	$(BIN)/python -m tests.bench.cpu

dist: $(VENV)/.dev ## sdist, and wheel compiled for this python, in dist/; DISAGGC_PURE=1: wheel of sources
	DISAGGC_COMPILE=$(if $(DISAGGC_PURE),0,1) $(BIN)/python -m build

clean: ## remove what make made
	rm -rf out dist build .mypy_cache .ruff_cache .hypothesis $(VENV)/.run $(VENV)/.dev
