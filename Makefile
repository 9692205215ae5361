# `make` lists the targets. Each target sets up what it needs: virtual environment, native module, packages. Nothing is
# installed outside .venv, target/ and the user's ordinary package caches.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROWS ?= 336776
SEQUENCES ?= 10000
ATTACK_SECONDS ?= 600
SNAPSHOT_MINUTES ?= 30
VERSIONS ?= 5.5.0,4.9.7,4.6.1
PARTS ?=
SPARKS ?=
TORTURE ?=
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# Tests of the store over real files. The others run no unsafe code.
ON_FILES := append_and_read bad_input flow_control append_batches cached config_file deleted_topics delayed queue_manifest extended faults formats key_search kill locks \
	newer_version read_only nul_bytes real_stores recovery retention small_disk timer_files without_timer write_ahead
# In CI a failed test runs once more: one stall of a shared machine should not refuse a change. A failure that repeats
# does. tests/conftest.py lists what needed its second run and bounds how many may; `make nightly` allows none.
RETRY ?= $(filter true,$(CI))
PYTEST := $(BIN)/python -m pytest $(if $(RETRY),--reruns 1 --reruns-delay 2 --durations=40 --durations-min=3)
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_QUIET := 1
unexport CONDA_PREFIX

.DEFAULT_GOAL := help
.PHONY: help demo test python python-1 python-2 jvm real spark gate fmt lint types mypy stubs dev deps unit rust nightly interop interop-55 interop-49 interop-46 sparkreal spark-versions lake spark-torture spark-torture-topic spark-torture-atleast spark-torture-parquet spark-long sequences attacks snapshot long bench benchdeps figures profile micro chaos leaks \
	faults loom asan wheel release-wheel audit docs clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-21s %s\n", $$1, $$2}'

# Report what is missing before anything is built: `deps` takes minutes.
demo: needs-rust needs-java dev ## 336,776 flights from Python through our broker into Spark; kills the broker, joins the weather (ROWS=n)
	$(BIN)/python -m examples.flights --rows $(ROWS) --out demo-out

# In this order, so that `make -j3` keeps both processors busy to the end: most tests wait most of their time.
test: needs-rust dev rust real python-1 python-2 spark ## Rust, Python, real RocketMQ 5.5.0, Spark; `make nightly` runs what this omits

python: python-1 python-2 ## the Python tests that need no Java

# Halves of equal length, so that `make -j` runs them side by side.
FIRST_HALF = tests/e2e/test_[a-l]*.py

python-1: dev ## of `python`, tests/e2e from a to l
	$(PYTEST) -rs -m "not (interop or interop_all or spark)" $(FIRST_HALF)

python-2: dev ## of `python`, all other tests
	$(PYTEST) -rs -m "not (interop or interop_all or spark)" --ignore-glob='$(FIRST_HALF)'

jvm: real spark ## the tests with real RocketMQ servers and clients, and with Spark

real: dev ## the tests with real RocketMQ servers and clients
	@$(PYTHON) tools/need.py --soft javac maven
	$(PYTEST) -rs -m "(interop or interop_all) and not spark"

spark: dev ## the tests with Spark, of which some use a real RocketMQ
	@$(PYTHON) tools/need.py --soft javac maven
	$(PYTEST) -rs -m spark

gate: fmt lint types test ## what CI runs: format, lints, types, then `make test`

fmt: deps ## check the formatting of Rust and Python
	cargo fmt --all --check
	$(BIN)/ruff format --check .

lint: deps ## clippy, ruff and codespell; warnings are errors
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo check -p pyrmq-remoting --no-default-features
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(BIN)/ruff check .
	$(BIN)/codespell *.md Makefile benches crates docs examples python tests tools

types: mypy stubs ## strict mypy, and the stubs against the built module

mypy: deps
	$(BIN)/mypy

stubs: dev
	$(BIN)/python -m mypy.stubtest pyrmq._core --allowlist tools/stubtest-allowlist.txt

needs-%:
	@$(PYTHON) tools/need.py $*

dev: needs-rust deps ## a release build, importable in .venv
	$(BIN)/maturin develop --release --quiet

deps: $(VENV)/.deps

$(VENV)/.deps: pyproject.toml tools/requirements.py
	@$(PYTHON) tools/need.py python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/requirements.py dev spark-local > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/requirements.txt
	@touch $@

