# The front doors of Sheaf. Each target prepares the machine first (scripts/setup), and is
# quick when there is nothing to prepare.

SHELL := /bin/bash
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sheaf
export PATH := $(HOME)/.cargo/bin:$(CACHE)/bin:$(PATH):/usr/sbin
# Outside the tree, so that a fresh clone on the same machine builds in seconds.
export CARGO_TARGET_DIR ?= $(CACHE)/target

# End-to-end tests mostly wait: for processes, for syncs, for each other.
export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(nproc))))

# DEMO=no starts the server without the machine of the first steps.
export DEMO ?= yes
# Arguments for the server: make run ARGS='--listen 0.0.0.0:6443 --data-dir /srv/sheaf'
ARGS ?=

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: run
run: ## Build and start a single node with a machine to log in to (ARGS=… for `sheaf server`, DEMO=no for none)
	@scripts/setup run
	@cargo build --release --locked -p sheaf
	@scripts/demo "$(CARGO_TARGET_DIR)/release/sheaf" $(ARGS) & \
		exec "$(CARGO_TARGET_DIR)/release/sheaf" server $(ARGS)

.PHONY: build
build: ## Build the release binary only
	@scripts/setup run
	@cargo build --release --locked -p sheaf
	@echo "$(CARGO_TARGET_DIR)/release/sheaf"

.PHONY: package
package: build ## Build dist/*.tar.gz and dist/*.deb: the release binary, unit file, man pages, completion
	@scripts/package "$(CARGO_TARGET_DIR)/release/sheaf" $(ARGS)

.PHONY: test
test: ## Everything CI runs: format, lints, and all tests, end to end included
	@scripts/setup test
	@scripts/lint-commits
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@rm -f "$(CARGO_TARGET_DIR)/tmp/warnings"
	@scripts/test
	@if test -s "$(CARGO_TARGET_DIR)/tmp/warnings"; then echo "Warnings that no test announced:"; \
		cut -c 1-300 "$(CARGO_TARGET_DIR)/tmp/warnings"; fi

.PHONY: e2e
e2e: ## The end-to-end tests only (ARGS=… to choose: make e2e ARGS=watch)
	@scripts/setup test
	cargo test --locked -p sheaf --test e2e -- $(ARGS)

.PHONY: long-test
long-test: ## The tests of servers and of volumes that take minutes each (ARGS=… to choose)
	@scripts/setup test
	cargo test --locked -p sheaf --test e2e -- --ignored --skip harvester_clients:: --skip host_network:: $(ARGS)
	cargo build --locked -p block --example lab
	cargo test --locked -p block --test volume -- --ignored $(ARGS)

.PHONY: net-test
net-test: ## VLANs and uplinks on Debian's kernel, in a QEMU machine (minutes; ARGS=… to choose)
	@scripts/setup test
	@scripts/net-test $(ARGS)

.PHONY: clients-test
clients-test: ## Harvester's Terraform provider against a node (TERRAFORM_PROVIDER=folder of its binary)
	@scripts/setup test
	cargo test --locked -p sheaf --test e2e -- --ignored harvester_clients:: $(ARGS)

.PHONY: golden
golden: ## Rewrite the expectations of golden tests; review the difference
	@scripts/setup test
	UPDATE_EXPECT=1 cargo test --locked --workspace --quiet

.PHONY: sim
sim: ## Simulate clusters of volumes under faults (SEEDS=10000 FROM=0; SEED=n repeats one; STORE=real)
	@scripts/setup run
	cargo xtask sim \
		$(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000) --from $(or $(FROM),0)) \
		$(if $(filter real,$(STORE)),--real-store) $(ARGS)

.PHONY: bench
bench: ## Measure a release build: requests per second, latency, CPU and memory
	@scripts/setup run
	cargo run --release --locked -p bench -- $(ARGS)

.PHONY: ui
ui: ## Build the dashboard's pages into ui/dist (needs Node.js; commit the result)
	@scripts/setup ui
	cd ui && npm run --silent check && npm run --silent build

.PHONY: ui-watch
ui-watch: ## Build the pages at every change; serve them with: sheaf server --ui-dir ui/dist
	@scripts/setup ui
	cd ui && npm run --silent watch

.PHONY: ui-test
ui-test: ## The dashboard in real Chromium: flows, accessibility, both themes (ARGS=--test-name-pattern=…)
	@scripts/setup test
	@scripts/setup ui
	cargo build --locked -p sheaf
	cd ui && npm run --silent check && \
		SHEAF="$(CARGO_TARGET_DIR)/debug/sheaf" node --test --test-concurrency=1 $(ARGS) test/

.PHONY: deny
deny: ## Check dependencies with cargo-deny: licences, sources, versions, known vulnerabilities
	@scripts/setup run
	@command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny --workspace check licenses bans sources
	@cargo deny --workspace check advisories || \
		{ echo 'Advisories: found, or their database cannot be reached (see above)'; exit 1; }

.PHONY: fuzz
fuzz: ## Throw broken input at everything that reads requests, for long (SECONDS=600 each; TARGETS=…)
	@scripts/setup run
	@scripts/fuzz $(or $(SECONDS),600) $(TARGETS)

.PHONY: soak
soak: ## An hour of client-go against a server that is killed now and then (ARGS='10m etcd')
	@scripts/setup run
	@cargo build --release --locked -p sheaf
	@scripts/soak $(ARGS)
