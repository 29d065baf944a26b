# Two commands do everything: `make run` and `make test`. Both set the project up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup run test quick lint types kernels unit verify simulate figures docs pictures lock clean

help: ## Show what there is.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: $(STAMP) ## Install everything into .venv (leaves .venv/bin/freshet).

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

run: setup ## Watch Freshet keep a simulated web fresh (embedded broker and database).
	$(BIN)/freshet run

lint: setup ## Check style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## Check types.
	$(BIN)/mypy

unit: setup ## Run only the pure tests.
	$(BIN)/pytest -q tests/unit

# Each file goes to one worker, the longest files first (tests/arranging.py). Tests with servers wait
# for most of their time: a third worker uses it, each has servers of its own.
PYTEST := $(BIN)/pytest -q --dist loadfile --no-loadscope-reorder

quick: lint types ## Run what takes about a minute: style, types and the pure tests, without servers.
	$(PYTEST) -n 2 -m "not kafka and not postgres and not slow" tests

kernels: setup ## Compile what the workers run, as a first start would; in a fresh clone, a minute.
	$(BIN)/python tests/kernels.py

test: lint types kernels ## Run all tests: style, types, unit, contract (both brokers), integration, faults.
	$(PYTEST) -n 3 tests

SEEDS ?= 1 2 3 4 5 6 7 8 9 10
verify: setup ## Harm a running system on Apache Kafka, ten times five minutes, and check all promises.
	for seed in $(SEEDS); do \
		$(BIN)/freshet verify --minutes 5 --broker apache --seed $$seed || exit 1; \
	done

SIMULATED ?= 200
simulate: setup ## Run 200 new seeds of the simulator; says which.
	FRESHET_SIMULATION_SEEDS=$(SIMULATED) $(BIN)/pytest -q tests/unit/verify/simulation/test_seeds.py

figures: setup ## Repeat the experiments of the papers into figures/ (about an hour of one core).
	$(BIN)/freshet figures --out figures

docs: setup ## Build the documentation into site/; a link that leads nowhere fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: setup ## Draw the documentation's pictures again (the screenshot needs Chromium).
	$(BIN)/python -m deploy.docs.pictures docs/pictures

COMPILE := $(BIN)/uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --quiet

lock: setup ## Resolve the dependencies again: all of them, and those that the image needs.
	$(COMPILE) --extra build --extra dev --extra docs --upgrade --output-file requirements-dev.lock
	$(COMPILE) --extra build --constraints requirements-dev.lock --output-file requirements.lock

clean: ## Remove the environment and local data.
	rm -rf $(VENV) .freshet