unit: dev ## the fast tests only: no Java, no Spark
	$(PYTEST) -m "not interop and not interop_all and not spark and not faults and not slow"

rust: needs-rust deps ## the Rust tests
	$(PYTHON) tools/rust_tests.py $(if $(RETRY),--retry) -- --workspace --exclude pyrmq-bindings --all-features --quiet

nightly: needs-rust needs-javac needs-maven dev ## what the gate omits, with one table at the end (PARTS="loom chaos" selects parts)
	RETRY= $(PYTHON) tools/nightly.py $(PARTS)

interop: needs-javac needs-maven benchdeps ## real RocketMQ 5.5.0, 4.9.7 and 4.6.1, servers and clients (VERSIONS=5.5.0,4.6.1)
	$(PYTEST) -rs tests/interop --rocketmq-all --rocketmq-versions=$(VERSIONS) --name-sequences=150

# `interop` in three parts, for `nightly`.
interop-55: ## of `interop`, the tests of 5.5.0, and those that choose their versions themselves
	$(MAKE) interop VERSIONS=5.5.0

interop-49: ## of `interop`, the tests that run for every version, with 4.9.7
	$(MAKE) interop VERSIONS=4.9.7

interop-46: ## of `interop`, the tests that run for every version, with 4.6.1
	$(MAKE) interop VERSIONS=4.6.1

sparkreal: needs-javac needs-maven dev ## the Spark source on brokers of the three versions
	$(PYTEST) -rs tests/spark/test_real.py --rocketmq-versions=$(VERSIONS)

spark-versions: needs-java dev ## the Spark tests on the oldest and newest PySpark, too (SPARKS=4.1.3)
	$(BIN)/python tools/spark_versions.py $(SPARKS)

lake: needs-java dev ## pipelines into Delta and Iceberg tables, killed and run again; downloads their jars
	$(BIN)/python tools/spark_versions.py --install-only 4.1
	PYRMQ_LAKE=1 $(PYTEST) -rs tests/spark/test_lake.py

spark-torture: needs-java dev ## kills driver, workers, brokers and name server of a Spark pipeline for 20 rounds (PYRMQ_TORTURE_ROUNDS=n, PYRMQ_TORTURE_SEED=n)
	$(PYTEST) -rs -s --nightly -m nightly tests/spark/test_torture.py $(if $(TORTURE),-k $(TORTURE))

# `spark-torture` in three parts, for `nightly`.
spark-torture-topic: ## of `spark-torture`, the pipeline into a topic, exactly once
	$(MAKE) spark-torture TORTURE=exactly-once

spark-torture-atleast: ## of `spark-torture`, the pipeline into a topic, at least once
	$(MAKE) spark-torture TORTURE=at-least-once

spark-torture-parquet: ## of `spark-torture`, the pipeline into Parquet files
	$(MAKE) spark-torture TORTURE=parquet

sequences: needs-javac needs-maven dev ## random request sequences against our name server and the real one (SEQUENCES=n)
	$(PYTEST) -rs tests/interop/test_name_sequences.py --name-sequences=$(SEQUENCES)

attacks: dev ## hostile peers for ten minutes on servers with users, and for ten on a broker with accounts of 4.x: 10,000 half-open connections and eleven kinds of attack (ATTACK_SECONDS=n)
	$(PYTEST) -rs -s --nightly tests/e2e/test_hostile_tls.py -k long_attack --hostile-seconds=$(ATTACK_SECONDS)

snapshot: dev ## a snapshot of a broker's store after half an hour of load, opened by another broker (SNAPSHOT_MINUTES=n)
	$(PYTEST) -rs -s --nightly tests/e2e/test_store_snapshot.py -k long_load --snapshot-minutes=$(SNAPSHOT_MINUTES)

spark-long: needs-java dev ## the Spark tests that take too long for the gate: a cluster, Connect, a read of 5 GB; without the torture
	$(PYTEST) -rs -s --nightly -m nightly tests/spark --ignore=tests/spark/test_torture.py

# What other parts run is left out.
long: needs-javac needs-maven dev ## tests that take too long for the gate and need at most one RocketMQ version
	@$(PYTHON) tools/need.py --soft chromium
	$(PYTEST) -rs --nightly -m nightly --ignore=tests/spark -k "not long_attack and not long_load"
	cargo test --release --workspace --exclude pyrmq-bindings --all-features -- --ignored --skip at_many_crash_points

