# `make help` lists what there is. Everything uses cargo's one profile, so nothing is compiled twice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# Usual places that a login shell has in its PATH, but not every make.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin
.DEFAULT_GOAL := help
.PHONY: help demo demo-down test check build fmt lint unit soak golden e2e cluster cluster-up cluster-down \
        bench-cluster bench-placement bench-engine bench-packing bench-queueing crds reference image need packages

# docker or podman
CONTAINER ?= docker
cluster_tool = $$(tests/cluster/build.sh)/sluice-cluster

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: need ## four stories on a real control plane; leaves it running to be tried by hand
	@echo "Building Sluice (the first time 2 to 4 minutes, later seconds)"
	@cargo build --quiet --bin sluice --example demo
	@target/debug/examples/demo

demo-down: ## end the demo's control plane and its Sluice
	@cargo build --quiet --example demo
	@target/debug/examples/demo down

test: need packages fmt lint unit cluster e2e ## everything: style, unit and property tests, end to end

check: need fmt lint unit ## the fast part of the tests

build: need ## the program, target/debug/sluice
	cargo build

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets -- -D warnings

# Property tests draw the same cases every time, so that red means a change; `soak` draws many others.
unit: export PROPTEST_RNG_SEED ?= 1
unit: ## unit and property tests
	cargo test --workspace --lib --bins --examples --test engine --test manifests --test reference --test rooms --test simulate --test scenarios

soak: export PROPTEST_CASES ?= 5000
soak: ## the laws over many more random worlds than in the tests, others every time
	cargo test -p sluice-engine --test engine

golden: export GOLDEN = write
golden: ## write tests/golden anew, after a change that is to change decisions
	cargo test --test scenarios golden
	cargo test -p sluice-engine --test engine golden

cluster: need ## build the local control plane (about 8 minutes the first time)
	tests/cluster/build.sh

e2e: cluster ## tests on a real control plane, one after the other
	cargo test --test api_server --test e2e --test monitoring -- --test-threads=1
	cargo test --package sluice-harness --test '*' -- --test-threads=1

cluster-up: need ## start a local control plane
	@"$(cluster_tool)" up

cluster-down: ## stop it and forget its data
	@"$(cluster_tool)" down --purge

bench-cluster: need ## what Sluice does to a control plane, measured
	cargo bench --bench cluster

bench-placement: need ## whether every pod goes where its Job was admitted to, and what that costs, measured
	cargo bench --bench placement -- $(ARGS)

bench-engine: ## what a decision costs by nodes, teams and waiting workloads, measured
	cargo bench -p sluice-engine --bench engine -- $(ARGS)

bench-packing: ## how full policies fill a cluster with a real trace's pods, beside published figures
	cargo bench -p sluice-engine --bench packing -- $(ARGS)

bench-queueing: ## waits, evictions and fairness on real traces, beside other policies
	cargo bench -p sluice-engine --bench queueing -- $(ARGS)

crds: ## write the kinds' definitions into the manifests
	cargo run --quiet -- crds > target/crds.yaml && mv target/crds.yaml manifests/base/crds.yaml

reference: ## write the generated pages of docs/reference
	cargo run --quiet -- reference docs/reference

image: ## the container image sluice:dev
	$(CONTAINER) build --file Containerfile --tag sluice:dev .

need:
	@tests/harness/need.sh cargo cc go

packages:
	@tests/harness/packages.sh
