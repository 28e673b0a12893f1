# README commands. PYTHON is any Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRAIN := .build/train
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: demo test test-engines lint bench

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# The same requirement set that the `setup` stage builds on a host.
$(TRAIN)/installed: backend/eagle3_backend/pipeline/environments.py $(VENV)/installed
	$(BIN)/python -m eagle3_backend.stages.environment_builder train-cpu $(TRAIN)
	$(TRAIN)/bin/python -m pip install --quiet --disable-pip-version-check 'pytest>=8.4,<9' 'pytest-asyncio>=1.0,<2' 'hypothesis>=6.130,<7'
	touch $@

demo: $(VENV)/installed
	$(BIN)/eagle3-tui --profile profiles/local.toml demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/installed $(TRAIN)/installed
	PYTHONPATH=backend:kernels $(TRAIN)/bin/python -m pytest tests/stages tests/kernels -m "not engines"
	$(BIN)/python -m pytest -m "not engines and not torch"

test-engines: $(VENV)/installed
	$(BIN)/python -m pytest tests/engines_e2e -m engines
