# kafkalite: `make run` starts a broker, `make test` runs all tests; both install what they need into .venv.
# No step runs twice: the stamp files in .venv and build/ record what is installed and compiled.

PYTHON ?= python3
DATA ?= ./data
LISTEN ?=
ENGINE ?= c
JOBS ?= 3
PYTEST_ARGS ?=

BIN := .venv/bin
PYSPARK ?=
SPARK_ENV := .venv-spark$(addprefix -,$(PYSPARK))
SPARK_BIN := $(SPARK_ENV)/bin
FOREIGN := tests/kit/foreign.toml
SPEEDUPS := kafkalite/_speedups sdk/kafkalite_sdk/_speedups
CYTHON := $(shell find $(SPEEDUPS) -name '*.pyx' -o -name '*.pxd')
LOADGEN := $(wildcard perf/*.pyx perf/*.pxd)
STUBS := $(subst /,.,$(patsubst sdk/%,%,$(basename $(shell find $(SPEEDUPS) perf -name '*.pyi'))))
BUILD_EXT = $(BIN)/python setup.py -q build --parallel $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start thousands of processes; each would compile the modules that it imports.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += -j2  # pip installs the dependencies while it installs Cython, and while the extensions are compiled

# The debug and ASan builds precede the checkout on the path, also for plugins that pytest loads before conftest.py.
ENVIRON_debug = PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/debug:$(CURDIR)
ASAN_FILES = suppressions=$(CURDIR)/tools/asan-suppressions.txt:log_path=$(CURDIR)/build/asan-report
ENVIRON_asan = PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/asan:$(CURDIR) PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:$(ASAN_FILES) UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD=$(shell gcc -print-file-name=libasan.so)

# The tests of the Spark pipeline are a step of their own, where there is Java. In CI a missing Java is their failure.
SPARK := $(if $(filter c,$(ENGINE)),$(if $(PYTEST_ARGS),,$(or $(shell command -v java),$(filter true,$(CI)))))
SPARK_TESTS = $(SPARK_BIN)/python -m pytest tests/spark $(if $(filter true,$(CI)),--strict-run)

.DEFAULT_GOAL := help
.PHONY: help run test test-broker test-spark first-broker first-spark spark pipeline contract build loadgen debug asan bench compare simulate torture torture-spark secured suites lint dist clean

help:
	@sed -n 's/^#: //p' Makefile

#: make run       start a broker on localhost:9092 with its data in ./data (LISTEN=host:port, DATA=dir)
# A broker does not need the extensions of the SDK: they are compiled beside it. `$(MAKE)` in a recipe would run it for -n.
COMPILE_REST = MAKEFLAGS= $(MAKE) -s build
run: build/stamp-broker .venv/stamp-kafkalite
	@$(COMPILE_REST) & exec $(BIN)/kafkalite serve $(if $(LISTEN),--listen $(LISTEN)) --data $(DATA)

#: make test      run all tests (ENGINE=c|debug|asan, JOBS=3, PYTEST_ARGS=...; with CI=true a skip is an error)
# A test that fails beside others is repeated alone when all have ended: see docs/testing.md, Failures.
test: first-broker $(if $(SPARK),first-spark)
	$(if $(SPARK),,@echo "without tests/spark: it needs Java, ENGINE=c and no PYTEST_ARGS")
	@$(REPEAT) build/failures-broker.json $(if $(SPARK),build/failures-spark.json)

TEST_NEEDS = build loadgen .venv/stamp-test $(if $(filter c,$(ENGINE)),,build/stamp-$(ENGINE))

REPEAT = KAFKALITE_ENGINE=$(ENGINE) $(ENVIRON_$(ENGINE)) $(BIN)/python -m tests.repeat_failures
# Exit code 1 means that tests failed. Others end the run, as does a run that wrote no list.
TO_BE_REPEATED = status=$$?; [ $$status -eq 0 ] || { [ $$status -eq 1 ] && [ -s $(1) ]; }

test-broker: first-broker
	@$(REPEAT) build/failures-broker.json

test-spark: first-spark
	@$(REPEAT) build/failures-spark.json

first-broker: $(TEST_NEEDS)
	@mkdir -p build && rm -f build/failures-broker.json
	KAFKALITE_ENGINE=$(ENGINE) $(ENVIRON_$(ENGINE)) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup \
		--failures build/failures-broker.json $(if $(filter true,$(CI)),--strict-run) $(PYTEST_ARGS); \
		$(call TO_BE_REPEATED,build/failures-broker.json)

# They wait for Spark half of their time, so they run beside the others. Their output follows in one piece.
first-spark: $(TEST_NEEDS) $(SPARK_ENV)/stamp
	@echo "tests/spark run beside the others, into build/test-spark.log"
	@mkdir -p build && rm -f build/failures-spark.json
	@$(SPARK_TESTS) --failures build/failures-spark.json >build/test-spark.log 2>&1; status=$$?; \
		cat build/test-spark.log; (exit $$status); $(call TO_BE_REPEATED,build/failures-spark.json)

#: make spark     run the tests of the Spark pipeline, which need Java 17 (PYTEST_ARGS=..., PYSPARK=4.3.0; part of `make test`)
spark: build $(SPARK_ENV)/stamp
	$(SPARK_TESTS) $(PYTEST_ARGS)

#: make pipeline  336,776 flights through a broker and three jobs of Spark, with a plot; needs Java 17
pipeline: build $(SPARK_ENV)/stamp
	@$(SPARK_BIN)/python -m tools.pipeline

#: make contract  test a server of ZooKeeper's protocol against the contract of a coordination service (ZOOKEEPER=host:port)
contract: build .venv/stamp-test
	$(if $(ZOOKEEPER),,$(error ZOOKEEPER=host:port is missing: the server to test))
	ZOOKEEPER=$(ZOOKEEPER) $(BIN)/python -m pytest tests/contract/coordination -k zookeeper $(PYTEST_ARGS)

#: make build     compile the extensions in place
build: build/stamp-c .venv/stamp-kafkalite

#: make loadgen   compile the load generator of perf/
loadgen: build/stamp-loadgen

#: make debug     compile with bounds checks and assertions into build/debug
debug: build/stamp-debug

#: make asan      compile with AddressSanitizer and UBSan into build/asan
asan: build/stamp-asan

#: make bench     run the micro benchmarks
bench: build .venv/stamp-test
	$(BIN)/python -m pytest perf/micro --benchmark-only --benchmark-group-by=group $(PYTEST_ARGS)

#: make compare   measure kafkalite, Apache Kafka and kfake side by side
compare: build loadgen .venv/stamp-test
	$(BIN)/python -m perf compare

DRAWN_SEED = KAFKALITE_FIRST_SEED=$${KAFKALITE_FIRST_SEED:-$$(shuf -n 1 -i 1-2000000000)}

#: make simulate  whole clusters with clients under random faults in virtual time (SEEDS=1000, KAFKALITE_FIRST_SEED=n)
simulate: build .venv/stamp-test
	$(DRAWN_SEED) $(BIN)/python -m pytest -s tests/story/cluster/test_simulation.py tests/story/replication/test_simulation.py -k random_faults --simulations $(or $(SEEDS),1000) \
		--timeout 28800 -o faulthandler_timeout=28860 $(PYTEST_ARGS)

# The build of another commit, for clusters that are upgraded from it.
build/release-%/stamp:
	rm -rf build/release-$*
	git clone -q . build/release-$*
	git -C build/release-$* checkout -q $*
	$(MAKE) -C build/release-$* build
	touch $@
RELEASE_PYTHON = $(if $(RELEASE),--release $(CURDIR)/build/release-$(RELEASE)/.venv/bin/python)

#: make torture   the long runs of the fuzz tests and rigs (RELEASE=commit: clusters are upgraded from it, and go back)
torture: build .venv/stamp-test build/stamp-asan $(if $(RELEASE),build/release-$(RELEASE)/stamp)
	$(DRAWN_SEED) $(BIN)/python -m pytest -v -m "fuzz or torture" --fuzz-inputs 10000000 --kills 300 --cuts 60 --faults 50 --cluster-faults 300 --simulations 5000 --minutes 30 \
		--crash-seeds 2000 --crash-stride 1 --flips 10000 --seeded-bugs 11 --fairness-seconds 1800 $(RELEASE_PYTHON) \
		--timeout 28800 -o faulthandler_timeout=28860 $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,$(MAKE) secured)
	$(if $(SUITES),$(MAKE) suites)

#: make secured   tests/compat and the stories of clients over SASL_SSL with ACLs (a part of make torture)
SECURED = tests/compat tests/story/test_flights.py tests/story/test_flights_group.py tests/story/test_sdk_application.py
secured: build .venv/stamp-test
	AGAINST=kafkalite-secured $(BIN)/python -m pytest $(SECURED) --timeout 1800 -o faulthandler_timeout=1860 $(PYTEST_ARGS)

#: make suites    tests of other projects, also with our client in aiokafka's place (AGAINST=kafkalite-secured, AIOKAFKA=checkout FASTSTREAM= CONCURRENT= AMGI= TASKIQ= ARROYO= LIBRDKAFKA= FRANZ_GO=)
RUN_SUITE = -m tests.suites $(1) $(abspath $($(2))) -q --timeout 120 $(PYTEST_ARGS)
RUN_FRAMEWORK = $(if $($(2)),.venv-suite-$(1)/bin/python $(call RUN_SUITE,$(1),$(2)))
SUITE_STAMP = $(if $($(2)),.venv-suite-$(1)/stamp)
SUITES = $(AIOKAFKA)$(FASTSTREAM)$(CONCURRENT)$(AMGI)$(TASKIQ)$(ARROYO)$(LIBRDKAFKA)$(FRANZ_GO)
suites: build .venv/stamp-test $(call SUITE_STAMP,faststream,FASTSTREAM) $(call SUITE_STAMP,concurrent,CONCURRENT)
suites: $(call SUITE_STAMP,amgi,AMGI) $(call SUITE_STAMP,taskiq,TASKIQ) $(call SUITE_STAMP,arroyo,ARROYO)
	$(if $(SUITES),,$(error one of AIOKAFKA, FASTSTREAM, CONCURRENT, AMGI, TASKIQ, ARROYO, LIBRDKAFKA and FRANZ_GO is missing: the clone of a project))
	$(if $(AIOKAFKA),$(BIN)/python $(call RUN_SUITE,aiokafka,AIOKAFKA))
	$(call RUN_FRAMEWORK,faststream,FASTSTREAM)
	$(if $(FASTSTREAM),CLIENT=aiokafka $(call RUN_FRAMEWORK,faststream,FASTSTREAM))
	$(call RUN_FRAMEWORK,concurrent,CONCURRENT)
	$(if $(CONCURRENT),CLIENT=aiokafka $(call RUN_FRAMEWORK,concurrent,CONCURRENT))
	$(call RUN_FRAMEWORK,amgi,AMGI)
	$(if $(AMGI),CLIENT=aiokafka $(call RUN_FRAMEWORK,amgi,AMGI))
	$(call RUN_FRAMEWORK,taskiq,TASKIQ)
	$(call RUN_FRAMEWORK,arroyo,ARROYO)
	$(if $(LIBRDKAFKA),$(BIN)/python -m tests.suites librdkafka $(abspath $(LIBRDKAFKA)))
	$(if $(LIBRDKAFKA),$(BIN)/python -m tests.suites librdkafka-security $(abspath $(LIBRDKAFKA)))
	$(if $(FRANZ_GO),$(BIN)/python -m tests.suites franz-go $(abspath $(FRANZ_GO)))

#: make torture-spark  the pipeline under 300 kills, its sink under 150, 200 reads of history; then its tests on PySpark 4.3
torture-spark: LONG = --timeout 28800 -o faulthandler_timeout=28860
torture-spark:
	KAFKALITE_HISTORY_READS=200 $(MAKE) spark PYTEST_ARGS="-v -k 'kill_matrix or history or exactly_once' --kills 300 $(LONG)"
	$(MAKE) spark PYSPARK=4.3.0

#: make lint      ruff, mypy --strict, stubtest, cython-lint
lint: build loadgen .venv/stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.:sdk $(BIN)/stubtest --ignore-disjoint-bases --allowlist tools/stubtest-allowlist.txt $(STUBS)
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint $(CYTHON) $(LOADGEN)

#: make dist      build the wheel and the source distribution into dist/
dist: .venv/stamp-test
	$(BIN)/python -m build --no-isolation -o dist .

#: make clean     remove the build results (not .venv, not ./data)
clean:
	rm -rf build dist *.egg-info
	find kafkalite sdk perf -name '*.so' -delete

# --- the environment -------------------------------------------------------------------------------------------------

.venv/stamp-python:
	@$(PYTHON) tools/check_toolchain.py
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip .venv
	@touch $@

# Modules are compiled when they are imported: a build imports few of those of pip, setuptools and Cython.
.venv/stamp-build: pyproject.toml .venv/stamp-python
	$(BIN)/python tools/requirements.py build > .venv/requirements-build.txt
	$(BIN)/python tools/run_pip.py --with-pip install -q --no-compile -r .venv/requirements-build.txt
	@touch $@

# A second pip, beside that of .venv/stamp-build: they install different packages.
.venv/stamp-run: pyproject.toml .venv/stamp-python
	$(BIN)/python tools/requirements.py run > .venv/requirements-run.txt
	$(BIN)/python tools/run_pip.py install -q --no-compile -r .venv/requirements-run.txt
	@touch $@

# The metadata and the `kafkalite` command; the extensions are compiled by their own rule.
.venv/stamp-kafkalite: .venv/stamp-build .venv/stamp-run
	KAFKALITE_ONLY=none $(BIN)/pip install -q --no-build-isolation -e .
	@touch $@

.venv/stamp-test: $(FOREIGN) .venv/stamp-kafkalite
	$(BIN)/python tools/requirements.py dev $(FOREIGN) > .venv/requirements-dev.txt
	$(BIN)/pip install -q --no-compile -r .venv/requirements-dev.txt
	@touch $@

# PySpark, and the pandas that it supports; all other packages are those of .venv.
$(SPARK_ENV)/stamp: $(FOREIGN) tools/link_environment.py .venv/stamp-test
	@test -x $(SPARK_BIN)/python || $(BIN)/python -m venv $(SPARK_ENV)
	$(BIN)/python tools/requirements.py spark $(FOREIGN) > $(SPARK_ENV)/requirements.txt
	$(SPARK_BIN)/pip install -q --no-compile -r $(SPARK_ENV)/requirements.txt $(addprefix && $(SPARK_BIN)/pip install -q --no-compile pyspark==,$(PYSPARK))
	$(SPARK_BIN)/python tools/link_environment.py
	@touch $@

# The framework of `make suites`, and what its tests need; all other packages are those of .venv.
.venv-suite-%/stamp: $(FOREIGN) tools/link_environment.py .venv/stamp-test
	@test -x $(@D)/bin/python || $(BIN)/python -m venv $(@D)
	$(BIN)/python tools/requirements.py suite_$* $(FOREIGN) > $(@D)/requirements.txt
	$(@D)/bin/pip install -q -r $(@D)/requirements.txt
	$(@D)/bin/python tools/link_environment.py
	@touch $@

# --- the extensions, one directory per variant so that none overwrites another's ----------------------------------------

build/stamp-broker: setup.py $(filter kafkalite/%,$(CYTHON)) .venv/stamp-build
	@echo "compiling the extensions of the broker, about half a minute on two cores"
	@KAFKALITE_PART=broker $(BIN)/python setup.py -q build_ext --inplace
	@mkdir -p build && touch $@

build/stamp-c: setup.py $(CYTHON) build/stamp-broker
	@$(BIN)/python setup.py -q build_ext --inplace
	@mkdir -p build && touch $@

build/stamp-loadgen: setup.py $(LOADGEN) build/stamp-c
	KAFKALITE_PERF=1 $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

build/stamp-debug: setup.py $(CYTHON) $(shell find kafkalite sdk -name '*.py') .venv/stamp-build
	KAFKALITE_DEBUG=1 $(BUILD_EXT) --build-lib build/debug --build-temp build/temp-debug
	@touch $@

build/stamp-asan: setup.py tools/planted_overflow.pyx $(CYTHON) $(shell find kafkalite sdk -name '*.py') .venv/stamp-build
	KAFKALITE_ASAN=1 $(BUILD_EXT) --build-lib build/asan --build-temp build/temp-asan
	@touch $@
