# What a developer does with tollgate. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
# nextest runs every test in a process of its own; without it, cargo's own runner does the same tests.
RUN_TESTS := $(shell cargo nextest --version >/dev/null 2>&1 \
	&& echo cargo nextest run --locked || echo cargo test --locked --lib --bins --tests)

.DEFAULT_GOAL := help
.PHONY: help run tools test fmt clippy units docs lint deny release release-test bench soak compare budget

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start the gateway with gateway.toml; built quickly, without optimisation (with it: cargo run --release)
	cargo run --locked --profile try --no-default-features --features ring -- run -c gateway.toml

tools: ## install what the tests need beside Rust: a Redis server, gRPC, httpx and client libraries of APIs for Python, curl, jq, nghttp2, Node, Java, promtool, Chromium, systemd
	@.ci/tools

test: tools fmt clippy units docs ## everything that must hold before a commit lands
	@echo
	@echo "make test: formatting, lints, tests and documentation examples are all good"

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

docs:
	cargo test --locked --doc

lint: fmt clippy deny ## formatting, lints, and the dependencies' licences and advisories; the build of `make run`
	cargo check --locked --no-default-features --features ring

deny:
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "cargo-deny is not installed, so dependencies go unchecked: cargo install cargo-deny --locked"; fi

release: ## dist/: binaries, package, licences, list of crates, hashes (docs/releasing.md)
	packaging/release

release-test: ## a release made twice and compared, started, and tested by the tests that send requests (an hour)
	packaging/release-test

bench: ## all tables beside nginx and HAProxy, into docs/benchmarks.md and docs/benchmarks/ (30 minutes)
	benches/compare.sh all

soak: ## ten minutes of mixed traffic while backends die, clients break off and the file is reloaded
	benches/soak.py

compare: ## the shortest of them: CPU per proxied and per refused request
	benches/compare.sh proxied refused

budget: ## instructions and system calls a request beside those of commit d821edf: CONTRIBUTING.md says what may change
	benches/budget
