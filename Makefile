# What a developer does with tollgate. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
# Most tests wait for something most of the time, so that more of them run at once than there are processors.
JOBS ?= $(shell echo $$((5 * $$(nproc))))
# nextest runs every test in a process of its own; without it, cargo's own runner does the same tests.
# AWS-LC's own source of entropy takes 50 ms of processor time in each process that uses it. Tests have the kernel's alone.
# nextest starts a test by way of one more process, for the sake of Ctrl-Z, which takes 6 ms.
# Programs that are linked for fixed addresses (build.rs) start 3 ms sooner, and 7,000 are started.
SUITE := AWS_LC_SYS_NO_JITTER_ENTROPY=1 NEXTEST_DOUBLE_SPAWN=0 TOLLGATE_FIXED_ADDRESS=1 cargo
HAS_NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)
ifeq ($(HAS_NEXTEST),yes)
RUN_TESTS := $(SUITE) nextest run --locked --cargo-profile suite --jobs $(JOBS)
RUN_PEERS := $(SUITE) nextest run --locked --cargo-profile suite --profile peers
else
RUN_TESTS := $(SUITE) test --locked --profile suite --lib --bins --tests -- --skip peers:: --test-threads $(JOBS)
RUN_PEERS := $(SUITE) test --locked --profile suite --test it peers::
endif
# The sample of `make mutants`: a hundred of the mutants, others with each number.
SAMPLE ?= 0

.DEFAULT_GOAL := help
.PHONY: help run tools test quick test-peers mutants fmt clippy units lint deny release release-test bench load soak compare budget

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start the gateway with gateway.toml; built quickly, without optimisation (with it: cargo run --release)
	cargo run --locked --profile try --no-default-features --features ring -- run -c gateway.toml

tools: ## install what the tests need beside Rust (.ci/tools lists it)
	@.ci/tools

test: tools fmt clippy units ## everything that must hold before a commit lands
	@echo
	@echo "make test: format, lints and tests are good; not run here: make test-peers"

quick: fmt clippy ## format, lints, unit tests, and the rooms of tests/it that a change touches
	@JOBS=$(JOBS) .ci/quick

test-peers: ## tests beside programs of others: clients of HTTP/2 and of APIs, schemathesis, Envoy, Traefik, Caddy, dpkg
	@.ci/tools peers
	$(RUN_PEERS)

mutants: ## a hundred changes to the code, one at a time: do tests fail? (four hours; others: make mutants SAMPLE=1)
	@command -v cargo-mutants >/dev/null || \
	{ echo "cargo-mutants is not installed: cargo install cargo-mutants --locked"; exit 1; }
	NEXTEST_TEST_THREADS=$(JOBS) cargo mutants --shard $(SAMPLE)/47 --output target

fmt:
	cargo fmt --check

clippy:
	cargo clippy --locked --all-targets -- -D warnings

# Debian 12 has no package of Valkey: where `tools` could not install it, its test is left out by name, and this says so.
units:
	@without=$${TOLLGATE_TEST_WITHOUT:-}; \
	command -v valkey-server >/dev/null || without=$${without:+$$without,}valkey-server; \
	export TOLLGATE_TEST_WITHOUT=$$without; \
	if [ -n "$$without" ]; then echo "not tested here: $$without"; fi; \
	$(RUN_TESTS); \
	if [ -n "$$without" ]; then echo "not tested here: $$without"; fi

lint: fmt clippy deny ## formatting, lints, and the dependencies' licences and advisories; the build of `make run`
	cargo check --locked --no-default-features --features ring

deny:
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "cargo-deny is not installed, so dependencies go unchecked: cargo install cargo-deny --locked"; fi

release: ## dist/: binaries, package, licences, list of crates, hashes (docs/releasing.md)
	packaging/release

release-test: ## a release made twice and compared, started, and tested by the tests that send requests (an hour)
	packaging/release-test

bench: ## all tables beside nginx and HAProxy, into docs/benchmarks.md and docs/benchmarks/ (40 minutes)
	benches/compare.sh all

load: ## wrk and oha against the shipped gateway, or your own: make load URL=http://… (docs/load-testing.md)
	@benches/load.sh $(if $(URL),'$(URL)')

soak: ## ten minutes of mixed traffic while backends die, clients break off and the file is reloaded
	benches/soak.py

compare: ## the shortest of them: CPU per proxied and per refused request
	benches/compare.sh proxied refused

budget: ## instructions and system calls a request beside those of commit d821edf: CONTRIBUTING.md says what may change
	benches/budget
