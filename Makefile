# Everything a newcomer needs: `make train` and `make test`. Each sets up .venv when it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Small models run fastest with one thread a process.
export OMP_NUM_THREADS := 1

.PHONY: install train test lint bench science clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train,dev,clients]'
	touch $@

train: install
	$(BIN)/ssp train --preset tiny $(ARGS)

test: install
	$(BIN)/python -m pytest $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks.step_speed --out benchmarks/results/step_speed.json

science: install
	$(BIN)/python -m benchmarks.self_play --out benchmarks/results/self_play

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
