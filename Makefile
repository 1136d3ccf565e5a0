# Every command a contributor needs; `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
export OMP_NUM_THREADS ?= 2
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(PY) -m pip install --quiet uv
	$(UV) pip sync --quiet --compile-bytecode --python $(PY) requirements.lock
	$(UV) pip install --quiet --python $(PY) --no-deps --editable .
	@touch $@

.PHONY: dev
dev: $(VENV)/.installed ## install everything into .venv from the lock file

.PHONY: demo
demo: dev ## cluster, images, operator, one model, one streamed answer
	$(PY) -m e2e.demo

.PHONY: test
test: lint types unit kernels e2e ## lint, types, unit tests, kernels and the end-to-end tier

.PHONY: unit
unit: dev model ## unit tests: no cluster, no GPU, no network
	OMP_NUM_THREADS=1 $(PY) -m pytest tests -n 2 --dist loadfile

.PHONY: kernels
kernels: dev ## interpreter and ahead-of-time tiers of the Triton kernels
	OMP_NUM_THREADS=1 $(PY) -m pytest tests/kernels_triton -n 2 --dist loadfile
	OMP_NUM_THREADS=1 $(PY) bench/triton_versions.py

.PHONY: triton-versions
triton-versions: dev ## every kernel on every Triton that the engine accepts; writes the results
	OMP_NUM_THREADS=1 $(PY) bench/triton_versions.py --full

.PHONY: gpu-check
gpu-check: ## kernels and engine on the GPU of this machine, in 8 minutes; needs the clone alone
	$(PYTHON) bench/gpu_check.py

.PHONY: lint
lint: dev ## ruff, formatting and the import arrows
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

.PHONY: types
types: dev ## mypy, strict
	$(VENV)/bin/mypy

.PHONY: e2e
e2e: dev ## every scenario of e2e/scenarios on a real cluster
	$(PY) -m e2e

.PHONY: cluster-up
cluster-up: dev ## build and start Kubernetes on this machine; prints the kubeconfig path
	$(PY) -m e2e.cluster up

.PHONY: cluster-down
cluster-down: dev ## stop it and leave nothing behind
	$(PY) -m e2e.cluster down

.PHONY: images
images: dev ## build the operator, engine and model images
	$(PY) -m e2e.images build

.PHONY: model
model: dev ## unpack the demo's model into the cache
	$(PY) -m e2e.model

.PHONY: crds
crds: dev ## write the CRD and the chart's copy from the pydantic models
	$(PY) -m pagefleet_operator.crd > crds/inferencedeployments.yaml
	mkdir -p charts/pagefleet/crds && cp crds/inferencedeployments.yaml charts/pagefleet/crds/

.PHONY: docs
docs: dev ## write the generated parts of docs/ from the code
	$(PY) -m docs.generate

.PHONY: lock
lock: ## rewrite requirements.lock from pyproject.toml
	$(PY) -m e2e.images lock
