# `make help` lists the targets. All of them but `soak` use cargo's one profile, so nothing is compiled twice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# Usual places of a login shell's PATH that not every make has.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin
.DEFAULT_GOAL := help
.PHONY: help demo demo-down test check build fmt lint unit soak chaos faults golden e2e cluster cluster-up cluster-down \
        bench-cluster bench-placement bench-questions bench-history bench-scale bench-engine walks bench-packing bench-queueing crds reference image image-test node-test need packages web-check \
        release release-test chart upgrade-test

# docker or podman
CONTAINER ?= docker
cluster_tool = $$(tests/cluster/build.sh)/sluice-cluster
# Tests of any package are built with the features of all: with those of a package alone crates would be built once more.
run_tests = cargo test --workspace

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: need ## run four stories on a real control plane, and leave it running
	@echo "Building Sluice (the first time 2 to 4 minutes, later seconds)"
	@cargo build --quiet --bin sluice --example demo
	@target/debug/examples/demo

demo-down: ## stop the demo's control plane and its Sluice
	@cargo build --quiet --example demo
	@target/debug/examples/demo down

walks: packages cluster ## walk through docs/walks on a real control plane, and write what the commands print and the pages show
	@tests/harness/need.sh chromium
	cargo build --quiet --bin sluice --example walks
	target/debug/examples/walks $(ARGS)

test: need packages fmt lint unit cluster e2e faults release-test ## all tests: style, unit, property, end-to-end tests, 100 random faults, a release

check: need fmt lint unit ## the fast tests

build: need ## build target/debug/sluice
	cargo build

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets -- -D warnings

# Property tests draw the same cases every time, so a failure means a change; `soak` draws many others.
unit: export PROPTEST_RNG_SEED ?= 1
unit: ## run unit and property tests
	$(run_tests) --lib --bins --examples --test engine --test hostile --test image --test manifests --test reference --test rooms --test words --test simulate --test scenarios
	$(run_tests) --test chaos -- --skip under_faults

soak: ## check the laws on many more random worlds and hostile objects, with a new seed each time
	PROPTEST_CASES=$${PROPTEST_CASES:-5000} cargo test -p sluice-engine --test engine
	PROPTEST_CASES=$${PROPTEST_CASES:-500000} cargo test --profile soak --test hostile

chaos: export SEED ?= $(shell date +%s)
chaos: export FAULTS ?= 1000
chaos: packages cluster ## two replicas under random load and FAULTS=1000 faults drawn from a SEED, watched by an observer
	$(run_tests) --test chaos -- --nocapture

faults: packages cluster ## the same with 100 faults of a fixed seed, in four minutes
	$(run_tests) --test chaos no_law_is_broken_under_faults

golden: export GOLDEN = write
golden: ## write tests/golden again, after an intended change of decisions
	$(run_tests) --test scenarios --test engine golden

cluster: need ## build the local control plane of both versions of Kubernetes (about 14 minutes the first time)
	tests/cluster/build.sh
	tests/cluster/build.sh 1.34
	@tests/cluster/helm.sh >/dev/null

# Each test has a control plane of its own and mostly waits for it, so three run at a time on two cores.
e2e: cluster ## run the tests on a real control plane, three at a time
	$(run_tests) --test api_server --test e2e --test history --test monitoring --test reports -- --test-threads=3
	$(run_tests) --test play -- --test-threads=1

web-check: packages cluster ## look at every page of `sluice web` in a real Chromium; pictures are left in target/web-check
	tests/harness/need.sh chromium
	$(run_tests) --test web

cluster-up: need ## start a local control plane
	@"$(cluster_tool)" up

cluster-down: ## stop it and delete its data
	@"$(cluster_tool)" down --purge

bench-cluster: need ## measure Sluice's effect on a control plane
	cargo bench --bench cluster -- $(ARGS)

bench-placement: need ## measure delay and writes until every pod runs on its recorded node
	cargo bench --bench placement -- $(ARGS)

bench-questions: need ## measure what verdicts at dry-run, Questions and `sluice queue` cost
	cargo bench --bench questions -- $(ARGS)

bench-scale: need ## repeat the scale tests that KAI, Volcano and Kueue publish (ARGS="fill reclaim …")
	cargo bench --bench scale -- $(ARGS)

bench-history: need packages ## measure reports over a million runs in SQLite and PostgreSQL
	cargo bench --bench history -- $(ARGS)

bench-engine: ## measure the cost of a decision by nodes, teams and waiting workloads
	cargo bench -p sluice-engine --bench engine -- $(ARGS)

bench-packing: ## compare how full policies pack a cluster with the pods of a real trace
	cargo bench -p sluice-engine --bench packing -- $(ARGS)

bench-queueing: ## compare waits, evictions and fairness of policies on real traces
	cargo bench -p sluice-engine --bench queueing -- $(ARGS)

crds: ## write the CRDs into the manifests
	cargo run --quiet -- crds > target/crds.yaml && mv target/crds.yaml manifests/base/crds.yaml

reference: ## write the generated pages of docs/reference
	cargo run --quiet -- reference docs/reference

image: ## build the container image sluice:dev
	$(CONTAINER) build --build-arg SLUICE_COMMIT=$$(git rev-parse --short=12 HEAD 2>/dev/null) --file Containerfile --tag sluice:dev .

chart: need ## package the Helm chart into target
	@$$(tests/cluster/helm.sh) package manifests/chart --destination target 2>/dev/null

release: need ## build the files of a release, for x86-64 and where possible aarch64 (RELEASE_KEY=FILE signs them)
	tests/harness/need.sh openssl
	release/build.sh

# The commit before it, unless PREVIOUS names another. The build of it takes minutes.
upgrade-test: PREVIOUS ?= HEAD~1
upgrade-test: need cluster ## upgrade from PREVIOUS and roll back to it by Helm, with 200 running Jobs
	rm -rf target/previous && git worktree prune && git worktree add --detach target/previous $(PREVIOUS)
	cd target/previous && cargo build --bin sluice
	SLUICE_PREVIOUS=$$PWD/target/previous $(run_tests) --test e2e install::an_upgrade
	git worktree remove --force target/previous

release-test: need ## make a release of the debug binary and check each of its files
	@tests/harness/need.sh openssl
	@$(run_tests) --quiet --no-run --test image # which builds the program too
	release/test.sh

image-test: need ## build the image's binary without a container daemon and start it in an empty tree (as root)
	tests/image.sh

node-test: need ## install Sluice as pods on this machine as a real node, upgrade, roll back and kill it (as root, with containerd)
	tests/node/run.sh

need:
	@tests/harness/need.sh cargo cc go

packages:
	@tests/harness/packages.sh
