# `make` alone lists the targets. Everything a target needs is set up by it: virtual environment, native module,
# packages. Nothing is installed outside .venv, target/ and the user's ordinary package caches.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROWS ?= 336776
SEQUENCES ?= 10000
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# Tests of the store that use the system's files; of the others there is no unsafe code behind.
ON_FILES := append_and_read bad_input brakes bursts cached config_file deleted_topics delayed ends extended faults formats kill \
	newer_version read_only real_stores recovery retention small_disk timer_files without_timer write_ahead
PYTEST := $(BIN)/python -m pytest
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_QUIET := 1
unexport CONDA_PREFIX

.DEFAULT_GOAL := help
.PHONY: help demo test python gate fmt lint types mypy stubs dev deps unit rust interop bench chaos leaks faults loom asan wheel docs clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

demo: dev ## 336,776 flights from Python through our broker into Spark, the broker killed on the way (ROWS=n)
	@$(PYTHON) tools/need.py java
	$(BIN)/python -m examples.flights --rows $(ROWS) --out demo-out

test: dev rust python ## every test: Rust, Python, real RocketMQ 5.5.0, Spark

python: dev
	@$(PYTHON) tools/need.py --soft java maven
	$(PYTEST) -rs

gate: fmt lint types test ## what CI runs: format, lints, types, then `make test`

fmt: deps ## check the format of Rust and Python
	cargo fmt --all --check
	$(BIN)/ruff format --check .

lint: deps ## clippy and ruff, warnings are errors
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo check -p pyrmq-remoting --no-default-features
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(BIN)/ruff check .

types: mypy stubs ## mypy strict, and the stubs against the built module

mypy: deps
	$(BIN)/mypy

stubs: dev
	$(BIN)/python -m mypy.stubtest pyrmq._core --allowlist tools/stubtest-allowlist.txt

dev: deps ## a release build, importable in .venv
	@$(PYTHON) tools/need.py rust
	$(BIN)/maturin develop --release --quiet

deps: $(VENV)/.deps

$(VENV)/.deps: pyproject.toml tools/requirements.py
	@$(PYTHON) tools/need.py python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/requirements.py dev spark-local > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/requirements.txt
	@touch $@

unit: dev ## the quick rings only: no Java, no Spark
	$(PYTEST) -m "not interop and not interop_all and not spark and not faults and not slow"

rust: deps ## the Rust tests
	@$(PYTHON) tools/need.py rust
	cargo test --workspace --exclude pyrmq-bindings --all-features --quiet

interop: dev ## real RocketMQ 5.5.0, 4.9.7 and 4.6.1, servers and clients
	@$(PYTHON) tools/need.py java maven
	$(PYTEST) -rs tests/interop --rocketmq-versions=5.5.0,4.9.7,4.6.1 --name-sequences=$(SEQUENCES)

chaos: dev ## a million messages while brokers and name servers are killed, stopped and cut off
	$(PYTEST) -rs -s tests/chaos --chaos-messages=1000000 --chaos-slack-ms=100

leaks: dev ## a million sends, ten thousand producers opened and closed: nothing is left behind
	$(PYTEST) -rs -s tests/e2e/test_leaks.py --leak-sends=1000000 --leak-producers=10000

faults: deps ## 10,000 crash points of a simulated disk (PYRMQ_FAULT_POINTS=n, PYRMQ_FAULT_SEED=n replays one run)
	@$(PYTHON) tools/need.py rust
	cargo test --release -p pyrmq-store --test timer_crash -- --include-ignored
	cargo test --release -p pyrmq-store --test crash_points -- --include-ignored --nocapture --test-threads=1

loom: deps ## every interleaving of the group commit's threads
	@$(PYTHON) tools/need.py rust
	RUSTFLAGS="--cfg pyrmq_loom" CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo test -p pyrmq-store --target-dir target/loom --test loom_group_commit

asan: deps ## the store's tests over real files under the address sanitizer of a nightly compiler
	@$(PYTHON) tools/need.py rust
	@cargo +nightly --version >/dev/null 2>&1 || { echo "make asan needs a nightly compiler: rustup toolchain install nightly"; exit 1; }
	RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo +nightly test -p pyrmq-store --target-dir target/asan --target $(HOST) $(addprefix --test ,$(ON_FILES))

bench: dev ## ours and Apache's beside each other, the figures of the README
	@$(PYTHON) tools/need.py java maven
	$(BIN)/python tools/requirements.py bench > $(VENV)/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/bench.txt
	$(BIN)/python -m benches.e2e --out benches/results

wheel: deps ## one abi3 wheel in dist/
	@$(PYTHON) tools/need.py rust
	$(BIN)/maturin build --release --quiet --out dist
	@ls -l dist/*.whl

docs: dev ## write the generated pages again
	$(BIN)/python tools/gen_codes.py
	$(BIN)/python tools/gen_compat.py
	$(BIN)/python tools/gen_options.py

clean: ## remove what was built
	cargo clean
	rm -rf $(VENV) dist demo-out
