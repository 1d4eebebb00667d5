# Set-up needs Python 3.11 or newer with its headers, make and a C compiler; all else comes from the package registry.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
# The pure rooms' own tests, which run both compiled and as plain Python. Rhythms are minutes of links' lives that
# the walks lead through the same code, a step at a time: compiled is enough. The store is compiled only. The last
# three walks, and tests that are left out below, reach no room that is compiled: they would be run twice alike.
PURE   := $(filter-out $(addprefix tests/property/test_,rhythms.py cache_walk.py \
          segment_walk.py cell_schedules.py log_schedules.py deadlock_walk.py),$(wildcard tests/property/test_*.py)) \
          $(filter-out $(addprefix tests/unit/queues/test_,duplicates.py redelivery.py) \
          tests/unit/queues/selector/test_like.py,$(wildcard tests/unit/queues/test_*.py tests/unit/queues/*/test_*.py)) \
          tests/unit/codec/test_message.py $(addprefix tests/unit/flow/test_,gate.py allocator_promises.py window.py)
# What is compiled: each .pyx, and each .py that has a .pxd beside it.
COMPILED := $(shell find broker -name '*.pyx' -o -name '*.pxd') \
            $(wildcard $(patsubst %.pxd,%.py,$(shell find broker -name '*.pxd')))

.PHONY: run cluster flights install dev check test test-clients test-clients-cells test-packaging test-spark-versions connector clients-matrix docs lint house bench bench-peers bench-replicated bench-spark soak clean fuzz asan sbom audit bare

run: install
	$(BIN)/sluice serve

install: $(VENV)/.built

# Three servers of a replicated log and three members of a cell, on this machine (docs/cluster.md). Needs Go, or
# nats-server on the path.
cluster: install
	$(BIN)/python -m tools.cluster

# A year of flights through a queue of 900, against the broker that `make run` started.
flights: $(VENV)/.flights
	$(BIN)/python -m examples.flights

dev: $(VENV)/.dev

$(VENV)/.runtime: requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	touch $@

# The package is a file of data here, so nothing that it depends on is installed.
$(VENV)/.flights: $(VENV)/.built requirements-flights.lock
	$(PIP) install --no-deps --require-hashes -r requirements-flights.lock
	touch $@

# The install is editable: Python files that are not compiled need nothing more.
$(VENV)/.installed: $(VENV)/.runtime setup.py pyproject.toml
	SLUICE_BUILD=none $(PIP) install --no-deps --no-build-isolation -e .
	touch $@

# Only what changed is compiled anew, and what includes its types.
$(VENV)/.built: $(VENV)/.installed $(COMPILED)
	@mkdir -p build; echo 'compiling; the first time takes minutes'; \
	$(BIN)/python setup.py -q build_ext --inplace --build-lib build/compiled --build-temp build/objects \
		> build/compile.txt 2>&1 || { cat build/compile.txt; exit 1; }
	touch $@

$(VENV)/.dev: $(VENV)/.built requirements-dev.lock
	$(PIP) install --require-hashes -r requirements-dev.lock
	touch $@

# After each edit: what is wrong is found in under two minutes, but for what needs a running broker.
check: lint
	$(BIN)/python -m pytest -q tests/unit tests/test_layers.py -m "not soak" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests start hundreds of processes and each worker loads every test: without bytecode each compiles it all anew.
check test test-clients test-clients-cells test-packaging test-spark-versions soak: export PYTHONDONTWRITEBYTECODE :=

# Tests mostly wait for brokers they started; files run beside each other. WORKERS=0 for one after another.
# Those on Spark share one session, so they are one process of their own, beside the others; that needs Java. The
# pure part follows them in one process too, and takes what the others leave while they wait.
# Those of a cell have leases to keep and run alone, at the end; they need Go, or nats-server on the path.
WORKERS ?= 3
test: dev
	@mkdir -p build; \
	($(BIN)/python -m pytest tests/spark -m "spark and not soak" > build/test-spark.txt 2>&1; spark=$$?; \
	SLUICE_PURE=1 $(BIN)/python -m pytest -q -m "not soak" $(PURE) > build/test-pure.txt 2>&1; pure=$$?; \
	exit $$((spark | pure))) & beside=$$!; \
	$(BIN)/python -m pytest tests -m "not soak and not clients and not packaging and not spark and not cluster" \
		-n $(WORKERS) --dist loadfile --no-loadscope-reorder; rest=$$?; \
	wait $$beside; beside=$$?; cat build/test-spark.txt build/test-pure.txt; \
	$(BIN)/python -m pytest tests/cluster -m "cluster and not soak"; cluster=$$?; \
	exit $$((rest | beside | cluster))

# Needs Node.js, Java with Maven, Go and Rust; what is missing is skipped by name. Those of a cell run alone.
test-clients: dev
	$(BIN)/python -m pytest tests -m "clients and not soak" --ignore tests/cluster \
		-n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest tests/cluster -m "clients and not soak"

# The same against three cells, with each client's connection in a cell that has not the node of its first link.
test-clients-cells: dev
	$(BIN)/python -m pytest tests/clients -m "clients and not soak" --cells 3 \
		-n 2 --dist loadfile --no-loadscope-reorder

# Builds the sdist and the wheel in an empty environment, installs the wheel elsewhere and starts what it brought.
test-packaging: dev
	$(BIN)/python -m pytest tests/packaging -m packaging --timeout 1200

# The connector's wheel with PySpark 3.5, 4.0 and 4.1, which are fetched once (400 MB each) and kept in build/.
test-spark-versions: dev
	$(BIN)/python -m pytest tests/packaging/test_spark_versions.py -m soak --timeout 3600

# The Spark connector as a wheel of its own: dist/pyspark_sluice-*.whl, for any platform.
connector: $(VENV)/.runtime
	rm -rf packages/pyspark-sluice/build
	$(PIP) wheel --no-deps -w dist packages/pyspark-sluice
	@ls dist/pyspark_sluice-*.whl

# `make run` and `make test` in a new clone, where only Python, make and a C compiler are to be found; half an hour.
bare:
	$(PYTHON) -m tools.bare --workers $(WORKERS)

clients-matrix: dev
	$(BIN)/python -m pytest tests/clients -m "clients and not soak" --write-matrix

docs: install
	$(BIN)/sluice schema reference > docs/configuration.md
	$(BIN)/python -m broker.cli.terminal.manual > docs/man/sluice.1
	$(BIN)/python -m broker.cli.terminal.manual --markdown > docs/cli.md
	$(BIN)/python -m tools.sparkoptions

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What stands out in the code: something to look into, no limit.
house: dev
	$(BIN)/python -m tools.house

bench: install
	$(BIN)/python -m bench

# Other brokers beside ours: RabbitMQ from its package, three by Maven; what can't be had is listed.
bench-peers: install
	$(BIN)/python -m bench.peers
	$(BIN)/python -m bench.peers --transactions

# A durable queue on one broker and on a replicated cell, beside a cluster of RabbitMQ and a pair of Artemis.
bench-replicated: install
	$(BIN)/python -m bench.replicated

# The Spark sink's and source's rates, and what encoding and decoding a row cost; needs Java.
bench-spark: dev
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.sparksource

# The Spark jobs on real flights, each beside a broker of its own: job-capacity, job-pipeline, job-dead-letters,
# job-streams. They need Java.
job-%: dev
	$(BIN)/python -m examples.jobs $*

soak: dev
	$(BIN)/python -m pytest tests -m soak --timeout 3600

# Ten minutes for each target; `make fuzz SECONDS=60 TARGETS="sentry message"` for less. Inputs stay in build/fuzz-inputs.
SECONDS ?= 600
fuzz: dev
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

# The compiled part built with AddressSanitizer and UBSan, under the fuzzers' inputs and the tests that send the oddest bytes.
asan: dev
	$(BIN)/python -m tests.fuzz.sanitized

# What a broker is made of, as CycloneDX.
sbom: install
	$(BIN)/python -m tools.sbom build/sluice-mq.cdx.json
	@echo build/sluice-mq.cdx.json

# Known vulnerabilities in it; without a network `make audit DATABASE=FILE` (advisories in the OSV format).
audit: dev
	$(BIN)/python -m tools.audit $(if $(DATABASE),--database $(DATABASE)) requirements.lock requirements-dev.lock

clean:
	rm -rf build $(VENV) *.egg-info
	find broker bench -name '*.so' -delete
