# Everything here runs on a fresh machine with Python 3.11+ and Java 17+; .ci/run installs those on a new Debian.
#   PYTHON=   the Python that the virtual environment is made with
#   VENV=     where the virtual environment is
#   FILES=    how many files of tests with servers run at a time, each with its own Spark and servers (about 4 GiB):
#             three where 14 GiB are available, otherwise two
#   ONLY=     rules or ids of mutants that `make test-mutants` plants ("R14 R30"); all of them without it
#   JOBS=     how many mutants it tries at a time; as many as there are cores without it
#   PYSPARK=  the other version of PySpark that `make test-pyspark` runs with (4.3.0)
#   MINUTES=  how long `make soak` runs, at least 5; SEED= which kills, pauses and restarts
#   CASES=    how many cases `make test-fuzz` tries at each decoder, and with the sanitizers at each of the kernel's
PYTHON ?= python3
VENV   ?= .venv
FILES  ?= $(shell awk '/^MemAvailable/ && $$2 > 14000000 { n = 1 } END { print 2 + n }' /proc/meminfo 2>/dev/null || echo 2)
CASES  ?= 1000000
PYSPARK ?= 4.3.0
MINUTES ?= 120
SEED   ?= 1
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# A test mostly waits for its servers, so several files run side by side: each process has servers, a Spark session
# and ports of its own. tests/scheduling.py gives the order.
SERVERS = --ignore=tests/unit --ignore=tests/timing --ignore=tests/sim --numprocesses $(FILES) --dist loadfile \
    --no-loadscope-reorder
# Three processes on two cores, since some tests wait: these rooms in two of them, all others in the third. They are not
# xdist's, which takes as much CPU time again to collect and report 15 500 mostly short tests.
UNIT_1  = $(addprefix tests/unit/,cli coordinator executor)
UNIT_2  = $(addprefix tests/unit/,group kafka testing zookeeper)
# Which unit tests run, and at which priority: `make check` leaves the slow ones out, `make test` takes all and lets the
# tests with servers go first.
MARK    = -m "not slow"
NICE    =
PYTEST  = $(NICE) $(BIN)/pytest
TOOLS  := $(VENV)-release
OTHER  := $(VENV)-pyspark-$(PYSPARK)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' streamgroup/__init__.py)

