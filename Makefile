# Every target does the set-up that it needs by itself; a second run finds it done and starts at once.
# The machine needs Python 3.11+ with its headers, make, a C compiler, and for all that runs Kafka also Java 17+ and Maven.

PYTHON ?= python3
export PYTHON

BIN := .venv/bin
MEMBERS := $(wildcard shared/pyproject.toml services/*/pyproject.toml spark/pyproject.toml devkit/pyproject.toml)
# what is compiled: the loops with C types beside them, by Cython, and a plugin of the Kafka client
COMPILED := $(wildcard services/*/setup.py) $(shell find services -path '*/_native/*' \( -name '*.c' -o -name '*.pxd' \) | sed 'p;s/pxd$$/py/')

# Stamps: a step is done again only when what it was made from has changed.
VENV := .venv/.lowwater-stamp
JARS := .jars/.lowwater-stamp
# Java starts in half the time with these; they hold paths of this clone, so they are made here, in half a minute.
ARCHIVES := .venv/.lowwater-archives

.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-long test-kubernetes images lint bench generate chart up setup jars clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(ARCHIVES) ## run the demo: a two-thread cluster and four databases in one order and one lake, with kills (KEEP=1 leaves it running)
	@$(BIN)/lowwater demo $(if $(KEEP),--keep)

test: $(ARCHIVES) ## all tests except the long ones (ARGS="tests/integration -x" is passed to pytest)
	@$(BIN)/python -m pytest -m 'not long' -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-unit: $(VENV) ## the tests that need no Kafka
	@$(BIN)/python -m pytest -m 'not long' $(ARGS) tests/unit tests/simulation

test-long: $(ARCHIVES) ## the long tests: millions of rows, hundreds of kills, 20,000 statements per database
	@$(BIN)/python -m pytest -m long -n 2 --dist load $(ARGS)

test-kubernetes: $(VENV) ## install the chart on the Kubernetes of KUBECONFIG, kill pods, upgrade, roll back, uninstall
	@$(BIN)/python -m pytest $(ARGS) tests/kubernetes

images: $(VENV) ## build the images with podman or docker, and check them (ARGS="--local-base merger")
	@deploy/images/build.sh --check $(ARGS)

lint: $(VENV) ## ruff, mypy --strict, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy .
	@$(BIN)/lint-imports

bench: $(ARCHIVES) ## measure speed and memory beside a raw ceiling
	@$(BIN)/python -m bench $(ARGS)

generate: $(VENV) ## generate dashboards, docs/metrics.md and the chart's README
	@$(BIN)/python -m deploy

chart: $(VENV) ## package the chart with its dashboards and alerts: dist/lowwater-0.1.0.tgz
	@$(BIN)/python -m deploy.chart

up: $(ARCHIVES) ## run Kafka and the services on this machine
	@$(BIN)/lowwater up

setup: $(ARCHIVES) ## create .venv and download the jars
	@echo "ready: .venv and .jars are set up"

jars: $(JARS) ## download the jars
	@echo "ready: .jars"

clean: ## stop the local Kafka; remove .venv, .jars, caches and the local data (.lowwater)
	@if [ -e .lowwater/kafka/broker.pid ] && [ -x $(BIN)/lowwater ]; then $(BIN)/lowwater kafka stop; fi
	rm -rf services/*/build dist .venv .jars .lowwater .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find services -name '*.so' -delete

# All tools are checked before the first step: the jars are downloaded first, and need Python, too.
$(JARS): pom.xml deploy/local/debian.sh
	@deploy/local/need.sh python compiler java maven
	@deploy/local/jars.sh kafka spark s3 embedded-postgres embedded-mysql
	@deploy/local/debian.sh bookworm mariadb-server-core libaio1
	@deploy/local/debian.sh trixie mariadb-server-core
	@deploy/local/debian.sh sid mysql-server-core
	@touch $@

$(ARCHIVES): $(JARS) $(VENV)
	@echo "setup: keeping the classes that Kafka and Spark load"
	@$(BIN)/python -m lowwater_fleet.kafka.class_archive >.venv/class-archive.log 2>&1 || { cat .venv/class-archive.log; exit 1; }
	@$(BIN)/python -m lowwater_spark.class_archive >.venv/class-archive.log 2>&1 || { cat .venv/class-archive.log; exit 1; }
	@touch $@

$(VENV): uv.lock pyproject.toml $(MEMBERS) $(COMPILED)
	@deploy/local/need.sh python compiler
	@deploy/local/venv.sh
	@touch $@
