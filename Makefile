# `make train` and `make test` do everything from a fresh clone; a second call installs nothing.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/
INSTALLED := $(VENV)/.installed
JOBS ?= 2

.PHONY: setup train test lint format learn bench docs clean

setup: $(INSTALLED)

# torch comes first and pinned: whatever else needs torch is then content with the one that is there.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --constraint constraints.txt torch
	$(RUN)pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

train: setup
	$(RUN)rl-training train --config ppo/cartpole

test: setup
	OMP_NUM_THREADS=1 $(RUN)python -m pytest -n $(JOBS)

lint: setup
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: setup
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

clean:
	rm -rf $(VENV) .venv-bench build dist site
