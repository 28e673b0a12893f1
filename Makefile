# README commands. PYTHON is any Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := $(CURDIR)/.build
TRAIN := $(BUILD)/train
PIP := -m pip --quiet --disable-pip-version-check

.PHONY: bench bench-panel demo lint pictures test test-engines test-trainers

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install -e '.[dev]'
	touch $@

# The train environment as a host gets it: built by the setup stage, in the workspace that `make test-engines` uses.
$(TRAIN)/tested: $(VENV)/installed Makefile tests/support/environments.py backend/eagle3_backend/pipeline/environments.py
	$(BIN)/python tests/support/environments.py $(BUILD)
	$(TRAIN)/bin/python $(PIP) install 'pytest>=8.4,<9' 'pytest-asyncio>=1.0,<2' 'hypothesis>=6.130,<7' \
		'pytest-xdist>=3.7,<4' 'triton==3.9.0'
	touch $@

demo: $(VENV)/installed
	$(BIN)/eagle3-tui --profile profiles/local.toml demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Stages are tested where they run; tests of the laptop's side wait for processes half of the time. A computation on one
# thread: two, beside other processes on two cores, mostly wait for each other.
test: export OMP_NUM_THREADS := 1
test: $(VENV)/installed $(TRAIN)/tested
	PYTHONPATH=backend:kernels $(TRAIN)/bin/python -m pytest tests/stages tests/kernels \
		tests/drafter/test_against_libraries.py -m "not engines" -n 3 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m "not engines and not torch and not trainers" --ignore tests/stages \
		-n 6 --dist loadfile --no-loadscope-reorder

test-engines: $(VENV)/installed
	$(BIN)/python -m pytest tests/engines_e2e -m engines

test-trainers: $(VENV)/installed
	$(BIN)/python -m pytest tests/engines_e2e -m trainers

# Draws the pictures of the documentation anew.
pictures: $(VENV)/installed
	$(BIN)/python docs/screenshots.py

# Prints what the panel's charts cost beside textual-plotext, and what the panel costs at rest and under load.
bench-panel: $(VENV)/installed
	$(BIN)/python benchmarks/charts.py
	$(BIN)/python benchmarks/panel_load.py

# Writes benchmarks/results.json; MODULES names some of them, all run without it.
bench: $(TRAIN)/tested
	$(TRAIN)/bin/python benchmarks/run.py $(MODULES)
