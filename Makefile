# The one entry. `make run` and `make test` do all set-up on a fresh machine with Python 3.11 or newer.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check -q install -c constraints.txt
# One thread per process: tests and silos run side by side, and small models lose time to more threads.
export OMP_NUM_THREADS ?= 1

.PHONY: run test test-all lint format bench docs setup clean

## run: four hospitals, one model, record-level privacy; prints the table of the README
run: $(VENV)/ready
	$(BIN)/sordino run examples/heart.toml

## test: lint, types, import direction, and every fast test
test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow and not network"

## test-all: also the long studies and the downloads
test-all: lint
	$(BIN)/python -m pytest -n 2

## lint: ruff (format and rules), mypy strict, import direction
lint: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## format: let ruff rewrite what it can
format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## bench: the published figures; each prints a table, or JSON with --json
bench: $(VENV)/ready-dev
	$(BIN)/python benchmarks/heart_recipe.py
	$(BIN)/python benchmarks/heart.py
	$(BIN)/sordino data fetch digits10k
	$(BIN)/python benchmarks/baseline.py
	$(BIN)/python benchmarks/crash.py --kills 100
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/ledger_kills.py --kills 1000 --database sqlite
	$(BIN)/python benchmarks/ledger_kills.py --kills 1000 --database postgresql
	$(BIN)/python benchmarks/two_ledgers.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/cohort.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/sensor.py
	$(BIN)/python benchmarks/claim_test.py
	$(BIN)/python benchmarks/inversion.py
	$(BIN)/python benchmarks/membership.py
	for name in minilm smollm2-135m sentiment4 dialogue; do $(BIN)/sordino data fetch $$name; done
	$(BIN)/python benchmarks/silos.py
	$(BIN)/python benchmarks/reviews.py --out reviews.jsonl
	$(BIN)/python benchmarks/language_leakage.py

## docs: regenerate the reference pages from the registries and the command line
docs: $(VENV)/ready-dev
	$(BIN)/python docs/generate.py

setup: $(VENV)/ready-dev

clean:
	rm -rf $(VENV) runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by its exact version: left to the resolver, a plain `torch` can bring several GB of CUDA.
$(VENV)/ready: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) -e ".[all]"
	touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(PIP) -e ".[dev]"
	touch $@