# Byte code is kept whatever the environment says: without it every process of a test run, and every coordinator that
# Spark starts, would compile the package anew, and each test worker would rewrite the assertions of all test files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv lock demo check lint types imports unit slow timing jars pins test test-live test-pyspark test-faults test-sim test-mutants test-fuzz test-sanitizers soak golden wheel sbom bench docs pictures site format clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The records kernel is compiled where there is a compiler; without one the same is done in numpy.
$(STAMP): pyproject.toml requirements.lock $(wildcard streamgroup/kafka/records/*.c)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "streamgroup needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

venv: $(STAMP) ## the virtual environment with the package in it

lock: ## write requirements.lock anew (pins and hashes, no addresses)
	$(BIN)/python -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
	    --extra dev --extra docs --output-file requirements.lock pyproject.toml
	$(BIN)/python -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
	    --output-file requirements-release.lock requirements-release.in

demo: $(STAMP) ## two spark-submit jobs share a group of a real Kafka
	$(BIN)/streamgroup demo

check: $(STAMP) ## the habit of every edit: under a minute
	$(MAKE) --jobs 3 --output-sync=line lint types imports
	$(MAKE) unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	nice -n 10 $(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

.PHONY: unit-1 unit-2 unit-3
unit: $(STAMP)
	$(MAKE) --jobs 3 --output-sync=target unit-1 unit-2 unit-3

unit-1 unit-2: unit-%: $(STAMP)
	$(PYTEST) $(UNIT_$*) -q $(MARK)

unit-3: $(STAMP)
	$(PYTEST) tests/unit -q $(MARK) $(addprefix --ignore=,$(UNIT_1) $(UNIT_2))

slow: $(STAMP) ## the unit tests that `make check` leaves out: many random cases, processes, waits
	$(BIN)/pytest tests/unit -q -m slow --numprocesses 3 --dist worksteal

timing: $(STAMP) ## the tests that measure CPU time, one after the other, beside nothing else
	$(BIN)/pytest tests/timing -q

jars: $(STAMP) ## what the live tests download, and archives of classes, once
	$(BIN)/python -m tests.bring_jars

pins: $(STAMP) ## write streamgroup/testing/jars.sha256 anew, from jars downloaded for it
	$(BIN)/python -m tests.bring_jars --pin

# Tests with servers wait now and then, so the unit tests and the simulation run beside them, two at a time and at a lower
# priority: with all of them at once each got so little of two cores that tests missed their time limits. Their output
# comes when they end, that of the others at once: make passes on what a make in a recipe prints.
test: $(STAMP) ## all tests but the long ones: real brokers, real Spark
	$(MAKE) --jobs 3 --output-sync=target with-servers unit-1 unit-2 unit-3 simulation MARK= NICE="nice -n 5"
	$(MAKE) timing

.PHONY: with-servers with-servers-at-once simulation
with-servers:
	$(MAKE) --output-sync=none with-servers-at-once

with-servers-at-once: jars
	$(BIN)/pytest tests -m "not long" $(SERVERS)

simulation: $(STAMP)
	$(PYTEST) tests/sim -q

test-live: jars ## the long tests, but for those of faults
	$(BIN)/pytest tests -m long --ignore=tests/fault $(SERVERS)

# requirements.lock has one PySpark, so the other one has no hash.
$(OTHER)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(OTHER)
	sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock | sed 's/^pyspark==.*/pyspark==$(PYSPARK)/' > $(OTHER)/versions.txt
	$(OTHER)/bin/python -m pip install --quiet --no-deps --requirement $(OTHER)/versions.txt
	PYTHONWARNINGS=ignore $(OTHER)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

test-pyspark: jars $(OTHER)/.installed ## the short tests of Spark, and all of Connect, with another PySpark (PYSPARK=4.3.0)
	$(OTHER)/bin/pytest tests/spark -m "not long" $(SERVERS)
	$(OTHER)/bin/pytest tests/spark/test_connect.py -m long

test-faults: jars ## what breaks under a group, each fault STREAMGROUP_REPEATS (20) times
	STREAMGROUP_REPEATS=$${STREAMGROUP_REPEATS:-20} $(BIN)/pytest tests/fault -m "long or not long"

test-sim: $(STAMP) ## 50 000 seeds of the simulation, under an hour
	$(BIN)/python -m tests.sim --seeds 50000

test-mutants: $(STAMP) ## break each rule in a copy of the code: its tests must notice (ONLY=R14: of one rule)
	$(BIN)/python -m tests.mutants $(if $(JOBS),--jobs $(JOBS)) $(foreach one,$(ONLY),--only $(one))

test-fuzz: $(STAMP) ## damaged bytes and text at every decoder, CASES (a million) each; then the C kernel under gcc's sanitizers
	$(BIN)/python -m tests.fuzz --cases $(CASES)
	$(BIN)/python -m tests.sanitizers --fuzz $(CASES)

test-sanitizers: $(STAMP) ## the tests of records with the compiled kernel under gcc's sanitizers
	$(BIN)/python -m tests.sanitizers

soak: jars ## three jobs of a group for MINUTES (120), with kills from a SEED (1): memory, handles, lag, records
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

$(TOOLS)/.installed: requirements-release.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --require-hashes -r requirements-release.lock
	@touch $@

# The wheel is built from the sdist, so that the sdist is complete. auditwheel replaces the tag of this machine by that
# of the oldest Linux that has what the kernel asks of libc.
wheel: $(TOOLS)/.installed ## the sdist and the wheel of a release in dist/, checked for what they must contain
	rm -rf build dist
	PYTHONWARNINGS=ignore $(TOOLS)/bin/python -m build --no-isolation --outdir dist > $(TOOLS)/build.log 2>&1 || { cat $(TOOLS)/build.log; exit 1; }
	for one in dist/*-linux_*.whl; do \
	    [ ! -e "$$one" ] || PATH="$(abspath $(TOOLS))/bin:$$PATH" auditwheel repair --wheel-dir dist "$$one" && rm -f "$$one" || exit 1; done
	$(TOOLS)/bin/python -m tests.wheels dist/*.whl dist/*.tar.gz

# The dependencies, with those of the extras, in the versions that the tests run with. requirements.lock does not have
# the package of the extra kerberos. The license of protobuf is in its metadata as text only, which cyclonedx-py leaves
# out unless it gathers texts.
SBOM_EXTRAS = avro,metrics,otel,protobuf,registry,spark,sql,ui
sbom: wheel ## the bill of materials of the wheel and its extras, in CycloneDX: dist/streamgroup-VERSION.cdx.json
	$(PYTHON) -m venv --without-pip build/sbom
	sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock > build/versions.txt
	$(TOOLS)/bin/python -m pip --python build/sbom/bin/python install --quiet --constraint build/versions.txt "$$(echo dist/*.whl)[$(SBOM_EXTRAS)]"
	sed 's/^dynamic = \["version"\]/version = "$(VERSION)"/' pyproject.toml > build/pyproject.toml
	$(TOOLS)/bin/cyclonedx-py environment --pyproject build/pyproject.toml --mc-type library --output-reproducible \
	    --gather-license-texts --output-file dist/streamgroup-$(VERSION).cdx.json build/sbom/bin/python
	$(TOOLS)/bin/python -m tools.vendored dist/streamgroup-$(VERSION).cdx.json
	$(TOOLS)/bin/python -m tests.wheels dist/*.cdx.json

bench: $(STAMP) ## reads, writes and the smallest micro-batch beside Spark's own connector, in alternating pairs
	$(BIN)/python -m benchmarks.batch_read
	$(BIN)/python -m benchmarks.batch_write
	$(BIN)/python -m benchmarks.micro_batch_write
	$(BIN)/python -m benchmarks.micro_batch_read

golden: $(STAMP) ## write the golden files of the version in development, after a meant change of a format
	STREAMGROUP_WRITE_GOLDEN=1 $(BIN)/pytest -q tests/unit/test_golden_files.py -k changes_only

format: $(STAMP) ## let ruff lay out the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) pictures ## write the pages and pictures that are made from code
	for page in options.md write-options.md; do \
	    $(BIN)/python -m streamgroup.options.docs $$page > docs/$$page.new && mv docs/$$page.new docs/$$page || exit 1; done
	$(BIN)/python -m tools.reference.errors docs
	$(BIN)/python -m tools.reference.commands docs
	$(BIN)/python -m tools.reference.metrics docs

pictures: $(STAMP) ## draw docs/pictures anew
	$(BIN)/python -m tools.pictures

# Warnings are errors: a link or an anchor that leads nowhere, a page outside of the navigation. All pages are read anew
# (-E), because Sphinx does not repeat the warnings of a page that it has kept.
site: $(STAMP) ## the pages as a site, in build/site
	$(BIN)/sphinx-build -q -E -W --keep-going -c tools/site -b html -d build/site-cache . build/site
	@echo "build/site/index.html"

clean: ## remove the virtual environment and what tests leave
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	    demo-output bench-output spark-warehouse metastore_db derby.log streamgroup/kafka/records/*.so docs/*.md.new
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
