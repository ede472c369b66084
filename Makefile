# Every target sets up .venv first: once, and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

.PHONY: demo check test lint torture fuzz bench docs

demo: $(READY)
	$(BIN)/regard demo

check: lint
	$(PYTEST) -m 'not slow'

test: lint
	$(PYTEST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torture: $(READY)
	$(BIN)/python -m tests.torture
	$(BIN)/python -m tests.power_cut

bench: $(READY)
	$(BIN)/python benchmarks/attention.py

# Arguments: make fuzz FUZZ="--cases 5000 --seed 7 --targets tmx,weights --seconds 600"
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(FUZZ)

docs: $(READY)
	$(BIN)/python docs/build.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "regard needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo,dev]'
	touch $(READY)