chaos: dev ## a million messages while brokers and name servers are killed, stopped and cut off
	$(PYTEST) -rs -s tests/chaos --chaos-messages=1000000 --chaos-slack-ms=100

leaks: dev ## a million sends, ten thousand producers opened and closed, without a leak
	$(PYTEST) -rs -s tests/e2e/test_leaks.py --leak-sends=1000000 --leak-producers=10000

# Only builds with debug assertions have the hook by which the seed schedules threads.
faults: needs-rust deps ## 10,000 crash points of a simulated disk, in five parts (PYRMQ_FAULT_POINTS=n, PYRMQ_FAULT_SEED=n replays one run of each)
	cargo test --release -p pyrmq-store -p pyrmq-broker --test crash_points --test timer_crash --test pop_crash_points --no-fail-fast at_many_crash_points -- --ignored --nocapture --test-threads=1
	cargo test -p pyrmq-store --test crash_points where_threads_race_at_many_crash_points -- --ignored --nocapture --test-threads=1

loom: needs-rust deps ## every interleaving of the group commit's threads, and of those that write consume queues
	RUSTFLAGS="--cfg pyrmq_loom" CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo test -p pyrmq-store --target-dir target/loom --test loom_group_commit --test loom_queue_lists

# RUSTC_BOOTSTRAP lets the pinned compiler take the sanitizer's flag; its runtime comes with every toolchain.
asan: needs-rust deps ## the store's tests over real files under the address sanitizer
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo test -p pyrmq-store --target-dir target/asan --target $(HOST) $(addprefix --test ,$(ON_FILES))

benchdeps: dev
	$(BIN)/python tools/requirements.py bench > $(VENV)/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/bench.txt

bench: needs-javac needs-maven wheel benchdeps ## compare pyrmq with Apache RocketMQ, Kafka, NATS: the figures of the README (ROW=produce,lone; QUICK=1: a row of each area)
	$(BIN)/python -m benches.e2e --out benches/results $(if $(ROW),--rows $(ROW)) $(if $(QUICK),--quick)

figures: needs-javac needs-maven benchdeps ## the quick rows of `make bench` beside the figures of the release, if this is their machine
	$(PYTEST) -rs -s benches/release

# Builds the release's code with symbols (profile `bench` of Cargo.toml). `make dev` puts the release back.
profile: needs-rust deps ## profile one load of benches/loads.py: what a message costs, and flame graphs (ROW=produce)
	@$(if $(ROW),,$(error name a row: make profile ROW=produce))
	$(BIN)/maturin develop --profile bench --quiet
	$(BIN)/python -m pip install --quiet --disable-pip-version-check py-spy || echo "py-spy could not be installed"
	$(BIN)/python -m benches.profile $(ROW)

micro: dev ## time single calls with pytest-benchmark; saves the run in .benchmarks/
	$(PYTEST) benches/micro --benchmark-autosave

wheel: needs-rust deps ## one abi3 wheel in dist/
	$(BIN)/python tools/wheel.py --out dist
	@ls -l dist/*.whl

release-wheel: needs-rust deps ## as `wheel`, without any path of this machine in it: equal sources give equal bytes (compiles everything)
	$(BIN)/python tools/wheel.py --out dist --remap
	@sha256sum dist/*.whl

# A virtual environment of its own: what the audit needs is no part of what it audits.
audit: deps ## known weaknesses of the installed packages (PyPI's list) and of the crates (RustSec's); needs both lists
	$(PYTHON) -m venv target/audit
	target/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python -m pip freeze --exclude-editable > target/audit/packages.txt
	target/audit/bin/pip-audit --vulnerability-service pypi --strict --no-deps --disable-pip --requirement target/audit/packages.txt
	@command -v cargo-deny > /dev/null || { echo "cargo-deny is missing: cargo install --locked cargo-deny"; exit 1; }
	cargo deny check

docs: dev ## regenerate the generated pages
	$(BIN)/python tools/gen_codes.py
	$(BIN)/python -m tools.gen_compat
	$(BIN)/python -m tools.gen_options
	$(BIN)/python -m tools.gen_rights

clean: ## remove build products
	cargo clean
	rm -rf $(VENV) dist demo-out
