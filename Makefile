# Two commands for a newcomer: `make demo` and `make test`. Each sets up all it needs in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow lint format lock clean

demo: $(VENV)/.base
	$(BIN)/python pipelines/demo_corpus.py --out demo
	@echo
	@echo '$$ dataaudit build pipelines/demo.yaml --manifest demo/manifest'
	@$(BIN)/dataaudit build pipelines/demo.yaml --manifest demo/manifest; code=$$?; \
	  test $$code -eq 3 || { echo "expected exit code 3 (one shard is broken on purpose), found $$code"; exit 1; }

test: $(VENV)/.dev
	$(BIN)/pytest -m 'not slow'

test-slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lock files: exact versions with hashes, for every Python from 3.11 on. Needs `uv` (any recent one).
lock:
	uv pip compile pyproject.toml --extra build --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-header --no-annotate -o requirements.lock
	uv pip compile pyproject.toml --extra build --extra dev --universal --python-version 3.11 --upgrade \
	  -c requirements.lock --generate-hashes --no-header --no-annotate -o requirements-dev.lock

clean:
	rm -rf $(VENV) demo

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dataaudit needs Python 3.11 or newer; set one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: requirements.lock pyproject.toml | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.base
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
