# `make demo` and `make test` set up .venv by themselves; nothing else has to be installed first.

PYTHON ?= python3
BIN := .venv/bin
# A registry that is slow for a minute is no reason to fail.
PIP_FLAGS := --quiet --disable-pip-version-check --retries 10 --timeout 180
.DEFAULT_GOAL := help

.PHONY: help demo test test-fast test-other-processors check lint types format dev bench-train bench-serve protos clean

help:  ## Show what there is to make.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

demo: .venv/demo.stamp  ## Train, export and serve real digits; about a minute and a half.
	$(BIN)/tpuserve demo

test: .venv/dev.stamp  ## Run all tests.
	$(BIN)/pytest -n 2 --dist loadfile

test-fast: .venv/dev.stamp  ## Run the tests that take milliseconds and no TensorFlow.
	$(BIN)/pytest -m "not slow"

test-other-processors: .venv/dev.stamp  ## Run the numeric tests as other processors would.
	$(BIN)/python -m tools.other_processors

check: lint types test  ## All that CI runs.

lint: .venv/dev.stamp  ## Look for mistakes, unformatted code and imports that run upwards.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/dev.stamp  ## Check the types.
	$(BIN)/mypy

format: .venv/dev.stamp  ## Format the code and mend what can be mended.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

dev: .venv/dev.stamp  ## Set up .venv for work on the code.

bench-train: .venv/dev.stamp  ## Measure training against TensorFlow's own TPUEstimator.
	$(BIN)/python -m benchmarks.train $(ARGS)

bench-serve: .venv/dev.stamp  ## Measure the server against bare echoes and plain JSON; needs h2load.
	$(BIN)/python -m benchmarks.serve.json_codec
	$(BIN)/python -m benchmarks.serve.rest
	$(BIN)/python -m benchmarks.serve.rpc
	$(BIN)/python -m benchmarks.serve.grpc_executor
	$(BIN)/python -m benchmarks.serve.swap
	$(BIN)/python -m benchmarks.serve.memory
	$(BIN)/python -m benchmarks.serve.allocation

# A compiler of its own environment: its protobuf is older than the one that users get.
protos:  ## Compile the .proto files of tpuserve and server.
	test -x .venv-protos/bin/python || $(PYTHON) -m venv .venv-protos
	.venv-protos/bin/pip install --quiet "grpcio-tools==1.75.1"
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  tpuserve/proto/*.proto server/proto/serialized_input.proto
	cd server/proto && ../../.venv-protos/bin/python -m grpc_tools.protoc -I. --include_imports \
	  --descriptor_set_out=model_server.binpb model_server.proto

clean:  ## Remove .venv and what tools leave behind.
	rm -rf .venv .venv-* build .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/demo.stamp: pyproject.toml constraints.txt
	@echo "Setting up .venv, once: about two minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP_FLAGS) --constraint constraints.txt --editable ".[examples]"
	touch $@

.venv/dev.stamp: pyproject.toml constraints.txt
	@echo "Setting up .venv, once: about two minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP_FLAGS) --constraint constraints.txt --editable ".[dev]"
	touch .venv/demo.stamp $@
