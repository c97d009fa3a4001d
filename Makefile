# Every target sets up what it needs on a machine that has Python 3.11 with venv, git and make; the second time it is quick.
#   make demo · make test · make help

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Two more than there are cores: some tests wait for a server, a clock or the disk.
JOBS ?= $(shell expr $$(nproc) + 2)
# What to test, and further options of pytest: make test ARGS='tests/unit -k quoting'
ARGS ?=
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 10 --durations-min 1

# pyright would ask the network for a newer version of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Thousands of processes are started; none of them should compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: run-ready ## the story, for real, in a temporary directory (under 30 s)
	@$(BIN)/python examples/demo.py $(ARGS)

.PHONY: demo-sql
demo-sql: sql-ready ## the story of a database: an agent wrecks it, people keep working, one command (under a minute)
	@$(BIN)/python -m examples.demo_sql $(ARGS)

.PHONY: demo-runs
demo-runs: run-ready ## payments that happen once: killed, refused, rolled back, at a bank of its own (under a minute)
	@$(BIN)/python -m examples.demo_runs $(ARGS)

.PHONY: test
test: dev-ready ## every rule; of large tables and single cases a share that changes with each commit (how long: docs/internals/tests.md)
	@$(PYTEST) $(ARGS)

# Without what dies at each boundary, and without the frame of the tests.
.PHONY: test-fast
test-fast: dev-ready ## units, and the laws without a server
	@$(PYTEST) -m 'not served and not slow and not long' -k 'not killed' --ignore tests/unit/test_surroundings.py \
	  tests/unit tests/conformance $(ARGS)

.PHONY: test-again
test-again: dev-ready ## only the tests that failed last time, one after the other
	@$(BIN)/python -m pytest --cache-show cache/lastfailed | sed -n "s/^  *'\\(tests.*\\)': True.*/failed: \\1/p"
	@$(BIN)/python -m pytest -n 0 -m '' --last-failed --last-failed-no-failures none $(ARGS)

# Twice: what asks for power cuts syncs for real, and the rest need not wait for that. 5 is "no test was selected".
.PHONY: test-slow
test-slow: dev-ready ## only the sweeps: large tables whole, kills at every point, power cuts, broken rules
	@status=0; for which in 'slow and not durable and not agents' durable; do \
	  $(PYTEST) -m "$$which" $(ARGS) || { code=$$?; [ $$code = 5 ] || status=$$code; }; \
	done; exit $$status

.PHONY: test-all
test-all: ## every test but those of make test-long
	@$(MAKE) --keep-going test test-slow

.PHONY: test-long
test-long: long-ready ## hours of random operations, races and real packages (these need the network)
	@$(PYTEST) -m long $(ARGS)

.PHONY: test-agents
test-agents: agents-ready ## the real coding agents, driven offline against a scripted model
	@$(PYTEST) -m agents $(ARGS)

.PHONY: docs-test
docs-test: dev-ready ## only the tests of README and docs (part of make test)
	@$(PYTEST) tests/docs $(ARGS)

.PHONY: docs
docs: docs-ready ## the documents as a site that can be searched, in docs-site
	@.venv-docs/bin/zensical build --strict
	@echo "python3 -m http.server --directory docs-site 8000"

.PHONY: docs-generate
docs-generate: dev-ready ## print again the parts of docs that come from the code
	@$(BIN)/python -m tests.docs.generate

.PHONY: man
man: docs-generate ## the manual pages, from the same source as the help, in docs/man/share/man/man1
	@echo "man -l docs/man/share/man/man1/takeback.1"

.PHONY: bench
bench: bench-ready ## the measured tables
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: check
check: ## everything that judges the code without running it
	@$(MAKE) --keep-going lint types imports licences

.PHONY: lint
lint: dev-ready ## ruff, and the house rules
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check --output-format concise . || status=1; \
	$(BIN)/python tools/check_house_rules.py || status=1; \
	exit $$status

.PHONY: types
types: dev-ready ## pyright, strict
	@$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

.PHONY: imports
imports: dev-ready ## who may import whom
	@$(BIN)/lint-imports --no-logo

.PHONY: licences
licences: dev-ready ## no GPL among what a user installs
	@$(BIN)/python tools/check_licences.py

.PHONY: format
format: dev-ready ## let ruff arrange the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: wheel-smoke
wheel-smoke: dev-ready ## build the wheel, install it alone in a fresh environment, write and undo with it
	@tools/check-wheel

.PHONY: clean
clean: ## remove what the other targets made
	@rm -rf .venv .venv-docs .venv-peers .venv.lock .agents dist build docs-site .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: run-ready sql-ready dev-ready bench-ready long-ready docs-ready agents-ready
run-ready:
	@tools/set-up run
sql-ready:
	@tools/set-up sql
dev-ready:
	@tools/set-up dev
bench-ready:
	@tools/set-up bench
long-ready:
	@tools/set-up long
docs-ready:
	@tools/set-up docs
agents-ready:
	@tools/set-up agents
