# The product's face. `make help` lists what there is; docs/architecture.md says how it hangs together.
SHELL := /bin/sh
PY := .venv/bin/python
STACK ?= local
# Recipes read these from the environment: a text with quotes in it is then an argument, not a part of the command.
export STACK STATE CLUSTER EXPORT PUSH BASE NODES SIMULATE_GPUS YES ONLY REFRESH
LOAD := PROFILE ARRIVALS USERS RATE DURATION P95_MS KEEP_ALIVE RETRIES SEED
export MODEL SCENARIO IN_CLUSTER PODS CORES $(LOAD)
# STATE=<folder> keeps a cluster and its stack there instead of in .fleet: a second one beside the first.
.DEFAULT_GOAL := help
.PHONY: help up down test soak check preview render preflight rehearse simulate load tune golden verify images prepare bench settings clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.venv: FORCE
	@sh local/bootstrap.sh
FORCE:

up: .venv ## everything on this machine: cluster, stack `local`, verification report (CLUSTER=<kubeconfig file> uses another cluster; REFRESH=1 puts right what was changed by hand)
	@$(PY) -m local $${STATE:+--state="$$STATE"} up $${CLUSTER:+--cluster="$$CLUSTER"} $${REFRESH:+--refresh="$$REFRESH"}

down: .venv ## destroy stack `local`, stop the embedded cluster, leave nothing
	@$(PY) -m local $${STATE:+--state="$$STATE"} down $${CLUSTER:+--cluster="$$CLUSTER"}

test: .venv ## everything that CI runs: lint, types, unit, engine and end-to-end tests
	@$(MAKE) --no-print-directory lint
	@$(PY) -m pytest -m "not soak" tests

soak: .venv ## what is too long for CI: end-to-end tests of many minutes each
	@$(PY) -m pytest -m soak tests/e2e

check: .venv ## the quick part of the tests: lint, types, unit
	@$(MAKE) --no-print-directory lint
	@$(PY) -m pytest -n auto --dist loadfile tests

.PHONY: lint
lint: .venv
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy fleet components local services review rehearsal
	@.venv/bin/lint-imports

preview: .venv ## the stack's plan (STACK=local, dev or prod), without a cluster and without an account
	@$(PY) -m local $${STATE:+--state="$$STATE"} preview --stack="$$STACK"

render: .venv ## write the stack's whole plan to rendered/<stack>: resources, Helm values, manifests (STACK=local)
	@$(PY) -m local $${STATE:+--state="$$STATE"} render --stack="$$STACK"

preflight: .venv ## what is wrong with a stack's settings and what may be, as a table (STACK=local)
	@$(PY) -m local preflight --stack="$$STACK"

rehearse: .venv ## the whole program on this machine, AWS played: up, verify, destroy (STACK=prod); reports/rehearsal.json
	@$(PY) -m local $${STATE:+--state="$$STATE"} rehearse --stack="$$STACK"

simulate: .venv ## what the autoscalers will do with a load (STACK=prod TRACE=prod-step, or a file); reports/simulation.html
	@$(PY) -m local simulate --stack="$$STACK" --trace="$$TRACE"

load: .venv ## load on the fleet with a live view (PROFILE=smoke, ramp, step, soak or spike; docs/load.md has the rest); reports/load.html
	@$(PY) -m local $${STATE:+--state="$$STATE"} load --stack="$$STACK" --model="$$MODEL" --scenario="$$SCENARIO" --in-cluster="$$IN_CLUSTER" --pods="$$PODS" $${CLUSTER:+--cluster="$$CLUSTER"} $(foreach name,$(LOAD),$${$(name):+"$(name)=$$$(name)"})

tune: .venv ## what batching and how many instances serve a model best on this machine (MODEL=minilm CORES=1 P95_MS=100); reports/tune.json
	@$(PY) -m local $${STATE:+--state="$$STATE"} tune --model="$$MODEL" --cores="$$CORES" --p95-ms="$$P95_MS"

golden: .venv ## write the plans in tests/golden again; read the difference before you commit it
	@$(PY) -m local $${STATE:+--state="$$STATE"} golden

verify: .venv ## run the verification again (STACK=local): table, exit status, reports/verification.json
	@$(PY) -m local $${STATE:+--state="$$STATE"} verify --stack="$$STACK" $${CLUSTER:+--cluster="$$CLUSTER"}

images: .venv ## build the images (EXPORT=<folder> writes their archives there; PUSH=<registry> builds our programs' and pushes them)
	@$(PY) -m local $${STATE:+--state="$$STATE"} images $${EXPORT:+--export="$$EXPORT"} $${PUSH:+--push="$$PUSH"} $${BASE:+--base="$$BASE"}

prepare: .venv ## label, taint and annotate nodes of another cluster: CLUSTER=<kubeconfig file> SIMULATE_GPUS=1 (NODES=<name>,<name> chooses them, YES=1 does not ask)
	@test -n "$$CLUSTER" || { echo 'error: make prepare needs CLUSTER=<kubeconfig file>' >&2; exit 1; }
	@$(PY) -m local $${STATE:+--state="$$STATE"} prepare --cluster="$$CLUSTER" $${SIMULATE_GPUS:+--simulate-gpus="$$SIMULATE_GPUS"} $${NODES:+--nodes="$$NODES"} $${YES:+--yes="$$YES"}

bench: .venv ## the benchmarks, into reports/bench.json (ONLY=<name> runs one)
	@$(PY) -m local $${STATE:+--state="$$STATE"} bench $${ONLY:+--only="$$ONLY"}

settings: .venv ## write Pulumi.yaml's schema and docs/settings.md again from fleet/schema.py
	@$(PY) -m fleet.settings_reference

clean: ## down, and forget the stack's state, the store and the reports; the cache of built tools stays
	@test -z "$$STATE$$CLUSTER" || { echo 'error: make clean clears this checkout only: leave STATE and CLUSTER out' >&2; exit 1; }
	@$(MAKE) --no-print-directory down
	@rm -rf .fleet reports rendered
