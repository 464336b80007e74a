# Two commands matter: `make quickstart` and `make test`. Both make the project's environment, .venv, first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test check peers clean

quickstart: .venv/ready
	$(BIN)/burnish doctor --quiet
	$(BIN)/burnish train quickstart --run runs/quickstart

test: .venv/tests
	$(BIN)/ruff check src tests benchmarks && $(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest

# Formats and sorts what `make test` checks.
check: .venv/tests
	$(BIN)/ruff check --fix src tests benchmarks && $(BIN)/ruff format src tests benchmarks && $(BIN)/mypy

.venv/ready: pyproject.toml setup/environment.sh
	sh setup/environment.sh "$(PYTHON)"
	touch $@

.venv/tests: .venv/ready
	sh setup/environment.sh "$(PYTHON)" test
	touch $@

# Environments of the peers that benchmarks compare with; never part of the product's.
peers:
	sh setup/peers.sh "$(PYTHON)"

clean:
	rm -rf .venv .venv-peers build dist
